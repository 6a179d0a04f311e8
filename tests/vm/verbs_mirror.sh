#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A primary and a mirror in two guests, over RDMA, both logs on persistent memory. The mirror's daemon is killed, then its
# whole guest, then the primary's daemon, each while files are written. Nothing acknowledged is lost, and both
# have the same state afterwards.
# shellcheck source=tests/vm/functions.sh
. "$(dirname "$0")/functions.sh"

command -v jq >/dev/null || skip "no jq"

status_of() # G WHERE JQ-EXPRESSION
{
	on "$1" "'$KVFS' status --json $2" | jq -r "$3"
}
live_over_verbs()
{
	[ "$(status_of 1 /mnt/kv '.lsn as $l | .mirrors[0] | .state == "live" and .transport == "verbs" and .applied_lsn == $l')" = true ]
}
digest()
{
	on "$1" "'$KVFS' status --json --digest $2" | jq -r .digest
}
start_mirror()
{
	must 2 "'$KVFS' mirror -o arena=128M,ring=16M,ack_timeout=18,listen=10.77.0.2:7000 /pmem0/v"
}
mount_primary()
{
	must 1 "mkdir -p /mnt/kv; '$KVFS' mount -o arena=128M,min_mirrors=0,ack_timeout=18,mirror=10.77.0.2:7000 /pmem0/v /mnt/kv" \
		>"$tmp/mounted" 2>&1
}
same_state()
{
	primary=$(digest 1 /mnt/kv)
	[ "${#primary}" -eq 32 ] || fail "no digest: $primary"
	[ "$primary" = "$(digest 2 /pmem0/v)" ] || fail "the mirror's state is not the primary's"
}
# Files FROM to TO; each name that was acknowledged goes into a list on the primary's persistent memory.
write_files() # FROM TO
{
	vm_timeout=200 on 1 "for n in \$(seq $1 $2); do { echo \"value \$n\"; seq \$n; } >/mnt/kv/a/\$n 2>/dev/null && echo \$n >>/pmem0/acked; done"
}
check_acked()
{
	must 1 'cd /mnt/kv/a && head -qn 1 $(cat /pmem0/acked) >/tmp/got && sed "s/^/value /" /pmem0/acked | cmp - /tmp/got'
}

rig_up 2 --nvdimm 256M
must 1 "'$MKFS' -q -s 64M /pmem0/v"
"$RIG" get 1 /pmem0/v/key "$tmp" && "$RIG" put 2 "$tmp/key" /root || fail "the key did not get across"
must 2 "'$MKFS' -q -s 64M --join /root/key /pmem0/v"
start_mirror
mount_primary
grep -q 'transport auto: found RDMA device rxe0 .*uses verbs' "$tmp/mounted" || fail "no word of RDMA: $(cat "$tmp/mounted")"
wait_for live_over_verbs 60
must 1 'mkdir /mnt/kv/a; dd if=/dev/urandom of=/mnt/kv/big bs=1M count=4 2>/dev/null'
write_files 1 30
wait_for live_over_verbs 60
same_state
[ "$(status_of 1 /mnt/kv '.memory.mr_hits > 0 and .memory.mr_misses == 0')" = true ] ||
	fail "values were copied, not sent from where they lie: $(status_of 1 /mnt/kv .memory)"

write_files 31 60 &
on 2 'kill -9 $(pidof kvfs)'
wait $!
start_mirror
wait_for live_over_verbs 120
same_state

write_files 61 90 &
"$RIG" kill 2
wait $!
"$RIG" start 2 || fail "guest 2 does not start again"
start_mirror
wait_for live_over_verbs 120
same_state

write_files 91 120 &
on 1 'kill -9 $(pidof kvfs)'
wait $! || :
mount_primary
wait_for live_over_verbs 120
check_acked
same_state
must 1 "'$KVFS' umount /mnt/kv"
must 2 "'$KVFS' umount /pmem0/v"
must 1 "'$FSCK' /pmem0/v"
must 2 "'$FSCK' /pmem0/v"
