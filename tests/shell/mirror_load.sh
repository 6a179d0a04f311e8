#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What mirrors tell of their own load, over tcp and over shm: in kvfs status and as metrics, going
# on while nothing is written, and gone with the mirror.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

# loads EXPRESSION: of the list of both mirrors' loads l, in Python
loads()
{
	"$KVFS" status --json "$tmp/m" | python3 -c '
import json, sys
l = [m["load"] for m in json.load(sys.stdin)["mirrors"]]
print(eval(sys.argv[1]))' "$1"
}

# each CONDITION: both mirrors tell a load x, and it holds for each
each()
{
	[ "$(loads "len(l) == 2 and all(x and ($1) for x in l)")" = True ]
}

make_volume v
make_volume s --join "$tmp/v/key"
make_volume t --join "$tmp/v/key"
start_mirror s '' "shm:$tmp/s.sock"
start_mirror t '' tcp:127.0.0.1:0
port=$("$KVFS" status --json "$tmp/t" | sed -n 's/.*"listen_port": \([0-9]*\).*/\1/p')
mount_volume "mirror=shm:$tmp/s.sock,mirror=tcp:127.0.0.1:$port"
head -c 2000000 /dev/urandom >"$tmp/m/big" # a tenth of the log's pool
wait_for 'each "x[\"received\"] > 1 and x[\"log\"] > 0.01"' 100
each '0 <= x["cpu"] < 64 and 0 < x["log"] < 1 and 0 <= x["ring"] <= 1 and x["age_ns"] < 5e9' ||
	fail "figures that can't be: $(loads l)"
# shellcheck disable=SC2034 # wait_for evaluates it
heard=$(loads 'min(x["received"] for x in l)')
wait_for '[ "$(loads "min(x[\"received\"] for x in l)")" -gt "$((heard + 3))" ]' 100
[ "$(loads 'sum(x["new_ways"] for x in l)')" = 0 ] || fail "ways were made: $(loads l)"
expect 0 "$KVFS" status "$tmp/m"
[ "$(grep -c 'its CPU .* %, log .* % full' "$tmp/out")" -eq 2 ] || fail "$(cat "$tmp/out")"
"$KVFS" umount "$tmp/t"
wait_for '[ "$(loads "l[1] is None and l[0] is not None")" = True ]' 100
"$KVFS" umount "$tmp/m"
"$KVFS" umount "$tmp/s"
