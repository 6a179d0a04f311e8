#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Where the log is damaged in its middle, fsck.kvfs names the mirrors that were in sync, by the
# number that they call themselves.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

make_volume v
make_volume s --join "$tmp/v/key"
start_mirror s '' "shm:$tmp/ring"
mount_volume "mirror=shm:$tmp/ring"
wait_for "in_sync m 1" 30
for word in first second third; do
	echo "the $word value, to be found" >"$tmp/m/$word" || fail "write of $word"
done
node=$("$KVFS" status "$tmp/s" | sed -n 's/^node *//p')
[ "$node" = "$(status_of s .volume.node_id)" ] || fail "node $node, in JSON another"
kill_daemon m
at=$(grep -abo "the second value" "$tmp/v/log.0" | head -n 1 | cut -d: -f1)
[ -n "$at" ] || fail "the second record is not found in the pool"
printf 'XX' | dd of="$tmp/v/log.0" bs=1 seek="$at" conv=notrunc 2>/dev/null
expect 4 "$FSCK" "$tmp/v"
in_out "in sync were the mirrors $node"
