#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two mirrors, one of each transport, show at once what was acknowledged; one is killed, comes back,
# catches up.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

make_volume v
make_volume s --join "$tmp/v/key"
make_volume t --join "$tmp/v/key"
start_mirror s s.m "shm:$tmp/s.sock"
start_mirror t t.m tcp:127.0.0.1:0
port=$("$KVFS" status --json "$tmp/t" | sed -n 's/.*"listen_port": \([0-9]*\).*/\1/p')
mount_volume "mirror=shm:$tmp/s.sock,mirror=tcp:127.0.0.1:$port"
live='[ "$("$KVFS" status "$tmp/m" | grep -c "live over")" -eq 2 ]'
wait_for "$live" 20
wait_for '"$KVFS" status "$tmp/m" | grep -q "live over tcp.*, MTU [0-9]*, "' 5
wait_for '"$KVFS" status "$tmp/t" | grep -q "over tcp, . lanes, MTU [0-9]*, "' 5
! "$KVFS" status "$tmp/m" | grep -q "live over shm.*MTU" || fail "shared memory has an MTU"
same()
{
	for side in s.m t.m; do
		wait_for "diff -r '$tmp/m' '$tmp/$side' >/dev/null 2>&1" 5
	done
}
mkdir "$tmp/m/d"
for k in $(seq 100); do
	echo "$k" >"$tmp/m/d/$k"
done
same
echo new >"$tmp/m/d/1"
wait_for "[ \"\$(cat '$tmp/s.m/d/1')\" = new ]" 5
if (echo x >"$tmp/s.m/x") 2>/dev/null; then
	fail "the view takes writes"
fi
kill_daemon s
echo without >"$tmp/m/d/w"
start_mirror s s.m "shm:$tmp/s.sock"
wait_for "$live" 20
same
"$KVFS" checkpoint "$tmp/m"
"$KVFS" checkpoint "$tmp/s"
"$KVFS" umount "$tmp/m"
"$KVFS" umount "$tmp/s"
"$KVFS" umount "$tmp/t"
