#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A key file that is none, or lacks the UUID, is refused; an open one is warned of.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/one"
expect 1 "$MKFS" --join "$tmp/missing" "$tmp/two"
one_line "can't be read"
echo hello >"$tmp/bad"
expect 1 "$MKFS" --join "$tmp/bad" "$tmp/two"
one_line "not a key file"
head -n 1 "$tmp/one/key" >"$tmp/bare"
expect 1 "$MKFS" --join "$tmp/bare" "$tmp/two"
one_line "UUID"
[ ! -e "$tmp/two" ] || fail "something was made"
cp "$tmp/one/key" "$tmp/open"
chmod 644 "$tmp/open"
expect 0 "$MKFS" -s 16M --join "$tmp/open" "$tmp/two"
one_line "others can read"
