#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make install` puts each program and man page where README says, they run from there, and `make
# uninstall` takes all of them away.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

root=$tmp/root
prefix=$(sed -n 's/^prefix = //p' "$top_builddir/Makefile")
expect 0 make -C "$top_builddir" --no-print-directory install DESTDIR="$root"
for file in bin/kvfs sbin/mkfs.kvfs sbin/fsck.kvfs; do
	[ -x "$root$prefix/$file" ] || fail "$file is not installed"
	"$root$prefix/$file" --version >"$tmp/version" || fail "$file --version: $?"
	grep -q kvfs "$tmp/version" || fail "$file --version: $(cat "$tmp/version")"
done
for page in kvfs.1 kvfs-mount.8 kvfs-mirror.8 mkfs.kvfs.8 fsck.kvfs.8 kvfs.5; do
	[ -s "$root$prefix/share/man/man${page##*.}/$page" ] || fail "$page is not installed"
done
expect 0 make -C "$top_builddir" --no-print-directory uninstall DESTDIR="$root"
[ -z "$(find "$root" ! -type d)" ] || fail "uninstall left $(find "$root" ! -type d)"
