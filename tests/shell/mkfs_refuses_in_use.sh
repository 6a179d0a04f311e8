#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A volume in use is not overwritten, not even with -f.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/v"
mkfifo "$tmp/stdin"
"$FILL" "$tmp/v" hold <"$tmp/stdin" >"$tmp/held" &
exec 3>"$tmp/stdin"
wait_for "grep -q held '$tmp/held'" 10
expect 1 "$MKFS" -f -s 16M "$tmp/v"
one_line "in use"
expect 8 "$FSCK" "$tmp/v"
one_line "in use"
exec 3>&-
wait
expect 0 "$FSCK" "$tmp/v"
