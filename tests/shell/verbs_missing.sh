#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Without an RDMA device: an address that leaves the choice says in one line what was found and what
# is used; one that insists is an error with a remedy, at both ends; bad options of RDMA are
# refused.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

[ -z "$(ls /sys/class/infiniband 2>/dev/null)" ] || skip "this machine has an RDMA device"
make_volume v
make_volume s --join "$tmp/v/key"
start_mirror s '' 127.0.0.1:0
grep -q 'listening on 127.0.0.1:0: transport auto: found no RDMA device: takes tcp$' "$tmp/err" ||
	fail "the mirror does not say it: $(cat "$tmp/err")"
port=$("$KVFS" status --json "$tmp/s" | sed -n 's/.*"listen_port": \([0-9]*\).*/\1/p')
mount_volume "mirror=127.0.0.1:$port"
grep -q "mirror 127.0.0.1:$port: transport auto: found no RDMA device: uses tcp\$" "$tmp/err" ||
	fail "the mount does not say it: $(cat "$tmp/err")"
wait_for '"$KVFS" status "$tmp/m" | grep -q "live over tcp"' 10
"$KVFS" umount "$tmp/m"

expect 1 "$KVFS" mount -o "arena=64M,mirror=verbs:127.0.0.1:$port" "$tmp/v" "$tmp/m"
grep -q "verbs:127.0.0.1:$port: found no RDMA device; load a driver" "$tmp/err" ||
	fail "no remedy: $(cat "$tmp/err")"
"$KVFS" umount "$tmp/s"
expect 1 "$KVFS" mirror -o arena=64M,listen=127.0.0.1:0,transport=verbs "$tmp/s"
grep -q "found no RDMA device; load a driver" "$tmp/err" || fail "no remedy: $(cat "$tmp/err")"
for bad in ack_timeout=0 ack_timeout=32 rdma_device=: rdma_device=a:0 rdma_device=a:1:2:3; do
	expect 2 "$KVFS" mirror -o "arena=64M,listen=127.0.0.1:0,$bad" "$tmp/s"
	grep -q "option ${bad%%=*} wants" "$tmp/err" || fail "$bad: $(cat "$tmp/err")"
done
