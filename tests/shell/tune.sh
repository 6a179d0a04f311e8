#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tuner of a mount: what it says of its decisions, orders to it, a recording that a replay
# decides the same, lane changes under load that lose nothing, and a model file of garbage.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"
command -v jq >/dev/null || skip "jq is missing"

tuner() # JQ-CONDITION: holds for kvfs tune --json
{
	"$KVFS" tune --json "$tmp/m" >"$tmp/tuner" && jq -e "$1" "$tmp/tuner" >/dev/null
}

# Until $tmp/stop is there.
load()
{
	(
		i=0
		while [ ! -e "$tmp/stop" ]; do
			i=$((i + 1))
			echo "$i $1" >"$tmp/m/k$1.$((i % 97))"
		done
	) &
	loads="${loads:-} $!"
}

make_volume v
make_volume s --join "$tmp/v/key"
start_mirror s '' tcp:127.0.0.1:0
port=$("$KVFS" status --json "$tmp/s" | jq .mirror.listen_port)
opt="mirror=tcp:127.0.0.1:$port"

# Without mirrors there is nothing to tune.
mount_volume
expect 1 "$KVFS" tune "$tmp/m"
one_line "no mirrors: nothing to tune"
"$KVFS" umount "$tmp/m"

# Off: no thread, and a setting by hand holds at once.
mount_volume "$opt,tuner=off"
! grep -qs kv-tuner /proc/"$(pid_of m)"/task/*/comm || fail "kv-tuner runs"
expect 1 "$KVFS" tune --freeze "$tmp/m"
one_line "tuner=off"
expect 0 "$KVFS" tune --set poll_us=50 --set lanes=1 "$tmp/m"
in_out "lanes=1 poll_us=50"
"$KVFS" umount "$tmp/m"

# On: the lanes that are not used are opened ahead. poll_us is off the ladder.
mount_volume "$opt,poll_us=70"
grep -qF "no model yet" "$tmp/err" || fail "not a word of the model: $(cat "$tmp/err")"
expect 0 "$KVFS" status "$tmp/m"
in_out "2 of 4 lanes used"
in_out "tuner       xgboost"
expect 1 "$KVFS" tune --set lanes=10 "$tmp/m"
one_line "lanes may be 1, 2, 4 here, not 10"
expect 1 "$KVFS" tune --set speed=1 "$tmp/m"
one_line "a knob is one of"

expect 1 "$KVFS" tune --record "$tmp/m/trace" "$tmp/m"
one_line "cannot lie on a FUSE mount"
# Nothing that is there is overwritten, and of an order that is refused nothing is done.
echo mine >"$tmp/mine"
expect 1 "$KVFS" tune --freeze --record "$tmp/mine" "$tmp/m"
one_line "cannot make $tmp/mine: File exists"
[ "$(cat "$tmp/mine")" = mine ] || fail "overwritten"
expect 1 "$KVFS" tune --freeze --set lanes=99 "$tmp/m"
tuner '.tuner.frozen == false' || fail "frozen by a refused order"
expect 2 "$KVFS" tune --record "$tmp/$(printf '\377')" "$tmp/m"
one_line "must be UTF-8"
"$KVFS" tune --record "$tmp/trace" "$tmp/m" >"$tmp/out"
load a
load b
wait_for "tuner '.tuner.windows > 8'" 30
# the mirror's load; it is missing in a window for which the mirror stood still
# shellcheck disable=SC2034 # wait_for evaluates it
explained='.decisions[0].features | .mirror_cpu_cores != null and has("mirror_lag_records")'
(wait_for 'expect 0 "$KVFS" tune --json --explain=5 "$tmp/m"
	jq -e "$explained" "$tmp/out" >/dev/null' 10) || fail "the mirror's load: $(cat "$tmp/out")"
jq -e 'all(.decisions[0].estimated[]; . == "mem_share")' "$tmp/out" >/dev/null ||
	fail "estimates: $(cat "$tmp/out")"
jq -e '(.decisions | length) == 5 and (.decisions[0].features | has("ops_per_s")) and
	([.decisions[].before.poll_us] | all(. == 0 or . == 70 or . == 1000)) and
	.tuner.recording and ([.decisions[].action] | all(. != null))' "$tmp/out" >/dev/null ||
	fail "$(cat "$tmp/out")"
expect 0 "$KVFS" tune --explain "$tmp/m"
in_out "ops_per_s="

# Up and down under load: each change shows in the mirror's line.
for lanes in 4 1 2 4 1; do
	"$KVFS" tune --set "lanes=$lanes" --set batch=4 "$tmp/m" >"$tmp/out"
	grep -qE "(next|;) lanes=$lanes poll_us=[0-9]+ batch=4" "$tmp/out" ||
		fail "it does not say what it was told: $(cat "$tmp/out")"
	wait_for '"$KVFS" status "$tmp/m" | grep -qF "$lanes of 4 lanes used"' 5
	wait_for "tuner '.tuner.settings.batch == 4'" 5
done
# A freeze keeps what was set, window after window; the thaw lets it go.
"$KVFS" tune --freeze "$tmp/m" >/dev/null
at=$("$KVFS" tune --json "$tmp/m" | jq .tuner.windows)
wait_for "tuner '.tuner.windows > $at + 2'" 10
tuner '.tuner.settings.lanes == 1 and .tuner.frozen' || fail "$("$KVFS" tune "$tmp/m")"
"$KVFS" tune --explain 2 "$tmp/m" | grep -qF "freeze: frozen by hand" || fail "not frozen"
"$KVFS" tune --thaw "$tmp/m" >/dev/null
wait_for "tuner '.tuner.frozen == false and .tuner.settings.batch != 4'" 10

"$KVFS" tune --record off "$tmp/m" >/dev/null
wait_for "tuner '.tuner.recording == false'" 5
touch "$tmp/stop"
# shellcheck disable=SC2086
wait $loads
expect 0 "$KVFS" tune --replay "$tmp/trace"
in_out "each decision the same"
expect 0 "$KVFS" tune --replay "$tmp/trace" --explain
in_out "frozen by hand"
# A window that was not as recorded is found.
sed 's/"action": *"freeze"/"action": "keep"/' "$tmp/trace" >"$tmp/other"
expect 1 "$KVFS" tune --replay "$tmp/other"
in_out "another decision"
head -c 300 /dev/urandom >"$tmp/noise"
expect 1 "$KVFS" tune --replay "$tmp/noise"
one_line "not a trace"
# One without an end is not read to it.
expect 1 timeout 20 "$KVFS" tune --replay /dev/zero
one_line "not a trace"
expect 1 "$KVFS" tune --replay "$tmp"
one_line "Is a directory"

# Nothing was lost on the way.
digest() { "$KVFS" status --digest "$1" | sed -n 's/^digest *//p'; }
wait_for '[ "$(digest "$tmp/m")" = "$(digest "$tmp/s")" ]' 20

# While a mirror is away nothing moves; it comes back, and decisions go on.
last() { "$KVFS" tune --json --explain 1 "$tmp/m" | jq -r '.decisions[0].why'; }
kill_daemon s
wait_for 'last | grep -q "mirrors came or went"' 10
start_mirror s '' "tcp:127.0.0.1:$port"
wait_for 'last | grep -q "too little load"' 20
"$KVFS" umount "$tmp/m"

# Garbage for a model: a line, the static settings, and a mount that works.
head -c 5000 /dev/urandom >"$tmp/v/tuner.model"
mount_volume "$opt"
grep -qF "tuner.model is not used" "$tmp/err" || fail "$(cat "$tmp/err")"
tuner '.tuner.settings == .tuner.static' || fail "$("$KVFS" tune "$tmp/m")"
echo fine >"$tmp/m/fine"
"$KVFS" umount "$tmp/m"
"$KVFS" umount "$tmp/s"
