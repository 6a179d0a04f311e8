#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tuner's knobs over verbs, both ends in one guest: lanes, poll_us and batch are moved by
# `kvfs tune --set` while files are written. Each change shows, no write fails, no lane is lost,
# and both have the same state.
# shellcheck source=tests/vm/functions.sh
. "$(dirname "$0")/functions.sh"

command -v jq >/dev/null || skip "no jq"

status_of() # JQ-EXPRESSION
{
	on 1 "'$KVFS' status --json /mnt/kv" | jq -r "$1"
}
# JQ-CONDITION of the one mirror ($m) and the tuner's settings ($t)
is()
{
	[ true = "$(on 1 "'$KVFS' status --json /mnt/kv; '$KVFS' tune --json /mnt/kv" |
		jq -s ".[0].mirrors[0] as \$m | .[1].tuner.settings as \$t | $1")" ]
}
digest()
{
	on 1 "'$KVFS' status --json --digest $1" | jq -r .digest
}
written()
{
	on 1 'cat /root/written 2>/dev/null || echo 0'
}

rig_up 1 --memory 1536M
must 1 "'$MKFS' -q -s 32M /root/v && '$MKFS' -q -s 32M --join /root/v/key /root/m"
options=arena=64M,ack_timeout=18
must 1 "'$KVFS' mirror -o $options,ring=8M,listen=verbs:10.77.0.1:7000 /root/m"
must 1 "mkdir /mnt/kv; '$KVFS' mount \
	-o $options,lanes=2,lanes_open=10,mirror=verbs:10.77.0.1:7000 /root/v /mnt/kv"
wait_for 'is "\$m.state == \"live\" and \$m.transport == \"verbs\" and \$m.lanes == 10"' 120
must 1 "'$KVFS' tune --freeze /mnt/kv"

# until /root/stop is there, or one fails
on 1 'n=0; until [ -e /root/stop ]; do
	n=$((n + 1)); seq $n >/mnt/kv/$((n % 50)) || exit 1; echo $n >/root/written; done' &
writer=$!
wait_for '[ "$(written)" -gt 5 ]' 120
batch=16
for lanes in 10 1 4 2; do
	for poll_us in 0 50; do
		must 1 "'$KVFS' tune --set lanes=$lanes --set poll_us=$poll_us \
			--set batch=$batch /mnt/kv"
		wait_for 'is "\$m.lanes_active == $lanes and \$m.lanes_draining == 0 and
			\$t.lanes == $lanes and \$t.poll_us == $poll_us and
			\$t.batch == $batch"' 60
		# shellcheck disable=SC2034 # wait_for evaluates it
		before=$(written)
		wait_for '[ "$(written)" -gt "$((before + 3))" ]' 120
		batch=$((batch == 16 ? 64 : 16))
	done
done
must 1 'touch /root/stop'
wait "$writer" || fail "writing failed"
wait_for 'is "\$m.lag_records == 0 and \$m.applied_lsn == \$m.acked_lsn"' 60
is '$m.transport == "verbs" and $m.lanes == 10 and $m.lanes_down == 0 and $m.reconnects == 0' ||
	fail "it did not stay as it was: $(status_of .mirrors)"
[ "$(digest /mnt/kv)" = "$(digest /root/m)" ] || fail "the mirror's state is not the primary's"
must 1 "'$KVFS' umount /mnt/kv && '$KVFS' umount /root/m"
