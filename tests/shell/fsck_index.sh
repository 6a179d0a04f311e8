#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A checkpoint whose index contradicts itself is found, with what is wrong, and dropped if that is
# safe.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/v"
expect 0 "$FILL" "$tmp/v" append:100 ckpt:10 switch append:100 badckpt:10
expect 4 "$FSCK" "$tmp/v"
in_out "index: a name in directory 1 refers to inode 12, which is missing"
expect 1 "$FSCK" -y "$tmp/v"
in_out "repaired: dropped"
expect 0 "$FSCK" "$tmp/v"
expect 0 "$MKFS" -q -s 16M "$tmp/w"
expect 0 "$FILL" "$tmp/w" append:10 badckpt:10 switch append:10 badckpt:10 switch append:1
expect 4 "$FSCK" -y "$tmp/w"
in_out "resync from another node"
