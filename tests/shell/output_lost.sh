#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What can't be printed is an error: one line, and the exit status the man pages name.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

[ -e /dev/full ] || skip "no /dev/full"

# lost STATUS COMMAND...
lost()
{
	lost_want=$1
	shift
	lost_got=0
	"$@" >/dev/full 2>"$tmp/err" || lost_got=$?
	[ "$lost_got" -eq "$lost_want" ] || fail "$* gave $lost_got, not $lost_want"
	one_line "cannot write the output: No space left on device"
}

for option in --help -V; do
	lost 1 "$MKFS" "$option"
	lost 8 "$FSCK" "$option"
	lost 1 "$KVFS" "$option"
done
lost 1 "$MKFS" -n -s 16M "$tmp/v"
lost 1 "$MKFS" -n --json -s 16M "$tmp/v"
lost 1 "$MKFS" -s 16M "$tmp/v"
lost 8 "$FSCK" "$tmp/v"
lost 8 "$FSCK" --json "$tmp/v"
expect 0 "$FSCK" "$tmp/v"
