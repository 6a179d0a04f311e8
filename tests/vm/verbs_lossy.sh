#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A primary and a mirror in two guests, over RDMA, while the network loses one packet in twenty
# either way: lanes go 1, 10, 40, 10, each time under load, and the mirror's load goes on coming by
# datagrams. Then the network is cut for 5 s. Both have the same state each time.
# shellcheck source=tests/vm/verbs_functions.sh
. "$(dirname "$0")/verbs_functions.sh"

lanes_are() # N
{
	[ "$(status_of 1 /mnt/kv '.mirrors[0].lanes')" = "$1" ] &&
		[ "$(status_of 2 /pmem0/v .mirror.lanes)" = "$1" ]
}

loads_heard()
{
	status_of 1 /mnt/kv '.mirrors[0].load.received // 0'
}

two_volumes
start_mirror ,lanes=1
mount_primary ,lanes=40
wait_for live_over_verbs 120
must 1 'mkdir /mnt/kv/a'
"$RIG" net 1 loss 5% && "$RIG" net 2 loss 5% || fail "no loss"
written=0
for lanes in 1 10 40 10; do
	# The smaller of both sides' lanes= counts: the mirror starts again with other ones.
	if [ "$written" -gt 0 ]; then
		start_writing $((written + 1)) $((written + 50))
		must 2 "'$KVFS' umount /pmem0/v"
		start_mirror ",lanes=$lanes"
		wait "$writer" || fail "writing failed: $(cat "$tmp/write.err")"
		written=$((written + 50))
		wait_for live_over_verbs 200
	fi
	write_files $((written + 1)) $((written + 50)) ||
		fail "writing failed: $(cat "$tmp/write.err")"
	written=$((written + 50))
	wait_for live_over_verbs 200
	lanes_are "$lanes" || fail "not $lanes lanes: $(status_of 1 /mnt/kv .mirrors)"
	same_state
	# shellcheck disable=SC2034 # wait_for evaluates it
	loads=$(loads_heard)
	wait_for '[ "$(loads_heard)" -ge "$((loads + 5))" ]' 60
done
must 1 'tc -s qdisc show dev eth0' >"$tmp/qdisc"
dropped=$(sed -n 's/.*dropped \([0-9]*\),.*/\1/p' "$tmp/qdisc" | head -n 1)
[ "$dropped" -gt 0 ] || fail "nothing was lost: $(cat "$tmp/qdisc")"
"$RIG" net 2 heal && "$RIG" net 1 heal || fail "loss does not end"

start_writing $((written + 1)) $((written + 50))
"$RIG" net 1 cut
sleep 5
"$RIG" net 1 heal
wait "$writer" || fail "writing failed: $(cat "$tmp/write.err")"
wait_for live_over_verbs 200
same_state
[ "$(wc -l <"$tmp/acked")" -eq "$((written + 50))" ] || fail "not all was written"
check_acked
end_both
