#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Without a descriptor for who asks at the control socket the daemon does not spin, and answers when
# there is one again.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need prlimit
make_volume v
mount_volume
pid=$(status_of m .pid)

# In $ticks: processor time of kv-control so far, in hundredths of a second.
control_ticks()
{
	for control_task in /proc/"$pid"/task/*; do
		read -r control_name 2>/dev/null <"$control_task/comm" || continue # it has ended
		[ "$control_name" = kv-control ] || continue
		ticks=$(awk '{ print $14 + $15 }' "$control_task/stat")
	done
}

limit=$(prlimit --pid "$pid" --nofile --output SOFT --noheadings)
prlimit --pid "$pid" --nofile=3:
control_ticks
before=$ticks
expect 124 timeout 2 "$KVFS" status "$tmp/m"
control_ticks
[ $((ticks - before)) -lt 20 ] || fail "kv-control took $((ticks - before))/100 s of 2 s"
prlimit --pid "$pid" --nofile="$(echo "$limit" | tr -d ' ')":
[ "$(status_of m .pid)" -eq "$pid" ] || fail "no status"
unmount m
