#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each wrong use gives one clear reason and its exit status, and makes nothing.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 2 "$MKFS"
expect 2 "$MKFS" "$tmp/a" "$tmp/b"
expect 2 "$MKFS" --no-such-option "$tmp/a"
grep -q "no-such-option" "$tmp/err" || fail "the option is not named"
expect 2 "$MKFS" -s 12parsecs "$tmp/a"
one_line "12parsecs"
expect 1 "$MKFS" -s 1M "$tmp/a"
one_line "at least 16.00 MiB"
expect 1 "$MKFS" -s 1E "$tmp/a"
one_line "give a smaller log"
expect 1 "$MKFS" "$tmp/no/such/parent"
one_line "parent"
expect 2 "$MKFS" -L "$(printf 'a\nb')" "$tmp/a"
one_line "label"
ln -s nowhere "$tmp/link"
expect 1 "$MKFS" -s 16M "$tmp/link"
one_line "leads nowhere"
[ ! -e "$tmp/a" ] || fail "something was made"
