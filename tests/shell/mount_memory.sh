#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The option memory=: what can't be had is refused with its remedy, a GPU's falls back to the host's
# and says so. Memory of a node without processors and of a device-DAX: tests/vm.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

expect 0 "$MKFS" -q -s 16M "$tmp/v"
mkdir "$tmp/mnt"
refused() # STATUS MEMORY TEXT
{
	expect "$1" "$KVFS" mount -o "arena=32M,memory=$2" "$tmp/v" "$tmp/mnt"
	one_line "$3"
}
refused 2 disk "numa:NODE"
refused 2 numa:x "numa:NODE"
refused 1 numa:1000 "no such node"
refused 1 devdax:/dev/null "no device-DAX"
refused 1 devdax:/dev/no-such-dax "No such file"
expect 1 "$KVFS" mount -o "memory=gpu" "$tmp/v" "$tmp/mnt"
one_line "arena="
expect 2 "$KVFS" mirror -o "memory=disk,listen=tcp:127.0.0.1:0" "$tmp/v"
one_line "numa:NODE"

if [ ! -e /dev/nvidia0 ]; then
	mount_primary v mnt memory=gpu
	one_line "host memory is used"
	one_line "libcuda"
	echo a >"$tmp/mnt/a"
	wrote_a=1
	unmount mnt
fi
[ -d /sys/devices/system/node/node0 ] || skip "this kernel has no NUMA nodes"
mount_primary v mnt memory=numa:0
[ -z "${wrote_a:-}" ] || [ "$(cat "$tmp/mnt/a")" = a ] || fail "lost"
head -c 20000000 /dev/zero >"$tmp/mnt/b"
[ "$(wc -c <"$tmp/mnt/b")" -eq 20000000 ] || fail "not all there"
grep -q 'bind:0' "/proc/$(pid_of mnt)/numa_maps" || fail "the arena is not bound"
unmount mnt
