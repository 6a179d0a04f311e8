#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Whatever process starts the programs: closed descriptors, a umask of 777, no working directory, no
# environment, no /proc, no memory to lock, a library told that everything is persistent memory.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"
# shellcheck source=tests/shell/bad_functions.sh
. "$(dirname "$0")/bad_functions.sh"

make_volume v -s 16M
mkdir "$tmp/m"
works()
{
	echo "$1" >"$tmp/m/key" && [ "$(cat "$tmp/m/key")" = "$1" ] ||
		fail "$1: the mount does not work"
	expect 0 "$KVFS" umount "$tmp/m"
	nothing_left
	expect 0 "$FSCK" "$tmp/v"
}

# closed descriptors are not taken for the volume's files
for closed in '<&-' '>&-' '2>&-' '<&- >&- 2>&-'; do
	eval "'$KVFS' mount -o arena=64M '$tmp/v' '$tmp/m' $closed" ||
		fail "mount with $closed gave $?"
	works "with $closed"
	"$MKFS" -q -s 16M "$tmp/n" || fail "mkfs.kvfs"
	eval "'$MKFS' -s 16M '$tmp/n' $closed" >/dev/null 2>&1 &&
		fail "mkfs.kvfs overwrote a volume"
	eval "'$FSCK' '$tmp/n' $closed" >/dev/null 2>&1 || [ "$closed" != '<&-' ] ||
		fail "fsck.kvfs with $closed gave $?"
	expect 0 "$FSCK" "$tmp/n"
	rm -r "$tmp/n"
	eval "'$MKFS' -s 16M '$tmp/n' $closed" >/dev/null 2>&1 || :
	expect 0 "$FSCK" "$tmp/n"
	rm -r "$tmp/n"
	eval "'$KVFS' mount -o arena=64M '$tmp/none' '$tmp/m' $closed" >/dev/null 2>&1 &&
		fail "mounted nothing"
	nothing_left
done
if [ -e /dev/full ]; then
	expect 0 "$KVFS" mount -o arena=64M "$tmp/v" "$tmp/m"
	"$KVFS" status "$tmp/m" >/dev/full 2>"$tmp/err" && fail "a full output is no error"
	one_line "No space left"
	expect 0 "$KVFS" umount "$tmp/m"
fi

# a umask that takes away our own rights
mask=$(umask)
umask 777
"$MKFS" -q -s 16M "$tmp/masked"
"$KVFS" mount -o arena=64M "$tmp/v" "$tmp/m"
umask "$mask"
modes=$(find "$tmp/masked" -printf '%m ' | tr ' ' '\n' | sort -u | tr '\n' ' ')
[ "$modes" = " 600 700 " ] || [ "$modes" = "600 700 " ] || fail "modes of the volume: $modes"
works "umask 777"

# no working directory
mkdir "$tmp/gone"
(
	cd "$tmp/gone"
	rmdir "$tmp/gone"
	expect 0 "$KVFS" mount -o arena=64M "$tmp/v" "$tmp/m"
	refuse 1 "no such directory" mount v "$tmp/m2" || :
) 2>/dev/null || :
works "no working directory"

# no environment
expect 0 env -i "$KVFS" mount -o arena=64M "$tmp/v" "$tmp/m"
works "no environment"
expect 0 env -i TMPDIR=/nowhere HOME=/nowhere "$KVFS" mount -o arena=64M "$tmp/v" "$tmp/m"
works "a false TMPDIR"

# nothing needs locked memory without RDMA
if command -v setpriv >/dev/null; then
	expect 0 sh -c "ulimit -l 0 &&
		exec setpriv --bounding-set -ipc_lock '$KVFS' mount -o arena=64M '$tmp/v' '$tmp/m'"
	expect 0 "$KVFS" checkpoint "$tmp/m"
	works "no locked memory"
fi

# PMEM_IS_PMEM_FORCE turns off the library's msync: kvfs then syncs itself
expect 0 env PMEM_IS_PMEM_FORCE=1 "$KVFS" mount -o arena=64M "$tmp/v" "$tmp/m"
works "forced persistent memory"

# SIGCHLD ignored by whoever starts us; a terminal that goes away
expect 0 sh -c "trap '' CHLD HUP PIPE; exec '$KVFS' mount -o arena=64M '$tmp/v' '$tmp/m'"
works "signals ignored"
expect 1 sh -c "trap '' CHLD; exec '$KVFS' mount -o arena=64M '$tmp/none' '$tmp/m'"
one_line "no such directory"

# no /dev/null
if unshare -m mount -t tmpfs none /dev 2>/dev/null; then
	for closed in '' '<&- >&-' '<&- >&- 2>&-'; do
		for program in "$KVFS" "$MKFS" "$FSCK"; do
			unshare -m sh -c "mount -t tmpfs none /dev && exec '$program' -V $closed" ||
				fail "$program with $closed and without /dev/null gave $?"
		done
	done
	# $tmp may lie in /dev/shm
	(cd "$tmp" && expect 0 unshare -m sh -c \
		"mount -t tmpfs none /dev && exec '$FSCK' v <&-") || exit 1
fi

# no /proc; sanitizers say things of their own without it
if ! sanitized && unshare -m umount -l /proc 2>/dev/null; then
	expect 1 unshare -m sh -c \
		"umount -l /proc && exec '$KVFS' mount -o arena=64M '$tmp/v' '$tmp/m'"
	one_line "/proc is needed"
	expect 1 unshare -m sh -c "umount -l /proc && exec '$MKFS' -q -s 16M '$tmp/noproc'"
	one_line "/proc is needed"
	[ ! -e "$tmp/noproc" ] || fail "mkfs.kvfs left something"
fi
nothing_left
