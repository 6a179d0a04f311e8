#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A damaged superblock copy is found, and with -y written again.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/v"
for offset in 0 65536; do
	printf 'garbage' |
		dd of="$tmp/v/superblock" bs=1 seek=$((offset + 50)) conv=notrunc 2>/dev/null
	expect 4 "$FSCK" -n "$tmp/v"
	in_out "superblock, offset $offset: the superblock is damaged"
	expect 1 "$FSCK" -y "$tmp/v"
	in_out "repaired"
	expect 0 "$FSCK" "$tmp/v"
done
