#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A missing, foreign or readable key is found; what can be is put right.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/v"
cp "$tmp/v/key" "$tmp/key"
chmod 644 "$tmp/v/key"
expect 4 "$FSCK" "$tmp/v"
in_out "key: others can read the key (mode 0644)"
expect 1 "$FSCK" -y "$tmp/v"
[ "$(stat -c %a "$tmp/v/key")" = 600 ] || fail "the mode"
head -n 1 "$tmp/key" >"$tmp/v/key"
expect 1 "$FSCK" -y "$tmp/v"
cmp "$tmp/key" "$tmp/v/key" || fail "the UUID's line is not back"
expect 0 "$MKFS" -q -s 16M "$tmp/other"
cp "$tmp/other/key" "$tmp/v/key"
expect 4 "$FSCK" -y "$tmp/v"
in_out "the key of another volume"
rm "$tmp/v/key"
expect 4 "$FSCK" -y "$tmp/v"
in_out "missing"
