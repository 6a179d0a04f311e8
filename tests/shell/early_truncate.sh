#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# With early_truncate=on a key that open(2) empties is answered when the own log has it: not held up
# by a mirror that stands still, there after kill -9, and on the mirror as well. ftruncate(2) waits
# for the mirror, and so does everything by default.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

mirror=shm:$tmp/ring
make_volume v
make_volume s --join "$tmp/v/key"
start_mirror s '' "$mirror"
mount_volume "mirror=$mirror,timeout=60,early_truncate=on"
for key in a b c d; do
	echo old >"$tmp/m/$key" || fail "write of $key"
done
stopped=$(pid_of s)
# kill(2) is back before all of its threads stand still.
stop_mirror()
{
	kill -STOP "$stopped"
	wait_for '! grep -L "^State:.T" /proc/$stopped/task/*/status | grep -q .' 10
}
# One more change is in the own log.
logged()
{
	[ "$(status_of m .lsn)" -gt "$before" ]
}

stop_mirror
: >"$tmp/m/a" &
$await_end $! 10 || fail "open with O_TRUNC waits for the mirror"
before=$(status_of m .lsn)
truncate -s 0 "$tmp/m/b" &
wait_for logged 10
! $await_end $! 1 || fail "ftruncate does not wait for the mirror"
kill_daemon m
kill -CONT "$stopped"
wait
mount_volume "mirror=$mirror,timeout=60,early_truncate=on"
[ -f "$tmp/m/a" ] && [ ! -s "$tmp/m/a" ] || fail "an answered truncation was lost"
wait_for "in_sync m 1" 30
same_state m s

: >"$tmp/m/c" # nothing follows: it is sent all the same
wait_for "in_sync m 1" 30
same_state m s
unmount m

mount_volume "mirror=$mirror,timeout=60"
wait_for "in_sync m 1" 30
stop_mirror
before=$(status_of m .lsn)
: >"$tmp/m/d" &
wait_for logged 10
! $await_end $! 1 || fail "by default open with O_TRUNC does not wait for the mirror"
kill -CONT "$stopped"
$await_end $! 30 || fail "the mirror goes on, the truncation does not"
[ ! -s "$tmp/m/d" ] || fail "the truncation did not take place"
unmount m
