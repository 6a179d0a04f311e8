#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A volume is made with its parts and modes, and passes fsck.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -L first -s 16M "$tmp/v"
in_out "Made volume $tmp/v"
for name in superblock key log.0 log.1 ckpt; do
	[ -e "$tmp/v/$name" ] || fail "no $name"
done
[ "$(stat -c %a "$tmp/v/key")" = 600 ] || fail "the key's mode"
[ "$(stat -c %s "$tmp/v/log.0")" -eq $((8 << 20)) ] || fail "the pool's size"
expect 0 "$FSCK" "$tmp/v"
in_out clean
