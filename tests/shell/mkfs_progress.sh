#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Progress is shown on request, else only on a terminal, and never with -q.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -s 16M --progress "$tmp/a"
grep -q "100 %" "$tmp/err" || fail "no progress: $(cat "$tmp/err")"
expect 0 "$MKFS" -s 16M "$tmp/b"
[ ! -s "$tmp/err" ] || fail "progress on no terminal: $(cat "$tmp/err")"
expect 0 "$MKFS" -q -s 16M --progress "$tmp/c"
[ ! -s "$tmp/err" ] || fail "-q is not quiet: $(cat "$tmp/err")"
[ ! -s "$tmp/out" ] || fail "-q is not quiet: $(cat "$tmp/out")"
