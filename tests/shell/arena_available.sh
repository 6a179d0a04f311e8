#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An arena of more memory than is free is taken, with one line that says so; kvfs status counts a
# key with holes by the memory it takes.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

meminfo() # KEY: KiB
{
	awk -v key="$1:" '$1 == key { print $2 }' /proc/meminfo
}
total=$(meminfo MemTotal)
want=$((total / 1024 * 1024 - 65536))
[ "$want" -gt $(($(meminfo MemAvailable) + 262144)) ] || skip "nearly all memory is free"
make_volume v
arena=256M
mount_volume
[ ! -s "$tmp/err" ] || fail "a small arena: $(cat "$tmp/err")"
truncate -s 40G "$tmp/m/holes"
printf x | dd of="$tmp/m/holes" bs=1 seek=1000000 conv=notrunc 2>/dev/null
keys=$("$KVFS" status "$tmp/m" | grep '^keys')
case $keys in
*" 64.00 KiB used by values, 40.00 GiB by their sizes"*) ;;
*) fail "status of a key with holes: $keys" ;;
esac
unmount m
arena=${want}K
mount_volume
grep -q "memory are free now.*smaller arena=" "$tmp/err" || fail "no warning: $(cat "$tmp/err")"
[ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "not one line: $(cat "$tmp/err")"
echo a >"$tmp/m/key"
[ "$(cat "$tmp/m/key")" = a ] || fail "the mount does not work"
unmount m
