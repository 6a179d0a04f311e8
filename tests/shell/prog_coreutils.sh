#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cp -a, mv, find, ln, dd, sort and rm -r work as on any filesystem, with a mv from another one.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

one_mount 64M
cp -a "$top_srcdir/fs" "$mnt/one"
cp -a "$mnt/one" "$mnt/two"
diff -r "$mnt/one" "$mnt/two" || fail "cp -a"
[ -z "$(find "$mnt/one" -newer "$mnt/two/cmd/main.c" -name main.c)" ] || fail "cp -a lost a time"
mv "$mnt/two" "$mnt/three"
[ ! -e "$mnt/two" ] || fail "mv of a directory leaves it"
[ -d "$mnt/three" ] || fail "mv of a directory"
mv "$mnt/three/cmd/main.c" "$mnt/one/cmd/main.c"
cmp "$mnt/one/cmd/main.c" "$top_srcdir/fs/cmd/main.c" || fail "mv over a file"
cp -a "$top_srcdir/log" "$tmp/outside"
mv "$tmp/outside" "$mnt/moved-in"
diff -r "$top_srcdir/log" "$mnt/moved-in" || fail "mv from another filesystem"
find "$mnt/moved-in" -name '*.c' -size +1k -exec touch -d '2001-01-01' {} +
[ "$(find "$mnt/moved-in" ! -newermt 2001-01-02 | wc -l)" -eq \
	"$(find "$top_srcdir/log" -name '*.c' -size +1k | wc -l)" ] ||
	fail "find by time"
ln "$mnt/one/cmd/main.c" "$mnt/hard"
[ "$(find "$mnt" -samefile "$mnt/hard" | wc -l)" -eq 2 ] || fail "find -samefile"
dd if=/dev/urandom of="$mnt/random" bs=64k count=32 status=none
dd if="$mnt/random" of="$mnt/copy" bs=7777 status=none
cmp "$mnt/random" "$mnt/copy" || fail "dd"
seq 20000 | sort -R | tee "$mnt/numbers" | sort -n -T "$mnt" >"$mnt/sorted"
[ "$(sort -n "$mnt/numbers" | cksum)" = "$(cksum <"$mnt/sorted")" ] || fail "sort and tee"
rm -r "$mnt/one" "$mnt/three" "$mnt/moved-in" "$mnt/hard" "$mnt/random" "$mnt/copy" "$mnt/numbers" \
	"$mnt/sorted"
[ -z "$(ls -A "$mnt")" ] || fail "left: $(ls -A "$mnt")"
