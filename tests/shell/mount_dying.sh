#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A mount right behind a kill -9 takes the stale one away, though the process may still be ending
# and the kernel still answers stat from its cache; a daemon that is only stopped is left alone.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

one_mount 32M
for n in 1 2 3 4 5 6 7 8; do
	echo $n >"$mnt/key"
	stat "$mnt" >/dev/null
	kill -9 "$(pid_of mnt)"
	mount_primary v mnt
	[ "$(cat "$mnt/key")" = $n ] || fail "round $n: the key holds $(cat "$mnt/key")"
done
pid=$(pid_of mnt)
kill -STOP "$pid"
expect 1 timeout 60 "$KVFS" mount -o arena=64M "$tmp/v" "$mnt"
one_line "in use"
kill -CONT "$pid"
[ "$(cat "$mnt/key")" = 8 ] || fail "the stopped daemon does not serve again"
