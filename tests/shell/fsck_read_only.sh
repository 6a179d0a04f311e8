#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# On a read-only file system, as an I/O error leaves it, fsck.kvfs checks as it does elsewhere.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/v"
expect 0 "$FILL" "$tmp/v" append:500 ckpt:100 switch append:500 ckpt:50 switch append:10
# shellcheck disable=SC2016
read_only='mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"'
unshare -m sh -c "$read_only" - "$tmp/v" 2>/dev/null || skip "mount is not permitted here"

# there OPTION
there()
{
	unshare -m sh -c "$read_only && exec \"\$2\" \"\$3\" \"\$1\"" - "$tmp/v" "$FSCK" "$1"
}

expect 0 there -n
in_out "510 log records, 2 checkpoint(s)"
in_out "clean"
expect 8 there -y
grep -qF "Read-only file system" "$tmp/err" || fail "no cause: $(cat "$tmp/err")"

# a record of the older pool is damaged: the same findings
for pool in log.0 log.1; do
	printf 'X' | dd of="$tmp/v/$pool" bs=1 seek=9000 conv=notrunc status=none
done
expect 4 "$FSCK" -n "$tmp/v"
mv "$tmp/out" "$tmp/want"
expect 4 there -n
cmp "$tmp/want" "$tmp/out" || fail "other findings: $(cat "$tmp/out")"
