#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A damaged newest checkpoint is dropped when the older one and the log reach.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/v"
expect 0 "$FILL" "$tmp/v" append:100 ckpt:10 switch append:100 ckpt:10
seg=$(find "$tmp/v/ckpt" -name 'seg-*' | sort | tail -n 1)
printf 'XXXX' | dd of="$seg" bs=1 seek=5000 conv=notrunc 2>/dev/null
expect 4 "$FSCK" "$tmp/v"
in_out "(-y repairs it)"
expect 1 "$FSCK" -y "$tmp/v"
in_out "repaired: dropped"
expect 0 "$FSCK" "$tmp/v"
in_out "200 log records, 1 checkpoint(s)"
[ ! -e "$seg" ] || fail "its segment is still there"
