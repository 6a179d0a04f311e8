#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154
# scripts/tune-host: -n changes nothing, what is set is what kvfs doctor wants, --undo restores
# every byte, and leaves what somebody else has changed since. On a fake machine, and on this one.
# shellcheck source=tests/shell/doctor_functions.sh
. "$(dirname "$0")/doctor_functions.sh"
TUNE=$top_srcdir/scripts/tune-host
cpu=sys/devices/system/cpu

picture() { (cd "$root" && find . -type f ! -path './var/*' -print0 | sort -z |
	xargs -0 sha256sum); }

for i in 0 1; do
	put $cpu/cpu$i/cpufreq/scaling_governor powersave
	put $cpu/cpu$i/cpufreq/scaling_available_governors "performance powersave"
	put $cpu/cpu$i/cpuidle/state1/latency 133
	put $cpu/cpu$i/cpuidle/state1/disable 0
	put $cpu/cpu$i/cpuidle/state0/latency 2
	put $cpu/cpu$i/cpuidle/state0/disable 0
done
put $cpu/online 0-1
put sys/module/fuse/parameters/max_user_bgreq 12
put sys/module/fuse/parameters/max_user_congthresh 9
put proc/sys/net/core/rmem_max 8388608
put proc/sys/net/core/wmem_max 212992
put proc/sys/vm/nr_hugepages 0
put proc/meminfo "Hugepagesize:       2048 kB"
mkdir -p "$root/etc/security/limits.d"
rdma_port mlx5_0 "4: ACTIVE" Ethernet eth1 1500
for i in 41 42; do
	put sys/class/net/eth1/device/msi_irqs/$i msi
	put proc/irq/$i/smp_affinity_list 0
done
put sys/class/net/eth1/device/local_cpulist 0-1
picture >"$tmp/before"

expect 0 "$TUNE" -n --idle --mtu 9000 --hugepages 512 --prefix "$root"
in_out "powersave -> performance"
picture | diff "$tmp/before" - || fail "-n has changed something"
[ ! -e "$root/var" ] || fail "-n has left a state"

finds cpu.governor warn
finds cpu.idle warn
finds cpu.irq warn
finds fuse.limits warn
finds rdma.mtu warn
expect 0 "$TUNE" --prefix "$root"
expect 0 "$TUNE" --idle --mtu 9000 --hugepages 512 --prefix "$root"
for check in cpu.governor cpu.idle cpu.irq fuse.limits rdma.mtu; do
	finds $check ok
done
[ "$(cat "$root/proc/sys/vm/nr_hugepages")" -eq 256 ] || fail "not 256 huge pages"
[ "$(cat "$root/proc/sys/net/core/rmem_max")" -eq 8388608 ] || fail "lowered what was higher"
grep -q 'memlock unlimited' "$root/etc/security/limits.d/90-kvfs.conf" || fail "no limits of logins"
[ "$(cat "$root/$cpu/cpu0/cpuidle/state0/disable")" -eq 0 ] ||
	fail "a shallow idle state was switched off"
picture >"$tmp/tuned"
expect 0 "$TUNE" --idle --mtu 9000 --hugepages 512 --prefix "$root"
[ ! -s "$tmp/out" ] || fail "a second run does something: $(cat "$tmp/out")"

expect 0 "$TUNE" -n --undo --prefix "$root"
in_out "performance -> powersave"
picture | diff "$tmp/tuned" - || fail "-n --undo has changed something"
expect 0 "$TUNE" --undo --prefix "$root"
picture | diff "$tmp/before" - || fail "--undo has not restored it"
expect 0 "$TUNE" --undo --prefix "$root"
in_out "nothing to undo"

# What somebody else has set since stays, and is said.
expect 0 "$TUNE" --mtu 9000 --prefix "$root"
put sys/class/net/eth1/mtu 4500
expect 1 "$TUNE" --undo --prefix "$root"
one_line "4500"
[ "$(cat "$root/sys/class/net/eth1/mtu")" -eq 4500 ] || fail "another's setting was overwritten"
expect 0 "$TUNE" --prefix "$root"
limits=$root/etc/security/limits.d/90-kvfs.conf
echo '@db - memlock 1024' >>"$limits"
expect 1 "$TUNE" --undo --prefix "$root"
one_line "90-kvfs.conf is not as it was written here"
grep -q '@db - memlock 1024' "$limits" || fail "limits that somebody else wrote are gone"
rm "$limits"
expect 2 "$TUNE" --mtu many
expect 2 "$TUNE" --no-such-flag

# This machine: set and undone, every value that it lists as before.
"$TUNE" -n >"$tmp/plan"
[ "$(id -u)" -eq 0 ] && [ ! -e /var/lib/kvfs/tune-host.state ] || exit 0
real()
{
	sed -n 's/^\(\/[^:]*\):.*/\1/p' "$tmp/plan" | while read -r path; do
		echo "$path $(cat "$path" 2>/dev/null || echo none)"
	done
}
real >"$tmp/before"
"$TUNE" >"$tmp/done" 2>"$tmp/err" || true
"$TUNE" --undo >"$tmp/undone" 2>"$tmp/err" || fail "--undo: $(cat "$tmp/err")"
real | diff "$tmp/before" - || fail "this machine is not as before"
[ ! -e /var/lib/kvfs/tune-host.state ] || fail "the state is left"
