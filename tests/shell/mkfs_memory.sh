#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# On a file system in memory, logs larger than the memory that is available are refused.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

[ "$(id -u)" -eq 0 ] || skip "mounting a tmpfs needs root"
mkdir "$tmp/m"
mount -t tmpfs -o size=64T tmpfs "$tmp/m" 2>/dev/null || skip "mount is not permitted here"
trap 'umount "$tmp/m"; rm -rf "$tmp"' EXIT
expect 1 "$MKFS" -s 32T "$tmp/m/v"
one_line "of which only"
[ -z "$(ls -A "$tmp/m")" ] || fail "something was made"
