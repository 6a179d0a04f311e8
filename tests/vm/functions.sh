# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034
# Sourced by the tests that run in virtual machines: the words of tests/shell/functions.sh, and a
# rig of the test's own in $tmp/rig. The rig ends with the test, however that ends.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/../shell/functions.sh"

RIG=$top_srcdir/scripts/rig
KVFS_RIG_DIR=$tmp/rig
export KVFS_RIG_DIR

for vm_tool in qemu-system-x86_64 busybox cpio modprobe dpkg-deb apt-get; do
	PATH=$PATH:/usr/sbin:/sbin command -v "$vm_tool" >/dev/null ||
		skip "no $vm_tool; see scripts/install-deps"
done
[ "$(id -u)" -eq 0 ] || skip "guests see what their user can read: needs root"

vm_cleanup()
{
	vm_status=$?
	trap - EXIT
	if [ "$vm_status" -ne 0 ] && [ "$vm_status" -ne 77 ]; then
		for vm_log in "$tmp"/rig/g?/console.log "$tmp"/rig/g?/qemu.log \
			"$tmp"/rig/keeper.log; do
			[ ! -s "$vm_log" ] || { echo "== $vm_log"; tail -n 20 "$vm_log"; } >&2
		done
	fi
	"$RIG" down || vm_status=1
	rm -rf "$tmp"
	exit "$vm_status"
}
trap vm_cleanup EXIT

# rig_up N [OPTIONS...]: for at most 30 minutes, or $vm_lifetime seconds
rig_up()
{
	"$RIG" up --owner $$ --lifetime "${vm_lifetime:-1800}" "$@" ||
		fail "the rig does not come up"
}

# on G COMMAND LINE: run by a shell of guest G; 400 s, or $vm_timeout. Alone on a machine all takes
# seconds; beside other work emulation has been seen thirty times slower.
on()
{
	vm_guest=$1
	shift
	"$RIG" run -n --timeout "${vm_timeout:-400}" "$vm_guest" -- sh -c "$*"
}

# must G COMMAND LINE: that has to succeed
must()
{
	on "$@" || fail "guest $1: '$2' gave $?"
}

# rig_pids: the processes of the rig that runs, keeper first
rig_pids()
{
	vm_keeper=$("$RIG" status --json | sed -n 's/^  "keeper": \([0-9]*\),*$/\1/p')
	[ -n "$vm_keeper" ] || fail "no keeper"
	echo "$vm_keeper $(pgrep -d ' ' -P "$vm_keeper")"
}

# gone PID...: none of them runs any more
gone()
{
	for vm_pid in "$@"; do
		! grep -qs '^State:.[^ZX]' "/proc/$vm_pid/status" || return 1
	done
}
