#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Both logs on persistent memory. The RDMA device of the primary is taken away under load: tcp takes
# over, and verbs again when the device returns; each time both have the same state. Lanes of a link
# that loses packets stay up. A device goes as well where no lane is open in it: the link has fallen
# back to tcp, or nobody calls. In one guest that has none, auto says what it found and an address
# that insists is an error with a remedy.
# shellcheck source=tests/vm/functions.sh
. "$(dirname "$0")/functions.sh"

command -v jq >/dev/null || skip "no jq"

over() # TRANSPORT
{
	[ "$(on 1 "'$KVFS' status --json /mnt/kv" | jq -r '.lsn as $l | .mirrors[0] |
		if .state == "live" and .applied_lsn == $l then .transport
		else .state end')" = "$1" ]
}
digest()
{
	on "$1" "'$KVFS' status --json --digest $2" | jq -r .digest
}
same_state()
{
	primary=$(digest 1 /mnt/kv)
	[ "${#primary}" -eq 32 ] || fail "no digest: $primary"
	[ "$primary" = "$(digest 2 /pmem0/v)" ] || fail "the mirror's state is not the primary's"
}
write_some()
{
	must 1 "for n in \$(seq 20); do echo $1 \$n >/mnt/kv/$1.\$n || exit 1; done"
}

rig_up 2 --nvdimm 128M
must 1 "'$MKFS' -s 32M /pmem0/v" >"$tmp/out"
in_out "real persistent memory (DAX)"
"$RIG" get 1 /pmem0/v/key "$tmp" && "$RIG" put 2 "$tmp/key" /root ||
	fail "the key did not get across"
must 2 "'$MKFS' -q -s 32M --join /root/key /pmem0/v"
options=arena=64M,ack_timeout=18
lanes=lanes=2,lanes_open=4
must 2 "'$KVFS' mirror -o $options,ring=8M,listen=10.77.0.2:7000 /pmem0/v"
must 1 "mkdir /mnt/kv; '$KVFS' mount -o $options,$lanes,mirror=10.77.0.2:7000 /pmem0/v /mnt/kv"
wait_for 'over verbs' 60
write_some before

"$RIG" net 1 loss 5% || fail "no loss"
write_some lossy
wait_for 'over verbs' 60
"$RIG" net 1 loss 0% || fail "loss does not end"

# the kernel waits in it until the daemon has let go of the device
vm_timeout=60 must 1 'rdma link del rxe0'
wait_for 'over tcp' 60
write_some without
wait_for 'over tcp' 60
same_state
must 1 'rdma link add rxe0 type rxe netdev eth0'
wait_for 'over verbs' 120
write_some again
wait_for 'over verbs' 60
same_state

# of the other side: then of the primary's without a lane in it
vm_timeout=60 must 2 'rdma link del rxe0'
wait_for 'over tcp' 60
vm_timeout=60 must 1 'rdma link del rxe0'
write_some neither
wait_for 'over tcp' 60
same_state
must 2 'rdma link add rxe0 type rxe netdev eth0'
must 1 'rdma link add rxe0 type rxe netdev eth0'
wait_for 'over verbs' 200
write_some both
wait_for 'over verbs' 60
same_state
must 1 "'$KVFS' umount /mnt/kv"
# a mirror that nobody calls
vm_timeout=60 must 2 'rdma link del rxe0'
must 2 'rdma link add rxe0 type rxe netdev eth0'

must 1 'rdma link del rxe0'
must 1 "'$KVFS' mount -o $options,$lanes,mirror=10.77.0.2:7000 /pmem0/v /mnt/kv" >"$tmp/out" 2>&1
grep -q 'transport auto: found no RDMA device: uses tcp' "$tmp/out" ||
	fail "no word of the choice: $(cat "$tmp/out")"
must 1 "'$KVFS' umount /mnt/kv"
! on 1 "'$KVFS' mount -o $options,mirror=verbs:10.77.0.2:7000 /pmem0/v /mnt/kv" \
	>"$tmp/out" 2>&1 || fail "mounted without a device"
grep -q 'found no RDMA device; load a driver' "$tmp/out" || fail "no remedy: $(cat "$tmp/out")"
must 2 "'$KVFS' umount /pmem0/v"
