#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A damaged record with valid ones behind it is found with its offset and LSN.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/v"
expect 0 "$FILL" "$tmp/v" append:50
at=$(grep -abo "$(printf '\032\032\032\032\032\032\032\032')" "$tmp/v/log.0" | head -n 1 | cut -d: -f1)
[ -n "$at" ] || fail "record 26 is not found in the pool"
printf 'XX' | dd of="$tmp/v/log.0" bs=1 seek="$at" conv=notrunc 2>/dev/null
expect 4 "$FSCK" -y "$tmp/v"
in_out "LSN 26: damaged"
in_out "with LSN 27"
