#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# With both superblock copies damaged, it says so and leaves everything.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/v"
for offset in 50 65586; do
	printf 'garbage' | dd of="$tmp/v/superblock" bs=1 seek=$offset conv=notrunc 2>/dev/null
done
expect 4 "$FSCK" -y "$tmp/v"
in_out "superblock, offset 0"
in_out "superblock, offset 65536"
expect 1 "$MKFS" -s 16M "$tmp/v"
one_line "damaged superblock"
