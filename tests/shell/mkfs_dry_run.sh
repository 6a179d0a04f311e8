#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# -n checks and says, but writes nothing.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -n -s 16M "$tmp/v"
in_out "Would make"
[ ! -e "$tmp/v" ] || fail "something was made"
mkdir "$tmp/d"
expect 0 "$MKFS" -n --json -s 16M "$tmp/d"
in_out '"made": false'
[ -z "$(ls -A "$tmp/d")" ] || fail "something was made"
