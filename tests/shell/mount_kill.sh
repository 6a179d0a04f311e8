#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kill -9 loses nothing that was acknowledged; the next mount takes the stale one away.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

make_volume v
mount_volume
for i in 1 2 3; do
	for k in $(seq 50); do
		echo "$i.$k" >"$tmp/m/key.$k"
	done
	kill_daemon m
	mount_volume
	for k in $(seq 50); do
		[ "$(cat "$tmp/m/key.$k")" = "$i.$k" ] ||
			fail "key.$k is '$(cat "$tmp/m/key.$k")' in round $i"
	done
done
