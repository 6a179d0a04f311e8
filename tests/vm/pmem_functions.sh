#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034,SC2154
# Sourced by the tests of persistent memory in the rig: a rig of one guest in $tmp, and what is done in it.
# Skips where there is no QEMU. KVFS_RIG_CACHE keeps the unpacked kernel between tests.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/../shell/functions.sh"
RIG=$top_srcdir/scripts/rig
KVFS_RIG_DIR=$tmp/rig
export KVFS_RIG_DIR
command -v qemu-system-x86_64 >/dev/null || skip "no qemu-system-x86_64"
[ -x "$RIG" ] || skip "no scripts/rig"
trap '"$RIG" down >/dev/null 2>&1; rm -rf "$tmp"' EXIT
for pmem_name in MKFS FSCK KVFS; do
	eval "pmem_path=\$$pmem_name; $pmem_name=\$(cd \"\${pmem_path%/*}\" && pwd)/\${pmem_path##*/}"
done

# rig_up NVDIMMS MODE [OPTIONS]: one guest
rig_up()
{
	pmem_sizes=$1 pmem_mode=$2
	shift 2
	"$RIG" up 1 -q --owner $$ --lifetime 900 --nvdimm "$pmem_sizes" --pmem "$pmem_mode" "$@" \
		>"$tmp/up" 2>&1 || fail "the rig: $(cat "$tmp/up")"
}

# guest [STATUS] <SCRIPT: runs it in the guest, with -eux; its output is in $tmp/guest
guest()
{
	{
		echo "MKFS='$MKFS' FSCK='$FSCK' KVFS='$KVFS'"
		cat <<'END'
set -eu
PATH=$PATH:/sbin:/usr/sbin
no() { echo "FAIL: $*"; exit 9; }
says() { grep -qF -- "$1" "$2" || no "'$1' is not in: $(cat "$2")"; }
END
		cat
	} >"$tmp/script"
	guest_got=0
	"$RIG" run --timeout 200 1 -- sh -s <"$tmp/script" >"$tmp/guest" 2>&1 || guest_got=$?
	[ "$guest_got" -eq 0 ] || fail "in the guest ($guest_got): $(tail -40 "$tmp/guest")"
}

# As a power failure, and the guest boots again.
guest_power_fails()
{
	"$RIG" kill 1 >/dev/null && "$RIG" start 1 >"$tmp/up" 2>&1 || fail "no new start: $(cat "$tmp/up")"
}
