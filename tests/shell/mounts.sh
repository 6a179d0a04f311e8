#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034
# Sourced by the shell tests that mount: functions.sh, and words for volumes, mounts, mirrors and
# crashes. Everything lies in $tmp, in memory where there is room. At exit every kvfs whose command
# line names $tmp is killed, by its pid, and what is mounted below $tmp is taken away.
# KVFS_TEST_SEED replays what a test draws by chance.

# In a network of its own, so that no other test has a port that this one is about to take. Who may
# mount may do so.
if [ -z "${KVFS_TEST_NETWORK:-}" ] && unshare -n true 2>/dev/null; then
	KVFS_TEST_NETWORK=own
	export KVFS_TEST_NETWORK
	exec unshare -n "$0" "$@"
fi
if [ -z "${TMPDIR:-}" ] &&
	[ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1)" -gt 3000000 ] 2>/dev/null; then
	TMPDIR=/dev/shm
	export TMPDIR
fi
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

kv_cleanup()
{
	kv_status=$?
	trap - EXIT
	for kv_pid in $(pgrep -f -- "$tmp/"); do
		[ "$kv_pid" -eq $$ ] || kill -9 "$kv_pid" 2>/dev/null || true
	done
	awk -v d="$tmp/" 'index($2, d) == 1 { print $2 }' /proc/self/mounts | sort -r |
		while read -r kv_mnt; do
			umount -l "$kv_mnt" 2>/dev/null || true
		done
	end_test "$kv_status"
}
trap kv_cleanup EXIT

[ "$(id -u)" -eq 0 ] || skip "mounting needs root"
[ -c /dev/fuse ] || skip "no /dev/fuse"
for kv_tool in jq pgrep "${PYTHON:-python3}" timeout; do
	command -v "$kv_tool" >/dev/null || skip "no $kv_tool"
done
# SIOCSIFFLAGS: up and running
[ "${KVFS_TEST_NETWORK:-}" != own ] || "${PYTHON:-python3}" -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 0x41))'
LOADER=$top_builddir/tests/crash/loader
MODEL=$top_builddir/tests/model/model
long=${KVFS_TEST_LONG:-0}
share=${KVFS_TEST_SHARE:-100} # percent of the rounds and operations, for slow builds
[ "$long" = 0 ] || share=$((share * 10))
seed=${KVFS_TEST_SEED:-$(($(date +%s) % 1000000))}
kv_random=$seed

# draw LOW HIGH: a number of that range in $drawn, by the seed.
draw()
{
	for kv_i in 1 2 3; do
		kv_random=$(((kv_random * 1103515245 + 12345) & 0x7fffffff))
	done
	drawn=$(($1 + (kv_random >> 8) % ($2 - $1 + 1)))
}

# portion N: how many of N to do
portion()
{
	kv_n=$(($1 * share / 100))
	echo $((kv_n > 0 ? kv_n : 1))
}

# make_volume NAME [MKFS-ARGS...]
make_volume()
{
	kv_volume=$1
	shift
	"$MKFS" -q -s 32M "$@" "$tmp/$kv_volume" || fail "mkfs.kvfs failed"
}

# mount_primary VOLUME MOUNTPOINT [OPTIONS], names below $tmp
mount_primary()
{
	mkdir -p "$tmp/$2" 2>/dev/null || true # a dead mount answers ENOTCONN
	timeout 120 "$KVFS" mount -o "arena=${arena:-256M}${3:+,$3}" "$tmp/$1" "$tmp/$2" \
		2>"$tmp/err" || fail "mount of $1: $(cat "$tmp/err")"
}

# mount_volume [OPTIONS]: $tmp/v at $tmp/m
mount_volume()
{
	mount_primary v m "${1:-}"
}

# start_mirror VOLUME MOUNTPOINT-or-'' ADDRESS [OPTIONS]
start_mirror()
{
	[ -z "$2" ] || mkdir -p "$tmp/$2" 2>/dev/null || true
	timeout 120 "$KVFS" mirror -o "arena=${arena:-256M},listen=$3${4:+,$4}" "$tmp/$1" \
		${2:+"$tmp/$2"} \
		2>"$tmp/err" || fail "mirror $1: $(cat "$tmp/err")"
}

unmount()
{
	timeout 120 "$KVFS" umount "$tmp/$1" 2>"$tmp/err" || fail "umount of $1: $(cat "$tmp/err")"
}

# status_of WHERE JQ-EXPRESSION
status_of()
{
	timeout 30 "$KVFS" status --json "$tmp/$1" 2>/dev/null | jq -r "$2"
}

pid_of()
{
	status_of "$1" .pid
}

