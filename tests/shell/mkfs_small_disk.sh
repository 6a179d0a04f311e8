#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A file system too small for a volume is refused before anything is made.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

[ "$(id -u)" -eq 0 ] || skip "mounting a small tmpfs needs root"
mkdir "$tmp/m"
mount -t tmpfs -o size=10M tmpfs "$tmp/m" 2>/dev/null || skip "mount is not permitted here"
trap 'umount "$tmp/m"; rm -rf "$tmp"' EXIT
expect 1 "$MKFS" "$tmp/m/v"
one_line "a volume needs at least 20.00 MiB"
expect 1 "$MKFS" -s 16M "$tmp/m/v"
one_line "give a smaller log"
[ -z "$(ls -A "$tmp/m")" ] || fail "something was made"
mount -o remount,size=24M "$tmp/m"
expect 0 "$MKFS" "$tmp/m/v"
expect 0 "$MKFS" -f "$tmp/m/v"
