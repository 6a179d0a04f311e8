#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The mirror's interface has a smaller MTU than the primary's: both ends warn. And a way that lets
# small packets through and drops those of a full MTU, which may be what follows from it: lanes come
# up, small values get across, and a larger one ends each lane it is sent on. The link goes on over
# tcp, in time for the writer, and says so.
# shellcheck source=tests/vm/verbs_functions.sh
. "$(dirname "$0")/verbs_functions.sh"

live_over_tcp()
{
	[ true = "$(status_of 1 /mnt/kv '.lsn as $l | .mirrors[0] |
		.state == "live" and .transport == "tcp" and .applied_lsn == $l')" ]
}

two_volumes
must 2 'ip link set eth0 mtu 1000' # packets of 512 bytes
must 2 "'$KVFS' mirror -o arena=128M,ring=16M,ack_timeout=16,listen=10.77.0.2:7000 /pmem0/v"
must 1 "mkdir -p /mnt/kv; '$KVFS' mount -o \
arena=128M,timeout=60,lanes=2,lanes_open=4,ack_timeout=16,mirror=10.77.0.2:7000 /pmem0/v /mnt/kv"
wait_for live_over_verbs 120
differ='RDMA packets have up to %d bytes here and %d at the other end: .*ip link set DEV mtu N'
# shellcheck disable=SC2059 # a pattern of both
status_of 1 /mnt/kv '.mirrors[0].mtu_note' | grep -q "$(printf "$differ" 1024 512)" &&
	status_of 2 /pmem0/v '.mirror.mtu_note' | grep -q "$(printf "$differ" 512 1024)" ||
	fail "no word of MTUs: $(status_of 1 /mnt/kv .mirrors) $(status_of 2 /pmem0/v .mirror)"

# The length of a full packet has the bit of 1024 set, with an MTU of 1024 and the headers beside
# it. Dropped where it arrives: a drop on its way out is told to rxe, which tries without end.
must 2 'modprobe cls_u32; modprobe sch_ingress; modprobe act_gact; tc qdisc add dev eth0 clsact &&
	tc filter add dev eth0 ingress protocol ip u32 match ip protocol 17 0xff \
		match u16 0x0400 0x0400 at 2 action drop'
must 1 'echo small >/mnt/kv/small'
wait_for live_over_verbs 60 # a small value gets through

must 1 'dd if=/dev/urandom of=/mnt/kv/big bs=64k count=4 2>/dev/null'
wait_for live_over_tcp 120
status_of 1 /mnt/kv '.mirrors[0] | .transport_note, .ended_why' >"$tmp/note"
grep -q 'verbs failed (.*: uses tcp' "$tmp/note" && grep -q 'carry nothing either' "$tmp/note" ||
	fail "$(cat "$tmp/note")"
same_state
end_both

# where nothing but verbs is allowed, a limit of locked memory below the arena ends the start
must 1 "(ulimit -l 1024; setpriv --bounding-set -ipc_lock '$KVFS' mount -o \
arena=128M,mirror=verbs:10.77.0.2:7000 /pmem0/v /mnt/kv) >/tmp/out 2>&1; [ \$? -eq 1 ] &&
	[ \$(wc -l </tmp/out) -eq 1 ] && grep -q 'only 1.00 MiB may be locked' /tmp/out || {
		cat /tmp/out; false; }"
