#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Records missing between the checkpoint and the log are reported with their numbers.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/v"
expect 0 "$FILL" "$tmp/v" append:100 ckpt:10 switch append:50 ckpt:5 switch append:10
rm "$tmp/v/ckpt"/*
expect 4 "$FSCK" -y "$tmp/v"
in_out "records 1 to 100 are missing"
