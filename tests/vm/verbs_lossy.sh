#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A primary and a mirror in two guests, over RDMA, while the network loses one packet in twenty
# either way and lets others overtake: the lanes in use go 1, 10, 40, 10 under load, in one session,
# and the mirror's load goes on coming by datagrams. Then the mirror starts anew, and all lanes are
# made under loss. Both have the same state each time.
# shellcheck source=tests/vm/verbs_functions.sh
. "$(dirname "$0")/verbs_functions.sh"

lanes_are() # ACTIVE
{
	[ true = "$(figure "lanes_active == $1 and .mirrors[0].lanes_draining == 0 and
		.mirrors[0].lanes == 40")" ] && [ "$(status_of 2 /pmem0/v .mirror.lanes)" = 40 ]
}
loads_heard()
{
	figure 'load.received // 0'
}
# What rxe has sent again, as the primary tells Prometheus
port_retries()
{
	on 1 "curl -s http://\$('$KVFS' status --json /mnt/kv | jq -r .metrics)/metrics" |
		sed -n 's/^kvfs_rdma_port_retries_total{device="rxe0",port="1"} //p'
}

two_volumes
start_mirror
mount_primary ,lanes=1,lanes_open=40
wait_for live_over_verbs 120
must 1 "mkdir /mnt/kv/a; '$KVFS' tune --freeze /mnt/kv"
bad='loss 5% delay 2ms reorder 75%'
retries=$(port_retries)
[ -n "$retries" ] || fail "no figure for the port's retries"
# shellcheck disable=SC2086 # words
"$RIG" net 1 $bad && "$RIG" net 2 $bad || fail "no loss"
written=0
for lanes in 1 10 40 10; do
	start_writing $((written + 1)) $((written + 100))
	must 1 "'$KVFS' tune --set lanes=$lanes /mnt/kv"
	(wait_for "lanes_are $lanes" 120) ||
		fail "not $lanes of 40 lanes: $(status_of 1 /mnt/kv .mirrors)"
	wait "$writer" || fail "writing failed: $(cat "$tmp/write.err")"
	written=$((written + 100))
	wait_for live_over_verbs 200
	lanes_are "$lanes" || fail "not $lanes lanes: $(status_of 1 /mnt/kv .mirrors)"
	same_state
	# shellcheck disable=SC2034 # wait_for evaluates it
	loads=$(loads_heard)
	wait_for '[ "$(loads_heard)" -ge "$((loads + 5))" ]' 60
done
[ "$(figure reconnects)" = 0 ] ||
	fail "it was not one session: $(status_of 1 /mnt/kv .mirrors)"
[ "$(port_retries)" -gt "$((retries + 10))" ] ||
	fail "of what was lost the port counts $retries, then $(port_retries)"

start_writing $((written + 1)) $((written + 50))
must 2 "'$KVFS' umount /pmem0/v"
start_mirror
wait "$writer" || fail "writing failed: $(cat "$tmp/write.err")"
wait_for live_over_verbs 200
wait_for 'lanes_are 10' 60
same_state
must 1 'tc -s qdisc show dev eth0' >"$tmp/qdisc"
dropped=$(sed -n 's/.*dropped \([0-9]*\),.*/\1/p' "$tmp/qdisc" | head -n 1)
[ "$dropped" -gt 0 ] || fail "nothing was lost: $(cat "$tmp/qdisc")"
"$RIG" net 2 heal && "$RIG" net 1 heal || fail "loss does not end"
[ "$(wc -l <"$tmp/acked")" -eq "$((written + 50))" ] || fail "not all was written"
check_acked
end_both
