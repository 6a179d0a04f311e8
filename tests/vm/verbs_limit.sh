#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The verbs transport against what perftest reaches on the same device, in one guest with a process
# each side: 1 KiB to its acknowledgement at most 1.5 times a round trip of ib_write_lat, 4 KiB in
# lists of 32 at least 0.7 of ib_write_bw's messages. The best of three rounds each: the guest is
# not alone. Where even ib_write_lat is far from what it takes on a quiet machine (64 us one way),
# what is measured is the other programs: skipped.
# shellcheck source=tests/vm/functions.sh
. "$(dirname "$0")/functions.sh"

rig_up 1 --memory 1536M
cat >"$tmp/rounds" <<'END'
# one run, both sides in this guest; a client that comes before the server listens is refused
perftest()
{
	"$@" >/dev/null 2>&1 &
	for _ in $(seq 100); do
		"$@" 10.77.0.1 >/tmp/client 2>/tmp/client.err && break
		sleep 0.2
	done
	wait $!
}
for _ in 1 2 3; do
	perftest ib_write_lat -d rxe0 -s 1024 -n 3000
	awk '$1 == 1024 { print "lat", $6 }' /tmp/client
	perftest ib_write_bw -d rxe0 -s 4096 -n 3000
	awk '$1 == 4096 { print "bw", $5 * 1e6 }' /tmp/client
	"$1" --transport verbs --seconds 1 --rounds 1
done
END
"$RIG" run --timeout 400 1 -- sh -s "$top_builddir/tests/bench_transport" <"$tmp/rounds" \
	>"$tmp/figures" || fail "no figures: $(cat "$tmp/figures")"
awk '
function low(a, b) { return !a || b < a ? b : a }
function high(a, b) { return b > a ? b : a }
/^lat/ { lat = low(lat, $2) }
/^bw/ { bw = high(bw, $2) }
/^verbs 1 KiB round trip, spinning/ { trip = low(trip, $7) }
/^verbs 4 KiB in lists of 32, spinning/ { rate = high(rate, $9) }
END {
	if (!lat || !bw || !trip || !rate)
		exit 1
	printf "round trip %.1f us, twice ib_write_lat %.1f us: %.2f (1.5 at most)\n",
		trip, 2 * lat, trip / 2 / lat
	printf "lists of 32: %.0f /s, ib_write_bw %.0f /s: %.2f (0.7 at least)\n",
		rate, bw, rate / bw
	exit trip / 2 / lat > 1.5 || rate / bw < 0.7
}' "$tmp/figures" >"$tmp/judged" && { cat "$tmp/judged"; exit 0; }
cat "$tmp/judged"
lat=$(awk '/^lat/ && (!lat || $2 < lat) { lat = $2 } END { print int(lat) }' "$tmp/figures")
[ "$lat" -lt 200 ] || skip "the machine is busy: ib_write_lat takes $lat us"
fail "missed: $(cat "$tmp/figures")"
