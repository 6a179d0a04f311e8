#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts/install-deps installs each Debian package that configure.ac asks for.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

{
	sed -nE 's/^KVFS_NEED\(\[[^]]*\], \[[^]]*\], \[[^]]*\], \[([^]]*)\].*/\1/p' \
		"$top_srcdir/configure.ac"
	grep -oE 'kvfs_missing [a-z0-9-]+"' "$top_srcdir/configure.ac" | sed -E 's/.* (.*)"/\1/'
} | sort -u >"$tmp/needed"
[ "$(wc -l <"$tmp/needed")" -ge 10 ] ||
	fail "configure.ac asks for too little: $(cat "$tmp/needed")"
sed -n '/^BUILD="/,/"$/p' "$top_srcdir/scripts/install-deps" | tr -d '"' | sed 's/^BUILD=//' |
	tr -s ' \t' '\n' >"$tmp/installed"
while read -r package; do
	grep -qx -- "$package" "$tmp/installed" ||
		fail "scripts/install-deps does not install $package"
done <"$tmp/needed"
