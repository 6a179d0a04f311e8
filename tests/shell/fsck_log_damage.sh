#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A damaged record with valid ones behind it is found with its offset and LSN, and a repair cuts the
# log off there and keeps what follows.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/v"
expect 0 "$FILL" "$tmp/v" append:50
at=$(grep -abo "$(printf '\032\032\032\032\032\032\032\032')" "$tmp/v/log.0" | head -n 1 |
	cut -d: -f1)
[ -n "$at" ] || fail "record 26 is not found in the pool"
printf 'XX' | dd of="$tmp/v/log.0" bs=1 seek="$at" conv=notrunc 2>/dev/null
cp "$tmp/v/log.0" "$tmp/before"
mkdir "$tmp/m"
expect 1 "$KVFS" mount -o arena=64M,inodes=1000 "$tmp/v" "$tmp/m"
grep -q "log.0 is damaged at offset.*records after LSN 25.*fsck.kvfs -y" "$tmp/err" ||
	fail "the mount says $(cat "$tmp/err")"
expect 4 "$FSCK" "$tmp/v"
in_out "LSN 26: damaged"
in_out "with LSN 27"
in_out "-y repairs it"
# behind the header, in which the library notes each opening
cmp -i 8192 "$tmp/before" "$tmp/v/log.0" || fail "a check changed the log"
[ ! -e "$tmp/v/cut-26" ] || fail "a check made a file"

# fsck(8) at boot: that is not for a program to decide
for option in -a -p; do
	expect 4 "$FSCK" $option "$tmp/v"
	in_out "-y alone cuts off"
	[ ! -e "$tmp/v/cut-26" ] || fail "$option cut the log off"
	cmp -i 8192 "$tmp/before" "$tmp/v/log.0" || fail "$option changed the log"
done

expect 1 "$FSCK" -y "$tmp/v"
in_out "the log cut off after LSN 25, the rest kept in cut-26"
[ "$(stat -c %a "$tmp/v/cut-26")" = 600 ] || fail "mode of the file with the rest"
[ "$(stat -c %s "$tmp/v/log.0")" = "$(stat -c %s "$tmp/before")" ] ||
	fail "the pool has another size"
for n in 033 062; do # 27 and 50
	grep -aq "$(printf "\\$n\\$n\\$n\\$n\\$n\\$n\\$n\\$n")" "$tmp/v/cut-26" ||
		fail "record 0$n is not in the file with the rest"
done
expect 0 "$FSCK" "$tmp/v"
in_out "25 log records"
expect 0 "$FILL" "$tmp/v" append:5
expect 0 "$FSCK" "$tmp/v"
in_out "30 log records"
[ ! -e "$tmp/v/log.new" ] || fail "log.new was left"
