#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A command that is stopped while it waits for its answer, as by Ctrl-Z, and goes on later, gets it.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

make_volume v
mount_volume
daemon=$(pid_of m)
kill -STOP "$daemon"
"$KVFS" status "$tmp/v" >"$tmp/out" 2>"$tmp/err" &
client=$!
wait_for "ls -l /proc/$client/fd | grep -q socket && grep -q '^State:.S' /proc/$client/status" 20
kill -STOP "$client"
wait_for "grep -q '^State:.T' /proc/$client/status" 20
kill -CONT "$client"
wait_for "! grep -qs '^State:.T' /proc/$client/status" 20
kill -CONT "$daemon"
wait "$client" || fail "kvfs status gave $?: $(cat "$tmp/err")"
in_out "pid $daemon,"
unmount m
