#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A primary and a mirror in two guests, over RDMA, with the default ack_timeout=, while a few keys
# are overwritten. One lane loses all of its packets: it dies and is made anew, and the session
# lives. Then the network is cut for 5 s: the session ends, and the next one catches up. Each key
# has the last value that was acknowledged, or a later one, and both have the same state.
# shellcheck source=tests/vm/verbs_functions.sh
. "$(dirname "$0")/verbs_functions.sh"

# Numbers, each to one of ten keys, until /root/stop is there; the host lists the acknowledged ones.
overwrite()
{
	must 1 'rm -f /root/stop'
	vm_timeout=1200 on 1 'cd /mnt/kv/a; n=$(cat /root/n 2>/dev/null || echo 0)
		until [ -e /root/stop ]; do
			n=$((n + 1)); echo $n >$((n % 10)) || exit 1; echo $n
		done; echo $n >/root/n' \
		>>"$tmp/acked" 2>"$tmp/write.err" &
	writer=$!
	goes_on
}
goes_on()
{
	# shellcheck disable=SC2034 # wait_for evaluates it
	had=$(wc -l <"$tmp/acked")
	wait_for '[ "$(wc -l <"$tmp/acked")" -gt "$((had + 20))" ]' 200
}
stop_and_compare()
{
	must 1 'touch /root/stop'
	wait "$writer" || fail "writing failed: $(cat "$tmp/write.err")"
	wait_for live_over_verbs 200
	same_state
	must 1 'cd /mnt/kv/a; for k in 0 1 2 3 4 5 6 7 8 9; do echo $k $(cat $k); done' \
		>"$tmp/values"
	awk 'NR == FNR { last[$1 % 10] = $1; next } $2 < last[$1] { print; bad = 1 }
		END { exit bad }' "$tmp/acked" "$tmp/values" >"$tmp/old" ||
		fail "keys with an older value than acknowledged: $(cat "$tmp/old")"
}
# The numbers of the lanes' queue pairs in guest 1: those of rdma_cm, which are reliable.
queue_pairs()
{
	on 1 'rdma resource show qp' | sed -n 's/.* lqpn \([0-9]*\) .* type RC state RTS .*/\1/p'
}
# What comes for this queue pair of guest 1 is lost: its number is 4 bytes behind UDP's head.
lose() # QUEUE-PAIR
{
	must 1 "tc qdisc replace dev eth0 clsact && tc filter add dev eth0 ingress protocol ip \
		u32 match ip protocol 17 0xff match u32 $(printf '0x%x' "$1") 0x00ffffff at 32 \
		action drop"
}

two_volumes
ack_timeout=
start_mirror
mount_primary ,lanes=4,lanes_open=4
wait_for live_over_verbs 120
must 1 "mkdir /mnt/kv/a; '$KVFS' tune --freeze /mnt/kv"
overwrite
# Beside other work the session may end meanwhile: then another lane.
for try in 1 2 3 4 5; do
	reconnects=$(figure reconnects)
	# shellcheck disable=SC2034 # wait_for evaluates it
	replaced=$(figure lanes_replaced)
	pair=$(queue_pairs | sed -n "$((try % 4 + 1))p")
	[ -n "$pair" ] || fail "no queue pairs: $(on 1 'rdma resource show qp')"
	lose "$pair"
	wait_for '[ "$(figure lanes_replaced)" -gt "$replaced" ] ||
		[ "$(figure reconnects)" -gt "$reconnects" ]' 60
	"$RIG" net 1 heal
	goes_on
	[ "$(figure reconnects)" -gt "$reconnects" ] || break
done
[ "$(figure reconnects)" = "$reconnects" ] || fail "each time the session ended"
must 1 'rdma resource show qp' >"$tmp/out"
! grep -q "lqpn $pair " "$tmp/out" || fail "the dead queue pair $pair is still there"
wait_for '[ "$(queue_pairs | wc -l)" -eq 4 ]' 60
stop_and_compare
echo "lane replaced, attempt $try: $(status_of 1 /mnt/kv '.mirrors[0] |
	"reconnects \(.reconnects), lanes_down \(.lanes_down), replaced \(.lanes_replaced)"')"

overwrite
reconnects=$(figure reconnects)
"$RIG" net 1 cut
sleep 5
"$RIG" net 1 heal
wait_for '[ "$(figure reconnects)" -gt "$reconnects" ]' 120
goes_on
stop_and_compare
end_both
