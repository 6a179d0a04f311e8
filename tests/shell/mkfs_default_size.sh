#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The default log size: an eighth of little free space, 1 GiB of much, never under 16 MiB.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

[ "$(id -u)" -eq 0 ] || skip "mounting a tmpfs needs root"
mkdir "$tmp/m"
mount -t tmpfs -o size=256M tmpfs "$tmp/m" 2>/dev/null || skip "mount is not permitted here"
trap 'umount "$tmp/m"; rm -rf "$tmp"' EXIT
expect 0 "$MKFS" -n --json "$tmp/m/v"
in_out "\"log_bytes\": $((32 << 20))"
mount -o remount,size=64M "$tmp/m"
expect 0 "$MKFS" -n --json "$tmp/m/v"
in_out "\"log_bytes\": $((16 << 20))"
mount -o remount,size=8G "$tmp/m"
expect 0 "$MKFS" -n --json "$tmp/m/v"
in_out "\"log_bytes\": $((1 << 30))"
