#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The log no longer reaches a mirror that was away: it gets a snapshot, then the log, with progress
# in the status, while writes go on; an open file of its view shows the new bytes. A mirror that was
# killed within a resync gets another.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need python3
arena=512M
mib=$(portion 100) # well above the log
[ "$mib" -ge 32 ] || mib=32
expect 0 "$MKFS" -q -s 16M "$tmp/p"
expect 0 "$MKFS" -q -s 16M --join "$tmp/p/key" "$tmp/m1"
expect 0 "$MKFS" -q -s 16M --join "$tmp/p/key" "$tmp/m2"
port=$(free_port)
start_m1() { start_mirror m1 view "tcp:127.0.0.1:$port"; }
start_m2() { start_mirror m2 '' "shm:$tmp/ring"; }
start_m1
start_m2
mount_primary p mnt "min_mirrors=1,mirror=tcp:127.0.0.1:$port,mirror=shm:$tmp/ring"
echo old >"$tmp/mnt/file"
wait_for "in_sync mnt 2" 30
fill()
{
	python3 - "$tmp/mnt" "$1" "$mib" <<'END'
import os, sys
for n in range(int(sys.argv[3])):
    with open("%s/big%d" % (sys.argv[1], n), "wb") as f:
        f.write(os.urandom(1 << 20))
with open(sys.argv[1] + "/file", "w") as f:
    f.write(sys.argv[2])
END
}

for i in 1 2; do
	link=".mirrors[$((i - 1))]"
	kill_pids "$(pid_of m$i)"
	fill "version $i" || fail "writing with one mirror away"
	"$LOADER" run "$tmp/mnt" "$tmp/journal" 600 2 200000 >"$tmp/load" &
	load=$!
	"start_m$i"
	seen=0
	read_clock
	end=$((now + 60 * ${KVFS_TEST_PATIENCE:-1}))
	until in_sync mnt 2 || [ "$now" -gt "$end" ]; do
		read_clock
		resyncing='.resync_total_bytes > 0 | tostring'
		case "$(status_of mnt "$link | .state + \" \" + ($resyncing)")" in
		'resync true')
			seen=$((seen + 1))
			# once in the middle of it: killed again
			if [ $seen -eq 1 ]; then
				kill_pids "$(pid_of m$i)"
				"start_m$i"
			fi
			;;
		'live '*) kill -9 $load 2>/dev/null || true ;; # so that in_sync can be reached
		esac
	done
	kill -9 $load 2>/dev/null || true
	wait $load 2>/dev/null || true
	in_sync mnt 2 || fail "mirror $i is not in sync: $(status_of mnt .mirrors)"
	whole=".resync_total_bytes > $((mib * 500000))"
	whole="$whole and .resync_done_bytes == .resync_total_bytes"
	whole="$whole and .resync_installed_bytes == .resync_total_bytes"
	[ "$(status_of mnt "$link | $whole")" = true ] ||
		fail "mirror $i had no whole resync: $(status_of mnt "$link")"
	# Killed just after its end it has come up with the image.
	[ "$(status_of m$i .mirror.resync_total_bytes)" = 0 ] ||
		[ "$(status_of m$i .mirror.resync_installed_bytes)" = \
			"$(status_of mnt "$link.resync_total_bytes")" ] ||
		fail "mirror $i shows another end: $(status_of m$i .mirror)"
	echo "mirror $i: resync of $(status_of mnt "$link.resync_total_bytes") bytes," \
		"seen under way $seen times"
	same_state mnt m1 m2
	wait_for '[ "$(cat "$tmp/view/file")" = "version $i" ]' 10
	verified view
	rm -f "$tmp/journal"
	rm -f "$tmp"/mnt/t*
done
wait_for "in_sync mnt 2" 30
same_tree mnt view
unmount mnt
unmount view
unmount m2
for volume in p m1 m2; do
	expect 0 "$FSCK" "$tmp/$volume"
done
