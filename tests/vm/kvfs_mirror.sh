#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A primary and a mirror in two guests, both on persistent memory: the mirror's guest is killed,
# files are written meanwhile, it starts again, is caught up, and then has the same state.
# shellcheck source=tests/vm/functions.sh
. "$(dirname "$0")/functions.sh"

command -v jq >/dev/null || skip "no jq"

status_of() # G WHERE JQ-EXPRESSION
{
	on "$1" "'$KVFS' status --json $2" | jq -r "$3"
}
in_sync()
{
	[ true = "$(status_of 1 /mnt/kv \
		'.lsn as $l | .mirrors[0] | .state == "live" and .applied_lsn == $l')" ]
}
digest()
{
	on "$1" "'$KVFS' status --json --digest $2" | jq -r .digest
}
start_mirror()
{
	must 2 "'$KVFS' mirror -o arena=128M,listen=tcp:10.77.0.2:7000 /pmem0/v"
}
same_state()
{
	primary=$(digest 1 /mnt/kv)
	[ "${#primary}" -eq 32 ] || fail "no digest: $primary"
	[ "$primary" = "$(digest 2 /pmem0/v)" ] || fail "the mirror's state is not the primary's"
}

rig_up 2 --nvdimm 256M
must 1 "'$MKFS' -s 64M /pmem0/v" >"$tmp/out"
in_out "real persistent memory (DAX)"
"$RIG" get 1 /pmem0/v/key "$tmp" && "$RIG" put 2 "$tmp/key" /root ||
	fail "the key did not get across"
must 2 "'$MKFS' -q -s 64M --join /root/key /pmem0/v"
start_mirror
options=arena=128M,min_mirrors=0,mirror=tcp:10.77.0.2:7000
must 1 "mkdir -p /mnt/kv && '$KVFS' mount -o $options /pmem0/v /mnt/kv"
must 1 'cd /mnt/kv && mkdir a && for n in $(seq 100); do echo "value $n" >a/$n; done &&
	seq 2000 >big'
wait_for in_sync 300
same_state

"$RIG" kill 2
must 1 'cd /mnt/kv && rm a/7 && mv a/8 a/eight &&
	for n in $(seq 101 200); do echo "value $n" >a/$n; done'
"$RIG" start 2 || fail "guest 2 does not start again"
start_mirror
wait_for in_sync 300
same_state
[ "$(on 1 'ls /mnt/kv/a | wc -l; cat /mnt/kv/a/150')" = "199
value 150" ] || fail "the primary's files are wrong"
must 1 "'$KVFS' umount /mnt/kv"
must 2 "'$KVFS' umount /pmem0/v"
must 1 "'$FSCK' /pmem0/v"
must 2 "'$FSCK' /pmem0/v"
