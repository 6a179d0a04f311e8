#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvfs doctor on kernel, FUSE, io_uring, huge pages, PMEM, processors and clock: each check can pass
# and fail.
# shellcheck source=tests/shell/doctor_functions.sh
. "$(dirname "$0")/doctor_functions.sh"
cpu=sys/devices/system/cpu
nd=sys/bus/nd/devices
parameters=sys/module/fuse/parameters

finds kernel.release n/a
put proc/sys/kernel/osrelease 6.1.0-30-amd64
finds kernel.release ok 6.1.0
put proc/sys/kernel/osrelease 5.10.0-9-amd64
finds kernel.release warn "6.1"
limits unlimited 4096
finds limits.files ok 4096
limits unlimited 100
finds limits.files fail "ulimit -Hn"

finds fuse.device fail "modprobe fuse"
put dev/fuse ""
finds fuse.device ok
finds fuse.users warn "apt-get install fuse3"
put usr/bin/fusermount3 ""
finds fuse.users ok "for root only"
put etc/fuse.conf user_allow_other
finds fuse.users ok "let others in"
finds fuse.uring n/a "6.14"
put $parameters/enable_uring N
finds fuse.uring warn enable_uring
put $parameters/enable_uring Y
finds fuse.uring ok
finds fuse.limits n/a
put $parameters/max_user_bgreq 32
put $parameters/max_user_congthresh 24
finds fuse.limits warn tune-host
put $parameters/max_user_bgreq 1024
put $parameters/max_user_congthresh 768
finds fuse.limits ok
finds io_uring n/a
put proc/sys/kernel/io_uring_disabled 0
finds io_uring ok
put proc/sys/kernel/io_uring_disabled 1
finds io_uring warn io_uring_group
put proc/sys/kernel/io_uring_disabled 2
finds io_uring warn pwrite

put proc/meminfo "HugePages_Total:       0"
finds memory.hugepages warn nr_hugepages
put sys/kernel/mm/transparent_hugepage/shmem_enabled "always within_size advise [never]"
finds memory.hugepages ok
put sys/class/infiniband/mlx5_0/fw_ver 1
finds memory.hugepages warn "adapter's tables"
put proc/meminfo "HugePages_Total:      64
HugePages_Free:       32
Hugepagesize:       2048 kB"
finds memory.hugepages ok "32 of 64"

finds pmem.devices n/a msync
put $nd/region0/read_only 0
put $nd/region0/persistence_domain memory_controller
finds pmem.region ok memory_controller
gone $nd/region0/persistence_domain
finds pmem.region warn "power failure"
put $nd/region0/read_only 1
finds pmem.region fail read-only
put $nd/namespace0.0/size 1073741824
put $nd/namespace0.0/mode fsdax
finds pmem.namespace ok "1.00 GiB, fsdax"
put $nd/namespace0.0/mode devdax
finds pmem.namespace ok devdax
put $nd/namespace0.0/mode raw
finds pmem.namespace warn "ndctl create-namespace"
put sys/block/pmem0/queue/dax 1
finds pmem.block ok
put sys/block/pmem0/queue/dax 0
finds pmem.block warn "no DAX"
put sys/bus/dax/devices/dax1.0/size 1073741824
finds pmem.devdax warn daxctl
put dev/dax1.0 ""
finds pmem.devdax ok /dev/dax1.0
mounted="36 1 259:0 / /mnt/pmem rw,relatime shared:1 - ext4 /dev/pmem0 rw"
put proc/self/mountinfo "$mounted,dax=always"
finds pmem.mount ok /mnt/pmem
put proc/self/mountinfo "$mounted,dax=inode"
finds pmem.mount warn "-o dax"
put proc/self/mountinfo "$mounted"
finds pmem.mount warn "-o dax"

finds cpu.governor n/a
put $cpu/cpu0/cpufreq/scaling_governor performance
put $cpu/cpu1/cpufreq/scaling_governor performance
finds cpu.governor ok
put $cpu/cpu1/cpufreq/scaling_governor powersave
finds cpu.governor warn "1 of 2 processors have governor powersave"
finds cpu.idle n/a
for i in 0 1; do
	put $cpu/cpu$i/cpuidle/state0/latency 2
	put $cpu/cpu$i/cpuidle/state1/latency 133
	put $cpu/cpu$i/cpuidle/state1/name C6
	put $cpu/cpu$i/cpuidle/state1/disable 0
done
finds cpu.idle warn "C6 takes 133 us"
put $cpu/cpu0/cpuidle/state1/disable 1
put $cpu/cpu1/cpuidle/state1/disable 1
finds cpu.idle ok "2 us"

finds cpu.irq n/a
put $cpu/online 0-3
for i in 41 42; do
	put sys/class/net/eth1/device/msi_irqs/$i msi
	put proc/irq/$i/effective_affinity_list 2
done
finds cpu.irq warn "all 2 interrupts go to processor 2"
put run/irqbalance/socket ""
finds cpu.irq warn "stop irqbalance"
put proc/irq/42/effective_affinity_list 3
finds cpu.irq ok "several"
finds clock.source n/a
put sys/devices/system/clocksource/clocksource0/current_clocksource hpet
finds clock.source warn "system call"
put sys/devices/system/clocksource/clocksource0/current_clocksource tsc
finds clock.source ok tsc
finds clock.sync n/a

# The same as JSON, and nothing but directories as a root.
"$KVFS" doctor --json --root "$root" >"$tmp/json" && fail "a check had failed"
python3 - "$tmp/json" <<'END' || fail "$(cat "$tmp/json")"
import json, sys
j = json.load(open(sys.argv[1]))
assert j["worst"] == "fail", j["worst"]
by = {c["check"]: c for c in j["checks"]}
assert by["limits.files"]["status"] == "fail" and by["limits.files"]["remedy"]
assert by["clock.source"]["status"] == "ok" and "remedy" not in by["clock.source"]
END
expect 2 "$KVFS" doctor --root "$tmp/json"
one_line "not a directory"
expect 2 "$KVFS" doctor --no-such-flag
