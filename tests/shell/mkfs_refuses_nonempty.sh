#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A directory with files is refused without -f; with it they stay.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

mkdir "$tmp/d"
echo precious >"$tmp/d/file"
expect 1 "$MKFS" -s 16M "$tmp/d"
one_line "not empty"
[ "$(ls -A "$tmp/d")" = file ] || fail "something was made"
expect 0 "$MKFS" -f -s 16M "$tmp/d"
[ "$(cat "$tmp/d/file")" = precious ] || fail "the file is gone"
mkdir -p "$tmp/e/lost+found"
expect 0 "$MKFS" -s 16M "$tmp/e"
