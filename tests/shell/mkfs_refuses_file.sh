#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A file is refused, with the signature it holds named; what is not known for sure (two signatures,
# one that is damaged, one that can't be read) is not taken for nothing. A device of persistent
# memory, which is overwritten without -f where it holds nothing, is asked in the same way.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

truncate -s 4M "$tmp/image"
expect 1 "$MKFS" -f "$tmp/image"
one_line "not a directory"
! grep -q "it holds" "$tmp/err" || fail "an empty file holds something: $(cat "$tmp/err")"
PATH=$PATH:/sbin:/usr/sbin
command -v mke2fs >/dev/null || skip "no mke2fs to make a signature"
mke2fs -q -F -t ext4 "$tmp/image" >/dev/null 2>&1
expect 1 "$MKFS" -f "$tmp/image"
one_line "it holds: ext4"

# swap space of the first version, where ext4 has left a gap
cp "$tmp/image" "$tmp/two"
printf SWAP-SPACE | dd of="$tmp/two" bs=1 seek=4086 conv=notrunc 2>/dev/null
expect 1 "$MKFS" -f "$tmp/two"
one_line "it holds: several signatures"

# a superblock whose checksum is wrong
cp "$tmp/image" "$tmp/damaged"
printf x | dd of="$tmp/damaged" bs=1 seek=1200 conv=notrunc 2>/dev/null
expect 1 "$MKFS" -f "$tmp/damaged"
one_line "it holds: ext4"

# a disk that can't be read
command -v strace >/dev/null || skip "no strace to make the file unreadable"
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # it does not work under strace
export ASAN_OPTIONS
strace -o /dev/null true 2>/dev/null || skip "strace is not permitted here"
expect 1 strace -f -o /dev/null -P "$tmp/image" -e inject=read,pread64:error=EIO \
	"$MKFS" -f "$tmp/image"
one_line "it holds: what can't be read: Input/output error"
