#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvfs bench --replication over tcp and shm: what it prints, that its operations succeed, and that
# it leaves neither files nor processes, also when it is interrupted or refuses its arguments.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

python=${PYTHON:-python3}
if [ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1)" -gt 3000000 ] 2>/dev/null; then
	dir=$(mktemp -d /dev/shm/kvfs-test-XXXXXX)
	trap 'rm -rf "$dir" "$tmp"' EXIT
else
	mkdir "$tmp/dir"
	dir=$tmp/dir
fi

bench()
{
	timeout 120 "$KVFS" bench --replication --dir "$dir" "$@"
}

# Neither a file nor a mirror that works below our directory.
nothing_left()
{
	[ -z "$(ls -A "$dir")" ] || fail "left in $dir: $(ls -AR "$dir")"
	! grep -sqaF "$dir/" /proc/[0-9]*/cmdline ||
		fail "still running: $(grep -slaF "$dir/" /proc/[0-9]*/cmdline)"
}

# The figures, as JSON and as a figure.
expect 0 bench --transport tcp,shm --load closed,d --value 4K --runs 2 --seconds 0.25 \
	--warm-up 0.05 --settle 0.6 --keys 100 --json --plot "$tmp/plot.svg"
[ ! -s "$tmp/err" ] || fail "it complains: $(cat "$tmp/err")"
"$python" - "$tmp/out" "$tmp/plot.svg" <<'END' || fail "$(cat "$tmp/out")"
import json, sys, xml.dom.minidom
o = json.load(open(sys.argv[1]))
assert o["mirrors"] == 1 and o["protocol"] == "B" and o["runs"] == 2 and not o["left_out"], o
want = {(t, l, v) for t in ("tcp", "shm") for l in ("closed", "d") for v in (4096,)}
for settings in ("static", "tuned"):
    got = [r for r in o["rows"] if r["settings"] == settings]
    assert len(got) == len(want), got
    assert {(r["transport"], r["load"], r["value_bytes"]) for r in got} == want, got
for r in o["rows"]:
    assert r["errors"] == 0 and r["emulated"] is False, r
    assert r["clients"] == (1 if r["load"] == "closed" else 2), r
    for f in ("operations_per_second", "mean_us", "p99_us", "p999_us"):
        s = r[f]
        assert 0 < s["low"] <= s["median"] <= s["high"], r
    assert r["p99_us"]["median"] <= r["p999_us"]["median"], r
assert {(r["load"], r["value_bytes"]) for r in o["ratios"]} == {w[1:] for w in want}, o["ratios"]
assert all(r["shm_to_tcp"] > 0 for r in o["ratios"])
assert [r["bar"] for r in o["ratios"] if r["load"] == "closed"] == [4]
svg = xml.dom.minidom.parse(sys.argv[2])
assert svg.documentElement.tagName == "svg"
assert len(svg.getElementsByTagName("rect")) > len(o["rows"])
END
nothing_left

# Loads that make keys are bounded: these would fill the arena many times over.
expect 0 bench --transport shm --load d,create --value 64K --runs 1 --seconds 1.5 \
	--settings static --warm-up 0.05 --keys 50 -o arena=96M --json
[ ! -s "$tmp/err" ] || fail "it complains: $(cat "$tmp/err")"
"$python" - "$tmp/out" <<'END' || fail "$(cat "$tmp/out")"
import json, sys
o = json.load(open(sys.argv[1]))
assert len(o["rows"]) == 2 and all(r["errors"] == 0 for r in o["rows"]), o
END
nothing_left

# The table, two mirrors, protocol C.
expect 0 bench --transport shm --load closed --value 4K --runs 1 --seconds 0.2 --warm-up 0.05 \
	--keys 10 --mirrors 2 --protocol C --settings static -o lanes=1,poll_us=20
in_out '1 client, 2 mirrors, protocol C'
grep -Eq '^shm +4.00 KiB \| +[1-9][0-9]* ' "$tmp/out" || fail "no row: $(cat "$tmp/out")"
nothing_left

# Without an RDMA device verbs is left out, in one line.
if ! ls /sys/class/infiniband/* >/dev/null 2>&1; then
	expect 1 bench --transport verbs --load closed
	grep -q '^kvfs: bench: verbs is left out: found ' "$tmp/err" || fail "$(cat "$tmp/err")"
fi

# Interrupted in the middle of a run: the mirror is up then.
timeout 120 "$KVFS" bench --replication --dir "$dir" --transport tcp --load a --value 1K \
	--seconds 60 2>"$tmp/err" >"$tmp/out" &
pid=$!
wait_for 'ls "$dir"/*/mirror1/control >/dev/null 2>&1' 20
kill -INT "$pid"
rc=0
wait "$pid" || rc=$?
[ "$rc" -eq 1 ] || fail "interrupted it gave $rc: $(cat "$tmp/err")"
one_line 'stopped by Interrupt'
nothing_left

# Each wrong argument is one line and nothing is begun.
refused()
{
	expect_text=$1
	shift
	expect 2 bench "$@"
	one_line "$expect_text"
	nothing_left
}
refused '--transport udp' --transport tcp,udp
refused '--transport tcp: give it once' --transport tcp,tcp
refused '--transport' --transport ,
refused '--load nonsense' --load a,nonsense
refused '--load append' --load append
refused '--value 2M' --value 1K,2M
refused '--value 0' --value 0
refused '--mirrors 3' --mirrors 3
refused '--protocol D' --protocol D
refused '--settings other' --settings static,other
refused '--settle 0' --settle 0
refused '--runs 0' --runs 0
refused '--runs 100' --runs 100
refused '--warm-up -1' --warm-up -1
refused '-o: ' -o nonsense=1
refused '-o: ' -o protocol=A
refused '--file-size is not for --replication' --file-size 1M
refused "unexpected argument 'more'" more
expect 2 "$KVFS" bench --dir "$tmp" --runs 2
one_line '--runs is for --replication'
expect 2 "$KVFS" bench --dir "$tmp" --load burst
one_line '--load burst'
mkdir "$tmp/a,b"
expect 2 "$KVFS" bench --replication --dir "$tmp/a,b" --transport shm
one_line 'comma'
expect 1 "$KVFS" bench --replication --dir "$tmp/missing" --transport tcp
one_line 'give another directory with --dir'
