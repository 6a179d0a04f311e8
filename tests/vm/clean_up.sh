#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No process of a rig is left: after down, after its owner was killed, after its keeper was killed.
# shellcheck source=tests/vm/functions.sh
. "$(dirname "$0")/functions.sh"

# owned_rig: a rig that belongs to a process of ours, in $owner; its processes in $pids
owned_rig()
{
	sleep 600 &
	owner=$!
	"$RIG" up 1 --no-rdma --owner "$owner" -q || fail "the rig does not come up"
	pids=$(rig_pids)
	[ "$(echo "$pids" | wc -w)" -eq 3 ] || fail "keeper, network and one guest are not: $pids"
}

owned_rig
"$RIG" down
# shellcheck disable=SC2086 # lists of words
{
	gone $pids || fail "after down there is still one of $pids"
	[ ! -e "$KVFS_RIG_DIR" ] || fail "the directory is left"
	kill "$owner"

	owned_rig
	kill -9 "$owner"
	wait_for "gone $pids" 100
	wait_for '[ ! -e "$KVFS_RIG_DIR" ]' 100

	owned_rig
	kill -9 "${pids%% *}"
	wait_for "gone $pids" 100
	expect 125 "$RIG" run -n 1 -- true
	one_line "no rig runs in"
	"$RIG" down
	[ ! -e "$KVFS_RIG_DIR" ] || fail "the directory of a killed keeper is left"
	kill "$owner"
}
expect 125 "$RIG" status
one_line "no rig in"
