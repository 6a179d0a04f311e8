#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# After a crash on a disk with no room for a file more, not even for the control socket: the volume
# is served, with one line, and the socket is there as soon as there is room.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

mkdir "$tmp/disk" "$tmp/mnt"
mount -t tmpfs -o size=80M,nr_inodes=60 tmpfs "$tmp/disk" 2>/dev/null ||
	skip "mount is not permitted here"
expect 0 "$MKFS" -q -s 32M "$tmp/disk/v"
mount_primary disk/v mnt
for i in 1 2 3 4; do
	echo "$i" >"$tmp/mnt/k$i"
done
kill_daemon disk/v
rm "$tmp/disk/v/control"
i=0
while (: >"$tmp/disk/fill$i") 2>/dev/null; do
	i=$((i + 1))
	[ "$i" -lt 60 ] || fail "the inodes never end"
done

mount_primary disk/v mnt
[ "$(grep -c "no control socket: No space left on device" "$tmp/err")" -eq 1 ] ||
	fail "not said once: $(cat "$tmp/err")"
[ ! -e "$tmp/disk/v/control" ] || fail "there was room for a socket: nothing was tested"
[ "$(cat "$tmp/mnt/k1")" = 1 ] || fail "k1 is not what it was"
rm "$tmp/mnt/k2"
echo 5 >"$tmp/mnt/k5"

rm "$tmp"/disk/fill?
wait_for "[ -n \"\$(pid_of disk/v)\" ]" 20
unmount disk/v
mount_primary disk/v mnt
# shellcheck disable=SC2012 # the names are this test's
[ "$(ls "$tmp/mnt" | tr '\n' ' ')" = "k1 k3 k4 k5 " ] || fail "not the same keys: $(ls "$tmp/mnt")"
unmount mnt
