#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A file is refused, with the signature it holds named.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

truncate -s 4M "$tmp/image"
expect 1 "$MKFS" -f "$tmp/image"
one_line "not a directory"
PATH=$PATH:/sbin:/usr/sbin
command -v mke2fs >/dev/null || skip "no mke2fs to make a signature"
mke2fs -q -F -t ext4 "$tmp/image" >/dev/null 2>&1
expect 1 "$MKFS" -f "$tmp/image"
one_line "ext4"
