#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Wrong usage is 16, no volume is 8, each with its line.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 16 "$FSCK"
expect 16 "$FSCK" -n -y "$tmp"
expect 16 "$FSCK" --what "$tmp"
expect 8 "$FSCK" "$tmp/missing"
one_line "no such directory"
expect 8 "$FSCK" "$tmp"
one_line "not a kvfs volume"
: >"$tmp/file"
expect 8 "$FSCK" "$tmp/file"
one_line "not a directory"
