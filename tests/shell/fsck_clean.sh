#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A volume with records and checkpoints in both pools is clean, and fsck changes nothing.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/v"
expect 0 "$FILL" "$tmp/v" append:500 ckpt:100 switch append:500 ckpt:50 switch append:10
# Opening a pool marks its libpmemlog header (4 to 8 KiB into the file), so what lies behind counts.
sums()
{
	(cd "$tmp/v" && cksum superblock key ckpt/* && for pool in log.0 log.1; do
		tail -c +8193 $pool | cksum
	done)
}

sums >"$tmp/before"
expect 0 "$FSCK" "$tmp/v"
in_out "510 log records, 2 checkpoint(s)"
expect 0 "$FSCK" -y "$tmp/v"
sums >"$tmp/after"
cmp "$tmp/before" "$tmp/after" || fail "fsck changed a clean volume"
