#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The metrics endpoint: on by default, on the next free port for a second node, off and elsewhere
# when asked, one line for what can't be had; what it says is clean to promtool and agrees with kvfs
# status.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"
command -v promtool >/dev/null || skip "promtool (package prometheus) is missing"

address() { "$KVFS" status --json "$1" | sed -n 's/^  "metrics": "\(.*\)",$/\1/p'; }
# fetch ADDRESS PATH: the answer's head and body, by what every shell test has
fetch()
{
	python3 -c '
import sys, urllib.request
try:
	r = urllib.request.urlopen("http://%s%s" % (sys.argv[1], sys.argv[2]), timeout=10)
except urllib.error.HTTPError as e:
	r = e
print(r.status, r.headers["Content-Type"])
sys.stdout.write(r.read().decode())' "$1" "$2"
}
value() { awk -v name="$1 " 'index($0, name) == 1 { print $NF }' "$tmp/metrics"; }

make_volume v
make_volume s --join "$tmp/v/key"
start_mirror s s.m "shm:$tmp/s.sock"
mount_volume "mirror=shm:$tmp/s.sock"
at=$(address "$tmp/m")
second=$(address "$tmp/s")
[ -n "$at" ] && [ -n "$second" ] && [ "$at" != "$second" ] ||
	fail "two nodes at '$at' and '$second'"
case "$at$second" in
127.0.0.1:*127.0.0.1:*) ;;
*) fail "not on loopback: $at $second" ;;
esac

# the port that the default would take next is asked for by listen=: that comes first
next=$((${at##*:} > ${second##*:} ? ${at##*:} : ${second##*:}))
make_volume t --join "$tmp/v/key"
start_mirror t '' "tcp:127.0.0.1:$((next + 1))"
unmount t

for k in $(seq 50); do
	echo "$k" >"$tmp/m/$k"
done
cat "$tmp"/s.m/* >/dev/null
status_lsn=$("$KVFS" status --json "$tmp/m" | sed -n 's/^  "lsn": \([0-9]*\),*$/\1/p')
# what is answered is counted a moment later
read_metrics()
{
	fetch "$at" /metrics >"$tmp/reply"
	sed 1d "$tmp/reply" >"$tmp/metrics"
}
written=$(seq 50 | wc -c)
wait_for 'read_metrics
	[ "$(value "kvfs_operation_bytes_total{op=\"write\"}")" -ge "$written" ]' 10
[ "$(head -1 "$tmp/reply")" = "200 text/plain; version=0.0.4; charset=utf-8" ] ||
	fail "$(head -1 "$tmp/reply")"
promtool check metrics <"$tmp/metrics" >"$tmp/out" 2>&1 ||
	fail "promtool, primary: $(cat "$tmp/out")"
[ ! -s "$tmp/out" ] || fail "promtool, primary: $(cat "$tmp/out")"
[ "$(value 'kvfs_operations_total{op="write"}')" -ge 50 ] ||
	fail "writes: $(grep operations_total "$tmp/metrics")"
[ "$(value 'kvfs_operation_bytes_total{op="write"}')" -eq "$written" ] ||
	fail "bytes written"
[ "$(value "rdma_write_latency_count{mirror=\"shm:$tmp/s.sock\",transport=\"shm\"}")" -ge 100 ] ||
	fail "latency"
[ "$(value "qp_retry_count{mirror=\"shm:$tmp/s.sock\"}")" -ge 0 ] || fail "retries"
[ "$(value mr_cache_hit_rate)" != "" ] || fail "hit rate"
[ "$(value kvfs_degraded)" -eq 0 ] || fail "degraded"
[ "$(value kvfs_lsn)" -eq "$status_lsn" ] || fail "LSN $(value kvfs_lsn), in status $status_lsn"
# What the classes hold is what the slab holds.
classes=$(sed -n 's/^kvfs_slab_used_bytes{.*} //p' "$tmp/metrics" |
	awk '{ n += $1 } END { print n }')
[ "$classes" -eq "$(value kvfs_slab_used_slot_bytes)" ] || fail "classes: $classes"

fetch "$second" /metrics | sed 1d >"$tmp/metrics"
promtool check metrics <"$tmp/metrics" >"$tmp/out" 2>&1 ||
	fail "promtool, mirror: $(cat "$tmp/out")"
[ "$(value 'kvfs_stage_duration_seconds_count{stage="apply"}')" -ge 1 ] || fail "apply"
[ "$(value 'kvfs_stage_duration_seconds_count{stage="mirror"}')" -ge 1 ] || fail "mirror"
fetch "$second" /nothing >"$tmp/reply"
grep -q '^404 ' "$tmp/reply" || fail "another path is served"
"$KVFS" umount "$tmp/m"
"$KVFS" umount "$tmp/s"

# Off, elsewhere, and what can't be had.
mount_volume metrics=off,min_mirrors=0
"$KVFS" status "$tmp/m" | grep -q '^metrics     off$' || fail "not off"
"$KVFS" umount "$tmp/m"
mount_volume metrics=127.0.0.1:0,min_mirrors=0
at=$(address "$tmp/m")
fetch "$at" /metrics >"$tmp/reply"
grep -q '^200 ' "$tmp/reply" || fail "nothing at $at"
make_volume w
mkdir "$tmp/n"
expect 1 "$KVFS" mount -o "arena=64M,metrics=$at" "$tmp/w" "$tmp/n"
one_line "cannot listen for metrics at"
expect 1 "$KVFS" mount -o "arena=64M,metrics=203.0.113.1:7480" "$tmp/w" "$tmp/n"
one_line "give another metrics="
expect 2 "$KVFS" mount -o "arena=64M,metrics=nowhere" "$tmp/w" "$tmp/n"
one_line "option metrics=nowhere: the port is missing"
expect 2 "$KVFS" mount -o "arena=64M,metrics=shm:/x" "$tmp/w" "$tmp/n"
one_line "option metrics is HOST:PORT or off"
! grep -q " $tmp/n " /proc/self/mountinfo || fail "a mount is left"
"$KVFS" umount "$tmp/m"
