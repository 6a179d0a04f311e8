#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A loaded mount with two mirrors (tcp and shm) is killed with -9, again and again, at a moment
# drawn by chance, every third time together with a mirror, every fifth with both. Each acknowledged
# write is there afterwards: in the views of the mirrors that live, before the primary is back, then
# on the primary and in all views, and all three stores are the same, byte for byte.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

rounds=$(portion 50)
echo "seed $seed, $rounds rounds"
arena=128M
port=$(free_port)
primary_options="mirror=tcp:127.0.0.1:$port,mirror=shm:$tmp/ring"

expect 0 "$MKFS" -q -s 32M "$tmp/p"
expect 0 "$MKFS" -q -s 32M --join "$tmp/p/key" "$tmp/m1"
expect 0 "$MKFS" -q -s 32M --join "$tmp/p/key" "$tmp/m2"
start_m1() { start_mirror m1 view1 "tcp:127.0.0.1:$port"; }
start_m2() { start_mirror m2 view2 "shm:$tmp/ring"; }
start_m1
start_m2
mount_primary p mnt "$primary_options"

# A mirror that lives has all that was acknowledged, before the primary is back and catches it up.
check_survivor()
{
	where=$1
	wait_for '[ "$(status_of $where ".mirror.applied_lsn == .log.last_lsn")" = true ]' 30
	(verified "$1") || fail "round $round, $1 without its primary"
}

compare_all()
{
	wait_for "in_sync mnt 2" 60
	for where in mnt view1 view2; do
		(verified "$where") || fail "round $round"
	done
	same_state mnt view1 view2
	if [ $((round % 10)) -eq 0 ]; then
		for where in view1 view2; do
			(same_tree mnt $where) || fail "round $round"
		done
	fi
}

check_volumes()
{
	for volume in "$@"; do
		expect 0 "$FSCK" "$tmp/$volume"
	done
}

replayed=0
round=0
while [ "$round" -lt "$rounds" ]; do
	round=$((round + 1))
	wait_for "in_sync mnt 2" 60
	victims=$(pid_of mnt)
	mirrors=
	[ $((round % 6)) -eq 3 ] && mirrors=1
	[ $((round % 6)) -eq 0 ] && mirrors=2
	[ $((round % 5)) -eq 0 ] && mirrors="1 2"
	for i in $mirrors; do
		victims="$victims $(pid_of "view$i")"
	done
	draw 50 2500
	# shellcheck disable=SC2086 # a list of pids
	"$LOADER" run "$tmp/mnt" "$tmp/journal" 20 4 "$drawn" $victims >"$tmp/load" ||
		fail "load: $(cat "$tmp/load")"
	for pid in $victims; do
		$await_end "$pid" 20 || fail "process $pid does not end"
	done
	for i in 1 2; do
		case " $mirrors " in
		*" $i "*) ;;
		*) check_survivor "view$i" ;;
		esac
	done
	[ $((round % 5)) -ne 0 ] || check_volumes p m1 m2
	for i in $mirrors; do
		"start_m$i"
	done
	mount_primary p mnt "$primary_options"
	replayed=$((replayed + $(status_of mnt .recovery.replayed_records)))
	compare_all
	"$LOADER" settle "$tmp/mnt" "$tmp/journal" || fail "round $round: settle"
done
wait_for "in_sync mnt 2" 60
checkpoints=$(status_of mnt .recovery.checkpoint)
unmount mnt
unmount view1
unmount view2
check_volumes p m1 m2
[ "$replayed" -gt 0 ] || fail "no round replayed anything"
echo "$rounds rounds, $replayed records replayed, $checkpoints checkpoints"
