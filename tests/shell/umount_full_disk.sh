#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The disk has no room for the last checkpoint: kvfs umount says so in one line and exits 1; the log
# has everything, and the next mount finds it.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

mkdir "$tmp/disk"
mount -t tmpfs -o size=36M tmpfs "$tmp/disk" 2>/dev/null || skip "mount is not permitted here"
ln -s disk/v "$tmp/v"
make_volume disk/v
mount_volume
head -c 6000000 /dev/urandom >"$tmp/value"
cp "$tmp/value" "$tmp/m/key"
expect 1 "$KVFS" umount "$tmp/m"
one_line 'the last checkpoint failed: No space left on device'
! grep -qF " $tmp/m " /proc/self/mountinfo || fail "it is mounted still"
mount_volume
cmp "$tmp/value" "$tmp/m/key" || fail "the value is not what it was"
rm "$tmp/m/key" # what is left goes onto the disk
wait_for '[ "$(status_of v .store.orphans)" = 0 ]' 20
expect 0 "$KVFS" umount "$tmp/m"
[ ! -s "$tmp/err" ] || fail "said: $(cat "$tmp/err")"
umount "$tmp/disk"
