#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A log pool that is none, is missing or is another volume's is found.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/v"
expect 0 "$MKFS" -q -s 16M "$tmp/w"
expect 0 "$FILL" "$tmp/w" append:5
cp "$tmp/v/log.0" "$tmp/keep"
cp "$tmp/w/log.0" "$tmp/v/log.0"
expect 4 "$FSCK" -y "$tmp/v"
in_out "log.0, offset 0: the pool belongs to another volume"
cp "$tmp/keep" "$tmp/v/log.0"
dd if=/dev/zero of="$tmp/v/log.0" bs=4096 count=1 conv=notrunc 2>/dev/null
expect 4 "$FSCK" -y "$tmp/v"
in_out "log.0: not a log pool"
rm "$tmp/v/log.0"
expect 4 "$FSCK" -y "$tmp/v"
in_out "log.0: the log pool is missing"
