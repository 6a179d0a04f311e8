#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# As mount.kvfs, the program takes what mount(8) passes and ignores fstab's generic words.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

make_volume v
mkdir "$tmp/m" "$tmp/sbin"
cat >"$tmp/v/kvfs.conf" <<CONF
# memory for values
arena=64M
CONF
ln -s "$(readlink -f "$KVFS")" "$tmp/sbin/mount.kvfs"
"$tmp/sbin/mount.kvfs" "$tmp/v" "$tmp/m" -s \
	-o rw,noauto,nofail,_netdev,user,exec,suid,dev,relatime,x-systemd.automount
grep " $tmp/m " /proc/self/mountinfo | grep -q "fuse.kvfs $tmp/v" ||
	fail "not mounted: $(cat /proc/self/mountinfo)"
arena_bytes=$("$KVFS" status --json "$tmp/m" | sed -n 's/.*"arena_bytes": \([0-9]*\).*/\1/p')
[ "$arena_bytes" -eq 67108864 ] ||
	fail "kvfs.conf was not read"
pid=$(pid_of m)
umount "$tmp/m"
wait_for "! kill -0 $pid 2>/dev/null || grep -q '^State:.Z' /proc/$pid/status" 20
"$KVFS" mount -o ro "$tmp/v" "$tmp/m"
if (echo x >"$tmp/m/x") 2>/dev/null; then
	fail "ro takes writes"
fi
"$KVFS" umount "$tmp/m"
