#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A volume is not overwritten without -f, and is with it.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -L old -s 16M "$tmp/v"
cp "$tmp/v/key" "$tmp/old-key"
expect 1 "$MKFS" -s 16M "$tmp/v"
one_line "(label 'old')"
cmp "$tmp/v/key" "$tmp/old-key" || fail "the key changed"
expect 0 "$MKFS" -f -s 16M "$tmp/v"
cmp -s "$tmp/v/key" "$tmp/old-key" && fail "the key is still the old one"
expect 0 "$FSCK" "$tmp/v"
