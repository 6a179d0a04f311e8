#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An arena in hugepages that the machine has reserved: it takes them, what is written comes back,
# also after kill -9. Without enough of them: ordinary pages.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

nr=/proc/sys/vm/nr_hugepages
before=$(cat "$nr" 2>/dev/null) || skip "no hugepages in this kernel"
given_back()
{
	hugepages_status=$?
	set +e
	echo "$before" >"$nr" 2>/dev/null || true
	(exit "$hugepages_status")
	kv_cleanup
}
trap given_back EXIT

free_huge() { awk '/^HugePages_Free:/ { f = $2 } /^HugePages_Rsvd:/ { r = $2 }
	END { print f - r }' /proc/meminfo; }
# in_huge WHERE: KiB that its daemon has mapped in them
in_huge()
{
	awk -v page="$page" '$1 == "Size:" { size = $2 }
		$1 == "KernelPageSize:" && $2 == page { sum += size }
		END { print sum + 0 }' "/proc/$(pid_of "$1")/smaps"
}
page=$(awk '/^Hugepagesize:/ { print $2 }' /proc/meminfo)
arena=32M
want=$((32768 / page))
[ $((want * page)) -eq 32768 ] || skip "hugepages of $page KiB are too large"
echo $((before + want + want / 2)) >"$nr" 2>/dev/null || skip "hugepages can't be reserved"
free=$(free_huge)
[ "$free" -ge "$want" ] || skip "only $free hugepages of $want can be had"

# The mount takes them. The arena of another test may be quicker: then once more, with as many more.
mount_huge()
{
	for huge_try in 1 2 3 4 5; do
		mount_volume
		[ "$(status_of m .memory.hugepages)" != true ] || break
		[ "$huge_try" -lt 5 ] && [ "$(free_huge)" -lt "$want" ] ||
			fail "no hugepages: $(status_of m .memory)"
		unmount m
		echo $(($(cat "$nr") + want)) >"$nr"
	done
	[ "$(in_huge m)" -eq 32768 ] || fail "$(in_huge m) KiB are in hugepages"
}

make_volume v
make_volume s --join "$tmp/v/key"
mount_huge
# The rest is too few for another arena.
if [ "$(free_huge)" -lt "$want" ]; then
	start_mirror s '' "shm:$tmp/ring"
	[ "$(in_huge s)" -eq 0 ] || fail "the mirror has $(in_huge s) KiB in hugepages"
fi
head -c 16000000 /dev/urandom >"$tmp/blob"
cp "$tmp/blob" "$tmp/m/blob"
for i in 1 2 3 4 5; do
	echo "small $i" >"$tmp/m/small$i"
done
cmp "$tmp/blob" "$tmp/m/blob" || fail "what was written"
kill_daemon m
mount_huge
cmp "$tmp/blob" "$tmp/m/blob" || fail "after kill -9"
[ "$(cat "$tmp/m/small3")" = "small 3" ] || fail "a small key"
unmount m
