#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# RDMA between two guests: connection manager and reliable connections, also while packets get lost.
# shellcheck source=tests/vm/functions.sh
. "$(dirname "$0")/functions.sh"

# between SERVER-COMMAND CLIENT-COMMAND: the server in guest 2, the client in guest 1, again until
# the server listens: one that comes before is refused at once
between()
{
	"$RIG" run -n --timeout 400 2 -- sh -c "$1" >"$tmp/server" 2>&1 &
	server=$!
	again="for i in \$(seq 40); do $2 && exit 0; sleep 0.5; done; exit 1"
	"$RIG" run -n --timeout 400 1 -- sh -c "$again" >"$tmp/client" 2>&1 || {
		cat "$tmp/client" "$tmp/server" >&2
		fail "guest 1: $2"
	}
	wait "$server" || fail "guest 2: $1: $(cat "$tmp/server")"
}

rig_up 2
must 1 'ibv_devinfo -d rxe0 | grep PORT_ACTIVE'
between "rping -s -a 10.77.0.2 -C 20 -V" "rping -c -a 10.77.0.2 -C 20 -V -v"
[ "$(grep -c '^ping data' "$tmp/client")" -eq 20 ] || fail "not 20 pings: $(cat "$tmp/client")"
between "ib_write_lat -d rxe0 -s 1024 -n 500" "ib_write_lat -d rxe0 -s 1024 -n 500 10.77.0.2"
awk '$1 == 1024 {
	print "ib_write_lat, 1 KiB, between guests: median " $5 ", mean " $6 " us"
}' "$tmp/client"
"$RIG" net 1 loss 5% || fail "no loss"
between "ibv_rc_pingpong -d rxe0 -g 1 -s 1024 -n 200" \
	"ibv_rc_pingpong -d rxe0 -g 1 -s 1024 -n 200 10.77.0.2"
must 1 'tc -s qdisc show dev eth0' >"$tmp/qdisc"
dropped=$(sed -n 's/.*dropped \([0-9]*\),.*/\1/p' "$tmp/qdisc" | head -n 1)
[ "$dropped" -gt 0 ] || fail "nothing was lost: $(cat "$tmp/qdisc")"
