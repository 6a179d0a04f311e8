#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A mirror is killed, the primary goes on with the other one, then alone; mirrors that come back are
# caught up from the log, without a snapshot, and are the same as the primary.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

arena=128M
port=$(free_port)
expect 0 "$MKFS" -q -s 64M "$tmp/p"
expect 0 "$MKFS" -q -s 64M --join "$tmp/p/key" "$tmp/m1"
expect 0 "$MKFS" -q -s 64M --join "$tmp/p/key" "$tmp/m2"
start_mirror m1 '' "tcp:127.0.0.1:$port"
start_mirror m2 '' "shm:$tmp/ring"
mount_primary p mnt "min_mirrors=1,timeout=20,mirror=tcp:127.0.0.1:$port,mirror=shm:$tmp/ring"
put()
{
	for n in $(seq "$1" "$2"); do
		echo "value of key $n" >"$tmp/mnt/key$n"
	done
}
not_live()
{
	[ "$(status_of mnt ".mirrors[$1].state")" != live ]
}

put 1 50
wait_for "in_sync mnt 2" 30
for i in 1 2; do
	kill_pids "$(pid_of m$i)"
	put $((i * 1000)) $((i * 1000 + 300)) || fail "a write failed with one mirror left"
	rm "$tmp/mnt/key$i"
	wait_for "not_live $((i - 1))" 30
	[ "$(status_of mnt ".mirrors[$((i - 1))].lag_records")" -gt 0 ] ||
		fail "no lag is shown for mirror $i"
	if [ $i -eq 1 ]; then
		start_mirror m1 '' "tcp:127.0.0.1:$port"
	else
		start_mirror m2 '' "shm:$tmp/ring"
	fi
	wait_for "in_sync mnt 2" 60
	[ "$(status_of mnt ".mirrors[$((i - 1))].from_log_records")" -ge 300 ] ||
		fail "mirror $i was not caught up from the log: $(status_of mnt .mirrors)"
	[ "$(status_of mnt ".mirrors[$((i - 1))].resync_total_bytes")" -eq 0 ] ||
		fail "mirror $i was resynced"
	same_state mnt m1 m2
done

# alone, visibly, where that is allowed
unmount mnt
mount_primary p mnt "min_mirrors=0,timeout=20,mirror=tcp:127.0.0.1:$port,mirror=shm:$tmp/ring"
wait_for "in_sync mnt 2" 30
kill_pids "$(pid_of m1)" "$(pid_of m2)"
put 5000 5300 || fail "a write failed alone with min_mirrors=0"
[ "$(status_of mnt .commit.in_sync)" -eq 0 ] || fail "status still counts the dead"
start_mirror m1 '' "tcp:127.0.0.1:$port"
start_mirror m2 '' "shm:$tmp/ring"
wait_for "in_sync mnt 2" 60
same_state mnt m1 m2
unmount mnt
unmount m1
unmount m2
for volume in p m1 m2; do
	expect 0 "$FSCK" "$tmp/$volume"
done
