#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A mount that waits for its mirrors ends on a signal, and with the command that started it: nothing
# is mounted behind the back of who gave up.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

make_volume v
make_volume s --join "$tmp/v/key"
mkdir "$tmp/m"
opt="arena=64M,connect_timeout=300,mirror=shm:$tmp/s.sock"

# ended PID: the process of that number is gone, or waits to be reaped
ended()
{
	! kill -0 "$1" 2>/dev/null || grep -q '^State:.Z' "/proc/$1/status"
}

# in the foreground, by a signal
"$KVFS" mount -f -o "$opt" "$tmp/v" "$tmp/m" 2>"$tmp/err" &
pid=$!
wait_for "grep -qs kv-link /proc/$pid/task/*/comm" 30
kill -TERM "$pid"
wait_for "ended $pid" 20
status=0
wait "$pid" || status=$?
[ "$status" -eq 1 ] || fail "it gave $status"
one_line 'interrupted while it waited: mirror shm:'

# in the background: who waits for it is killed
"$KVFS" mount -o "$opt" "$tmp/v" "$tmp/m" 2>"$tmp/err" &
pid=$!
wait_for "pgrep -P $pid >/dev/null" 30
daemon=$(pgrep -P "$pid")
wait_for "grep -qs kv-link /proc/$daemon/task/*/comm" 30
kill -9 "$pid"
wait "$pid" || :
wait_for "ended $daemon" 20
start_mirror s '' "shm:$tmp/s.sock"
! grep -qF " $tmp/m " /proc/self/mountinfo || fail "it was mounted all the same"
mount_volume "mirror=shm:$tmp/s.sock" # the volume is free, and good
expect 0 "$KVFS" umount "$tmp/m"
