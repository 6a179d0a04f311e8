#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvfs top shows what happened in an interval, as text and as JSON, also into a pipe and without the
# endpoint.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"
command -v jq >/dev/null || skip "jq is missing"

make_volume v
make_volume s --join "$tmp/v/key"
start_mirror s '' "shm:$tmp/s.sock" metrics=off
mount_volume "mirror=shm:$tmp/s.sock,metrics=off"
(
	n=0
	while [ ! -e "$tmp/stop" ]; do
		n=$((n + 1))
		echo "$n" >"$tmp/m/k$((n % 50))"
	done
) &
load=$!
# shown WHERE JQ-CONDITION: in one interval or another, as the load may stand still for one
shown()
{
	# shellcheck disable=SC2034 # wait_for evaluates them
	shown_where=$1 shown_want=$2
	(wait_for 'expect 0 "$KVFS" top --json --once --interval 0.5 "$tmp/$shown_where"
		jq -e "$shown_want" "$tmp/out" >/dev/null' 10) || fail "$(cat "$tmp/out")"
}
shown m '(.operations | map(select(.op == "write")) | .[0] |
		.per_second > 0 and .p99_us >= .p50_us and .p50_us > 0) and
	.role == "primary" and .bytes_per_second.write > 0 and
	.commit_wait.per_second > 0 and
	(.mirrors | length == 1 and .[0].state == "live" and .[0].latency.p50_us > 0) and
	(.stages | map(.stage) | index("log") != null) and .log.capacity_bytes > 0 and
	(.classes | length > 0) and .tuner.settings.lanes > 0'
shown s '.role == "mirror" and .replica.connected == 1 and .replica.records_per_second > 0'
expect 0 "$KVFS" top --once --interval 0.2 "$tmp/v"
in_out "MIRROR shm:$tmp/s.sock  live"
in_out "write "
grep -q "$(printf '\033')" "$tmp/out" && fail "escape codes in a file"
# One object after the other until the reader goes.
"$KVFS" top --json --interval 0.1 "$tmp/m" | head -n 3 >"$tmp/lines"
[ "$(jq -s length "$tmp/lines")" -eq 3 ] || fail "$(cat "$tmp/lines")"
touch "$tmp/stop"
wait "$load"

expect 2 "$KVFS" top
one_line "usage: kvfs top"
expect 2 "$KVFS" top --interval 0 "$tmp/m"
one_line "from 0.1 to 3600"
expect 1 "$KVFS" top --once "$tmp"
[ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "$(cat "$tmp/err")"
