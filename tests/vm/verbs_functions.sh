# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034,SC2154
# Sourced by the tests of a primary (guest 1, /mnt/kv) and a mirror (guest 2), both on persistent
# memory, joined by RDMA: starting them, writing files whose acknowledgements the host keeps,
# comparing states.
# shellcheck source=tests/vm/functions.sh
. "$(dirname "$0")/functions.sh"

command -v jq >/dev/null || skip "no jq"

status_of() # G WHERE JQ-EXPRESSION
{
	on "$1" "'$KVFS' status --json $2" | jq -r "$3"
}
live_over_verbs()
{
	[ true = "$(status_of 1 /mnt/kv '.lsn as $l | .mirrors[0] |
		.state == "live" and .transport == "verbs" and .applied_lsn == $l')" ]
}
digest()
{
	on "$1" "'$KVFS' status --json --digest $2" | jq -r .digest
}
# Beside other work guests stand still for longer than the default, 14, gives a lane. Empty: the
# default.
ack_timeout=,ack_timeout=18
start_mirror() # [,OPTIONS]
{
	must 2 "'$KVFS' mirror -o \
arena=128M,ring=16M$ack_timeout,listen=10.77.0.2:7000${1:-} /pmem0/v"
}
# Writes need $min_mirrors mirrors, or none.
mount_primary() # [,OPTIONS]
{
	on 1 "mkdir -p /mnt/kv; '$KVFS' mount -o \
arena=128M,min_mirrors=${min_mirrors:-0}$ack_timeout,\
mirror=10.77.0.2:7000${1:-} /pmem0/v /mnt/kv" \
		>"$tmp/mounted" 2>&1 || fail "no mount: $(cat "$tmp/mounted")"
}
# of the mirror, as the primary counts
figure() # NAME
{
	status_of 1 /mnt/kv ".mirrors[0].$1"
}
kill_daemon() # G
{
	must "$1" 'kill -9 $(pidof kvfs); while pidof kvfs >/dev/null; do sleep 0.1; done'
}
same_state()
{
	primary=$(digest 1 /mnt/kv)
	[ "${#primary}" -eq 32 ] || fail "no digest: $primary"
	[ "$primary" = "$(digest 2 /pmem0/v)" ] || fail "the mirror's state is not the primary's"
}

# Two guests with their volumes, the mirror's joined to the primary's.
two_volumes() # [OPTIONS of rig_up]
{
	rig_up 2 --nvdimm 256M "$@"
	must 1 "'$MKFS' -q -s 64M /pmem0/v"
	"$RIG" get 1 /pmem0/v/key "$tmp" && "$RIG" put 2 "$tmp/key" /root ||
		fail "the key did not get across"
	must 2 "'$MKFS' -q -s 64M --join /root/key /pmem0/v"
	: >"$tmp/acked"
}

# Files FROM to TO in /mnt/kv/a; the host lists what was acknowledged: a killed guest loses its
# lists.
write_files() # FROM TO
{
	on 1 "cd /mnt/kv/a; for n in \$(seq $1 $2); do
		{ echo \"value \$n\"; seq \$n; } >\$n && echo \$n; done" \
		>>"$tmp/acked" 2>"$tmp/write.err"
}
# The same behind the caller's back ($writer), once the first of them are there.
start_writing() # FROM TO
{
	start_had=$(wc -l <"$tmp/acked")
	write_files "$@" &
	writer=$!
	wait_for '[ "$(wc -l <"$tmp/acked")" -gt "$((start_had + 2))" ]' 200
}
check_acked() # [G]
{
	"$RIG" put "${1:-1}" "$tmp/acked" /root || fail "the list did not get across"
	must "${1:-1}" 'cd /mnt/kv/a && head -qn 1 $(cat /root/acked) >/tmp/got &&
		sed "s/^/value /" /root/acked | cmp - /tmp/got'
}
end_both()
{
	must 1 "'$KVFS' umount /mnt/kv"
	must 2 "'$KVFS' umount /pmem0/v"
	must 1 "'$FSCK' /pmem0/v"
	must 2 "'$FSCK' /pmem0/v"
}
