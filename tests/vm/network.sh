#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The network between three guests: it carries, delays, loses, can be cut on either side and comes
# back.
# shellcheck source=tests/vm/functions.sh
. "$(dirname "$0")/functions.sh"

# received G ADDRESS: how many of 20 pings came back
received()
{
	on "$1" "ping -q -i 0.05 -c 20 -W 1 $2" | sed -n 's/.* \([0-9]*\) received.*/\1/p'
}
# all_received G ADDRESS: a guest that stands still at the end may answer too late, not each time
all_received()
{
	wait_for "[ \"\$(received $1 $2)\" -eq 20 ]" 100
}

rig_up 3 --no-rdma --nics 2 --cpus 1
for address in 10.77.0.2 10.77.0.3 10.77.1.2; do
	all_received 1 "$address"
done
all_received 3 10.77.0.2

"$RIG" net 1 delay 150ms
must 1 'ping -q -c 3 10.77.0.2' >"$tmp/ping"
awk -F'[=/ ]+' '/^rtt/ { exit !($6 >= 150) }' "$tmp/ping" || fail "no delay: $(cat "$tmp/ping")"
"$RIG" net 1 loss 50%
lost=$((20 - $(received 1 10.77.0.2)))
[ "$lost" -gt 0 ] && [ "$lost" -lt 20 ] || fail "$lost of 20 lost at 50 %"

# pings 10 ms apart overtake each other where only every second one is held up
"$RIG" net 1 delay 100ms reorder 50%
must 1 'ping -i 0.01 -c 50 10.77.0.2' >"$tmp/ping"
sed -n 's/.*icmp_seq=\([0-9]*\).*/\1/p' "$tmp/ping" >"$tmp/order"
! sort -nc "$tmp/order" 2>/dev/null || fail "all in order: $(cat "$tmp/ping")"

"$RIG" net 1 cut
[ "$(received 1 10.77.0.2)" -eq 0 ] || fail "cut, and yet something passes from 1"
[ "$(received 2 10.77.0.1)" -eq 0 ] || fail "cut, and yet something passes to 1"
all_received 1 10.77.1.2 # the other network
all_received 2 10.77.0.3 # the others
must 1 'ip -br link show eth0 | grep -q LOWER_UP'
"$RIG" net 1 delay 1ms
all_received 1 10.77.0.2 # only slow
"$RIG" net 1 heal
all_received 1 10.77.0.2

"$RIG" net --nic 1 2 unplug
wait_for "on 2 'ip -br link show eth1 | grep -q NO-CARRIER'" 100
[ "$(received 1 10.77.1.2)" -eq 0 ] || fail "unplugged, and yet something passes"
"$RIG" net --nic 1 2 plug
all_received 1 10.77.1.2

# the network outlives a guest
"$RIG" kill 2
all_received 1 10.77.0.3
"$RIG" start 2 || fail "guest 2 does not start again"
all_received 1 10.77.0.2
