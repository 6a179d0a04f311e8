#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvfs doctor on this machine: what it says of FUSE and io_uring is what a mount will find.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

status=0
"$KVFS" doctor >"$tmp/out" 2>"$tmp/err" || status=$?
[ "$status" -le 1 ] || fail "doctor gave $status: $(cat "$tmp/err")"
[ ! -s "$tmp/err" ] || fail "said on standard error: $(cat "$tmp/err")"
if (: <>/dev/fuse) 2>/dev/null; then
	grep -q '^ok  *fuse.device ' "$tmp/out" || fail "$(cat "$tmp/out")"
else
	grep -q '^fail  *fuse.device ' "$tmp/out" || fail "$(cat "$tmp/out")"
fi
if [ -d /sys/class/infiniband ] && [ -n "$(ls /sys/class/infiniband)" ]; then
	grep -Eq '^(ok|warn|fail)  *rdma.operations ' "$tmp/out" || fail "$(cat "$tmp/out")"
else
	grep -q '^n/a  *rdma.devices ' "$tmp/out" || fail "$(cat "$tmp/out")"
fi
for check in kernel.release limits.files io_uring memory.memlock memory.hugepages numa. pmem. \
	cpu.governor \
	cpu.idle cpu.irq clock.source clock.sync; do
	grep -q "^[a-z/]*  *$check" "$tmp/out" || fail "nothing about $check: $(cat "$tmp/out")"
done
