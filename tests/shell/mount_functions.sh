# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2154,SC2034
# Sourced after functions.sh by tests that mount: a volume in $tmp/v and a mount point in $tmp/m;
# everything mounted below $tmp is taken away at exit, also after a failure.

[ -r /dev/fuse ] && [ -w /dev/fuse ] || skip "no /dev/fuse"
[ "$(id -u)" -eq 0 ] || skip "needs root to mount"

mount_cleanup()
{
	awk -v t="$tmp/" '$5 ~ "^"t { print $5 }' /proc/self/mountinfo | while read -r point; do
		"$KVFS" umount "$point" >/dev/null 2>&1 || umount -l "$point" 2>/dev/null || :
	done
	for volume in "$tmp"/*/; do
		# a dead one's socket stays
		[ ! -S "$volume/control" ] || "$KVFS" umount "$volume" >/dev/null 2>&1 || :
	done
	rm -rf "$tmp"
}
trap mount_cleanup EXIT

# make_volume NAME [MKFS-ARGS...]
make_volume()
{
	make_volume_name=$1
	shift
	"$MKFS" -q -s 32M "$@" "$tmp/$make_volume_name" || fail "mkfs.kvfs failed"
}

# mount_volume [OPTIONS]: $tmp/v at $tmp/m
mount_volume()
{
	mkdir -p "$tmp/m" 2>/dev/null || : # a stale mount answers nothing
	"$KVFS" mount -o "arena=256M${1:+,$1}" "$tmp/v" "$tmp/m" 2>"$tmp/mount.err" ||
		fail "mount failed: $(cat "$tmp/mount.err")"
}

# start_mirror NAME OPTIONS [with-view]
start_mirror()
{
	[ -z "${3:-}" ] || mkdir -p "$tmp/$1.m" 2>/dev/null || :
	"$KVFS" mirror -o "arena=256M,$2" "$tmp/$1" ${3:+"$tmp/$1.m"} 2>"$tmp/mirror.err" ||
		fail "mirror failed: $(cat "$tmp/mirror.err")"
}

# daemon_pid WHERE
daemon_pid()
{
	"$KVFS" status --json "$1" | sed -n 's/^  "pid": \([0-9]*\),*$/\1/p'
}

# kill_daemon WHERE: with SIGKILL; returns when it is gone
kill_daemon()
{
	kill_daemon_pid=$(daemon_pid "$1")
	[ -n "$kill_daemon_pid" ] || fail "no daemon at $1"
	kill -9 "$kill_daemon_pid"
	kill_daemon_state=/proc/$kill_daemon_pid/status
	wait_for "! kill -0 $kill_daemon_pid 2>/dev/null ||
		grep -q '^State:.Z' $kill_daemon_state" 10
}
