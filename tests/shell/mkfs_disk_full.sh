#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A full disk during mkfs gives one line and leaves nothing.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

command -v strace >/dev/null || skip "no strace to make the disk full"
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # it does not work under strace
export ASAN_OPTIONS
strace -o /dev/null true 2>/dev/null || skip "strace is not permitted here"
expect 1 strace -f -o /dev/null -e inject=fallocate:error=ENOSPC:when=2+ "$MKFS" -q -s 16M "$tmp/v"
one_line "No space left"
[ ! -e "$tmp/v" ] || fail "left behind: $(ls "$tmp/v")"
mkdir "$tmp/d"
expect 1 strace -f -o /dev/null -e inject=fallocate:error=ENOSPC:when=1+ "$MKFS" -q -s 16M "$tmp/d"
[ -z "$(ls -A "$tmp/d")" ] || fail "left behind: $(ls "$tmp/d")"