# $await_end PID SECONDS, for scripts too: until all threads of the process have ended, so that it
# holds no lock and no device any more. It need not be a child of ours, nor be reaped.
cat >"$tmp/await_end" <<'END'
import os, select, sys
try:
    fd = os.pidfd_open(int(sys.argv[1]))
except ProcessLookupError:
    sys.exit(0)
p = select.poll()
p.register(fd, select.POLLIN)
sys.exit(0 if p.poll(int(sys.argv[2]) * 1000) else 1)
END
await_end="${PYTHON:-python3} $tmp/await_end"

# kill_pids PID...: with -9, and waits until they are gone.
kill_pids()
{
	kill -9 "$@"
	for kv_pid in "$@"; do
		$await_end "$kv_pid" 20 || fail "process $kv_pid does not end"
	done
}

# kill_daemon WHERE: with -9, and waits until it is gone.
kill_daemon()
{
	kv_pid=$(pid_of "$1")
	[ -n "$kv_pid" ] || fail "no daemon at $1"
	kill_pids "$kv_pid"
}

# A free TCP port on loopback, by chance, of those that no call goes out from.
free_port()
{
	"${PYTHON:-python3}" -c 'import random, socket
while True:
    port = random.randrange(10000, 30000)
    try:
        socket.socket().bind(("127.0.0.1", port))
    except OSError:
        continue
    print(port)
    break'
}

# Every mirror of the primary is live and has applied all of it: in_sync PRIMARY COUNT
in_sync()
{
	kv_live=".state == \"live\" and .applied_lsn == \$l"
	[ "$(status_of "$1" ".lsn as \$l | [.mirrors[] | select($kv_live)] | length")" = "$2" ]
}

# In $kv_digests: WHERE and the digest of its whole state, a line each. False: not all of the same
# LSN, or one went on meanwhile.
read_digests() # WHERE...
{
	kv_digests=
	kv_lsn=
	for kv_where in "$@"; do
		kv_state=$(timeout 60 "$KVFS" status --json --digest "$tmp/$kv_where" |
			jq -r '"\(.lsn) \(.digest)"')
		[ -n "$kv_state" ] || return 1
		[ "${kv_state%% *}" = "${kv_lsn:=${kv_state%% *}}" ] || return 1
		kv_digests="$kv_digests$kv_where ${kv_state#* }
"
	done
	for kv_where in "$@"; do
		[ "$(status_of "$kv_where" .lsn)" = "$kv_lsn" ] || return 1
	done
}

# same_state WHERE WHERE...: the digests of the whole states. What is unlinked is freed by a record
# of its own, once the kernel has forgotten it: so a state may go on for a moment yet.
same_state()
{
	kv_nodes=$*
	wait_for "read_digests $kv_nodes" 30
	[ "$(echo "$kv_digests" | grep -cE '^[^ ]+ [0-9a-f]{32}$')" -eq $# ] ||
		fail "no digests: $kv_digests"
	[ "$(echo "$kv_digests" | sed -n 's/.* //p' | sort -u | wc -l)" -eq 1 ] ||
		fail "not the same state at LSN $kv_lsn: $kv_digests"
}

# tree DIR: every object with what users can see of it, and the sums of the files.
tree()
{
	(cd "$tmp/$1" && find . -printf '%P %y %m %U %G %s %T@ %n %l\n' | sort &&
		find . -type f -print0 | sort -z | xargs -0 -r sha256sum)
}

# same_tree WHERE VIEW: both show the same. A view's old pages go a moment after the change.
same_tree()
{
	tree "$1" >"$tmp/tree-1"
	# shellcheck disable=SC2034 # wait_for evaluates it
	kv_view=$2
	(wait_for 'tree "$kv_view" >"$tmp/tree-2"; cmp -s "$tmp/tree-1" "$tmp/tree-2"' 10) ||
		fail "$1 and $2 differ: $(diff "$tmp/tree-1" "$tmp/tree-2" | head -n 20)"
}

# verified WHERE: the loader finds there what $tmp/journal says. A view: likewise.
verified()
{
	kv_view=$1
	(wait_for '"$LOADER" verify "$tmp/$kv_view" "$tmp/journal" >"$tmp/out"' 10) ||
		fail "$1: $(cat "$tmp/out")"
}

# one_mount LOG-SIZE [OPTIONS]: a volume and its mount at $mnt, for tests of what is done there.
one_mount()
{
	expect 0 "$MKFS" -q -s "$1" "$tmp/v"
	kv_options=${2:-}
	mount_primary v mnt "$kv_options"
	mnt=$tmp/mnt
}

need()
{
	for kv_tool in "$@"; do
		command -v "$kv_tool" >/dev/null || skip "no $kv_tool"
	done
}

# That mount is killed with -9 and made again.
crash_mount()
{
	kill_pids "$(pid_of mnt)"
	mount_primary v mnt "$kv_options"
}
