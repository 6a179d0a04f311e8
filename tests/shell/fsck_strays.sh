#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files of an unfinished checkpoint are noted, and removed with -y; others stay.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/v"
expect 0 "$FILL" "$tmp/v" append:10 ckpt:10
cp "$(find "$tmp/v/ckpt" -name 'seg-*' | head -n 1)" "$tmp/v/ckpt/seg-00000000000000ff"
: >"$tmp/v/ckpt/manifest.tmp"
: >"$tmp/v/ckpt/notes.txt"
expect 0 "$FSCK" "$tmp/v"
in_out "ckpt/manifest.tmp: left over"
expect 1 "$FSCK" -y "$tmp/v"
[ ! -e "$tmp/v/ckpt/manifest.tmp" ] || fail "manifest.tmp is not removed"
[ ! -e "$tmp/v/ckpt/seg-00000000000000ff" ] || fail "the segment is not removed"
[ -e "$tmp/v/ckpt/notes.txt" ] || fail "a foreign file was removed"
