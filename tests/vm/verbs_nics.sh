#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two guests with two networks and jumbo frames. The control connection runs over the first,
# rdma_device= names the device of the second: what is written goes by that, and in packets of the
# large size. A device that is not there is an error.
# shellcheck source=tests/vm/verbs_functions.sh
. "$(dirname "$0")/verbs_functions.sh"

# Packets that a device of guest 1 has sent.
sent() # DEVICE
{
	on 1 "cat /sys/class/infiniband/$1/ports/1/hw_counters/sent_pkts"
}

two_volumes --nics 2 --mtu 9000
for guest in 1 2; do
	must "$guest" 'ibv_devinfo -d rxe1' >"$tmp/out"
	grep -Eq 'active_mtu:[[:space:]]*4096' "$tmp/out" || fail "guest $guest: $(cat "$tmp/out")"
done
start_mirror ,rdma_device=rxe1
first=$(sent rxe0)
mount_primary ,lanes=2,lanes_open=4,rdma_device=rxe1
wait_for live_over_verbs 120
must 1 'tc qdisc add dev eth1 clsact && tc filter add dev eth1 egress protocol ip \
	u32 match u16 0x1000 0xf000 at 2 action pass'
must 1 'dd if=/dev/urandom of=/mnt/kv/big bs=1M count=8 2>/dev/null'
wait_for live_over_verbs 120
same_state
[ "$(sent rxe0)" = "$first" ] || fail "rxe0 sent something: $first packets, $(sent rxe0)"
# 8 MiB are 2048 packets of 4096 bytes and their heads
must 1 'tc -s filter show dev eth1 egress' >"$tmp/out"
large=$(sed -n 's/.*Sent [0-9]* bytes \([0-9]*\) pkt.*/\1/p' "$tmp/out")
[ "${large:-0}" -ge 2048 ] || fail "of 8 MiB not all in large packets: $(cat "$tmp/out")"
must 1 "'$KVFS' umount /mnt/kv"
! on 1 "'$KVFS' mount -o arena=128M,rdma_device=rxe7,mirror=verbs:10.77.0.2:7000 \
	/pmem0/v /mnt/kv" >"$tmp/out" 2>&1 || fail "mounted over a device that is not there"
grep -q 'no RDMA device rxe7' "$tmp/out" || fail "another error: $(cat "$tmp/out")"
must 2 "'$KVFS' umount /pmem0/v"
