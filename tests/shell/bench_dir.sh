#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvfs bench --dir, on an ordinary directory: that each load does what it says, that its figures
# agree with each other, that it leaves nothing, and that failed operations are counted and told.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

python=${PYTHON:-python3}
dir=$tmp/dir
mkdir "$dir"

bench()
{
	timeout 120 "$KVFS" bench --dir "$dir" "$@"
}

nothing_left()
{
	[ -z "$(ls -A "$dir")" ] || fail "left in $dir: $(ls -AR "$dir")"
}

all=get,put,a,b,c,d,e,f,closed,append,create,seqwrite
cat >"$tmp/agree.py" <<'END'
import json, sys
rows = json.load(open(sys.argv[1]))
assert [r["load"] for r in rows] == sys.argv[2].split(",")
# Values that an operation moves, at most. A get beside a put may find the key emptied.
moves = {"e": 20, "f": 2}
mixed = "abdef"
for r in rows:
    ops, seconds = r["operations"], r["seconds"]
    moved = r["bytes_per_second"] * seconds
    assert ops > 0 and r["errors"] == 0, r
    assert r["value_bytes"] == 3000 and r["keys"] == 50, r
    assert r["threads"] == (1 if r["load"] == "closed" else 3), r
    assert abs(r["operations_per_second"] * seconds - ops) < 0.01 * ops, r
    if r["load"] == "seqwrite":
        assert ops == 12 and abs(moved - (12 << 20)) < 1, r
    else:
        most = moves.get(r["load"], 1)
        assert (0.3 if r["load"] in mixed else 0.999) <= moved / ops / 3000 <= most * 1.001, r
        assert 0.2 <= seconds < 60, r
    assert 0 < r["p50_us"] <= r["p99_us"] <= r["p999_us"], r
    # What so many clients can have spent, and Markov's inequality (buckets are 1/16 wide).
    assert r["mean_us"] * ops <= r["threads"] * seconds * 1e6, r
    assert r["p50_us"] <= 2.2 * r["mean_us"] and r["p99_us"] <= 110 * r["mean_us"], r
    # Clients do little else than their operations; seqwrite is over before they all run.
    if r["load"] != "seqwrite" and r["mean_us"] * ops < 0.1 * r["threads"] * seconds * 1e6:
        print(r)
        sys.exit(3)
END
# A machine that stands still between two operations makes it look otherwise: one run of three.
for try in 1 2 3; do
	expect 0 bench --load "$all" --seconds 0.2 --value 3000 --keys 50 --threads 3 \
		--file-size 12M --json
	[ ! -s "$tmp/err" ] || fail "it complains: $(cat "$tmp/err")"
	agree=0
	"$python" "$tmp/agree.py" "$tmp/out" "$all" || agree=$?
	[ "$agree" -eq 3 ] || break
done
[ "$agree" -eq 0 ] || fail "try $try: $(cat "$tmp/out")"
nothing_left

# The shares of seqwrite are the file, also where it doesn't divide.
expect 0 bench --load seqwrite --threads 3 --file-size 1000001 --json
"$python" - "$tmp/out" <<'END' || fail "$(cat "$tmp/out")"
import json, sys
r, = json.load(open(sys.argv[1]))
assert abs(r["bytes_per_second"] * r["seconds"] - 1000001) < 1, r
assert r["operations"] == 3, r
END

# The table.
expect 0 bench --seconds 0.2 --value 1K
[ "$(wc -l <"$tmp/out")" -eq 3 ] || fail "$(cat "$tmp/out")"
in_out 'ops/s'
grep -Eq '^get +1\.00 KiB +[1-9][0-9]* .* 0$' "$tmp/out" || fail "no row: $(cat "$tmp/out")"
grep -Eq '^put +1\.00 KiB +[1-9][0-9]* .* 0$' "$tmp/out" || fail "no row: $(cat "$tmp/out")"
nothing_left

# refuses_writes LIMIT-KB COMMAND...: no file may grow beyond that, as if the disk were full.
refuses_writes()
{
	(
		trap '' XFSZ
		ulimit -f $((2 * $1))
		shift
		"$@"
	)
}

# Operations that fail are counted, told in one line, and are the exit status.
expect 1 refuses_writes 512 bench --load seqwrite --file-size 4M --json
one_line 'seqwrite: 2 operations failed, the first with: File too large'
"$python" - "$tmp/out" <<'END' || fail "$(cat "$tmp/out")"
import json, sys
r, = json.load(open(sys.argv[1]))
assert r["errors"] == 2 and r["operations"] == 0, r
END
nothing_left
# Keys that can't be made begin nothing.
expect 1 refuses_writes 64 bench --load put --value 100K --seconds 0.2
one_line "put in $dir: File too large"
nothing_left

# A directory that takes no writes, empty or with what was made before.
# read_only [MADE-BEFORE]
read_only()
{
	if [ "$(id -u)" -ne 0 ]; then
		chmod 555 "$dir" ${1:+"$1"}
		"$KVFS" bench --dir "$dir" --load seqwrite --threads 1
		rc=$?
		chmod 755 "$dir" ${1:+"$1"}
		return "$rc"
	fi
	# shellcheck disable=SC2016 # for the inner shell
	unshare -m sh -c 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 77
		exec "$2" bench --dir "$1" --load seqwrite --threads 1' sh "$dir" "$KVFS"
}
rc=0
read_only '' >"$tmp/out" 2>"$tmp/err" || rc=$?
if [ "$rc" -ne 77 ]; then
	[ "$rc" -eq 1 ] || fail "a read-only directory gave $rc: $(cat "$tmp/out" "$tmp/err")"
	one_line "seqwrite in $dir: "
	mkdir "$dir/kvfs-bench"
	expect 1 read_only "$dir/kvfs-bench"
	one_line 'seqwrite: 1 operations failed, the first with: '
fi
