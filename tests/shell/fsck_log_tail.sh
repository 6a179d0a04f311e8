#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A torn tail is noted as normal and is no problem.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/v"
expect 0 "$FILL" "$tmp/v" append:50
at=$(grep -abo 22222222 "$tmp/v/log.0" | head -n 1 | cut -d: -f1)
[ -n "$at" ] || fail "record 50 is not found in the pool"
printf 'XX' | dd of="$tmp/v/log.0" bs=1 seek="$at" conv=notrunc 2>/dev/null
expect 0 "$FSCK" "$tmp/v"
in_out "LSN 50: a torn tail"
