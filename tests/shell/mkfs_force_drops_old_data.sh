#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Records and checkpoints of an overwritten volume are gone.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/v"
expect 0 "$FILL" "$tmp/v" append:100 ckpt:10 switch append:100
expect 0 "$MKFS" -q -f -s 16M "$tmp/v"
[ -z "$(ls -A "$tmp/v/ckpt")" ] || fail "old checkpoint files are left"
expect 0 "$FSCK" "$tmp/v"
in_out "0 log records, 0 checkpoint(s)"
