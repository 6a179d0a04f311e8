#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A damaged manifest of the newest checkpoint is dropped when the log reaches.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/v"
expect 0 "$FILL" "$tmp/v" append:100 ckpt:10 switch append:100 ckpt:10
manifest=$(find "$tmp/v/ckpt" -name 'manifest-*' | sort | tail -n 1)
: >"$manifest"
expect 4 "$FSCK" "$tmp/v"
in_out "manifest of the newest checkpoint is damaged"
expect 1 "$FSCK" -y "$tmp/v"
[ ! -e "$manifest" ] || fail "it is still there"
expect 0 "$FSCK" "$tmp/v"
