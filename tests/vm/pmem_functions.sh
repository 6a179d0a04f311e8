#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034,SC2154
# Sourced by the tests of persistent memory in the rig: whole scripts that run in guest 1.
# shellcheck source=tests/vm/functions.sh
. "$(dirname "$0")/functions.sh"

command -v jq >/dev/null || skip "no jq"
for pmem_name in MKFS FSCK KVFS; do
	eval "pmem_path=\$$pmem_name"
	eval "$pmem_name=\$(cd \"\${pmem_path%/*}\" && pwd)/\${pmem_path##*/}"
done

# guest <SCRIPT: runs it in the guest, where it stops at the first that fails; its output is in
# $tmp/guest. `says TEXT FILE` and `no WHAT` are words of it, and to wait until the mount /tmp/m has
# sent all to its mirror over RDMA, and from where its values lie: `sent_in_place MIRROR`.
guest()
{
	{
		echo "MKFS='$MKFS' FSCK='$FSCK' KVFS='$KVFS'"
		cat <<'END'
set -eu
PATH=$PATH:/sbin:/usr/sbin
no() { echo "FAIL: $*"; exit 9; }
says() { grep -qF -- "$1" "$2" || no "'$1' is not in: $(cat "$2")"; }
has() { [ true = "$("$KVFS" status --json /tmp/m | jq "$1")" ]; }
digest() { "$KVFS" status --json --digest "$1" | jq -r .digest; }
sent_in_place()
{
	for _ in $(seq 600); do
		has '.lsn as $l | .mirrors[0] | .transport == "verbs" and .applied_lsn == $l' &&
			break
		sleep 0.1
	done
	has '.mirrors[0].transport == "verbs" and
		(.memory | .mr_hits > 0 and .registered_bytes > 0 and .register_error == "")' ||
		no "not sent from there: $("$KVFS" status --json /tmp/m |
			jq -c '.memory, .mirrors')"
	[ "$(digest /tmp/m)" = "$(digest "$1")" ] || no "the mirror has another state"
}
END
		cat
	} >"$tmp/script"
	pmem_got=0
	"$RIG" run --timeout 300 1 -- sh -s <"$tmp/script" >"$tmp/guest" 2>&1 || pmem_got=$?
	[ "$pmem_got" -eq 0 ] || fail "in the guest ($pmem_got): $(tail -n 40 "$tmp/guest")"
}

# As a power failure, and the guest boots again.
guest_power_fails()
{
	"$RIG" kill 1 && "$RIG" start 1 || fail "the guest does not start again"
}
