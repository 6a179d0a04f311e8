#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tar unpacks a tree with links, odd names, modes and times; diff and a second tar find the same.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need tar diff
one_mount 64M
mkdir "$tmp/src" "$mnt/a"
cp -a "$top_srcdir/log" "$top_srcdir/fs" "$tmp/src/"
ln -s ../fs "$tmp/src/log/link"
ln "$tmp/src/log/oplog.c" "$tmp/src/hard"
mkfifo "$tmp/src/fifo"
echo x >"$tmp/src/odd $(printf 'n\nl') name"
truncate -s 1M "$tmp/src/sparse"
chmod 4711 "$tmp/src/hard"
chown 12:34 "$tmp/src/log/record.c"
mkdir -m 1777 "$tmp/src/sticky"
touch -d '2001-02-03 04:05:06.123456789' "$tmp/src/log/record.h" "$tmp/src/log"
tar -C "$tmp/src" --format=posix -cf "$tmp/t.tar" .
tar -C "$mnt/a" -xpSf "$tmp/t.tar"
diff -r --no-dereference "$tmp/src/log" "$mnt/a/log" || fail "log"
diff -r --no-dereference "$tmp/src/fs" "$mnt/a/fs" || fail "fs"
tar -C "$mnt/a" --compare -f "$tmp/t.tar" || fail "tar finds differences"
tree src >"$tmp/want"
tree mnt/a >"$tmp/got"
# a directory's size is the filesystem's own affair
sed -i -E 's/^(.* d [0-7]+ [0-9]+ [0-9]+) [0-9]+ /\1 - /' "$tmp/want" "$tmp/got"
diff "$tmp/want" "$tmp/got" || fail "the trees differ"
crash_mount
tar -C "$mnt/a" --compare -f "$tmp/t.tar" || fail "tar finds differences after the crash"
