#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A damaged checkpoint that the log can't make up for is kept and reported.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/v"
expect 0 "$FILL" "$tmp/v" append:100 ckpt:10 switch append:10 ckpt:10 switch append:10
find "$tmp/v/ckpt" -name 'seg-*' | while read -r seg; do
	printf 'XXXX' | dd of="$seg" bs=1 seek=5000 conv=notrunc 2>/dev/null
done
find "$tmp/v/ckpt" | sort >"$tmp/before"
expect 4 "$FSCK" -y "$tmp/v"
in_out "resync from another node"
find "$tmp/v/ckpt" | sort >"$tmp/after"
cmp "$tmp/before" "$tmp/after" || fail "files were removed"
