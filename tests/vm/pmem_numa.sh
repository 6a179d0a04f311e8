#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The arena on a NUMA node without processors, as a CXL pool appears: values lie there and nowhere
# else, and go to a mirror from there by RDMA. A node that is too small or not there is an error;
# kvfs doctor names it. GPU memory falls back to the host's.
# shellcheck source=tests/vm/pmem_functions.sh
. "$(dirname "$0")/pmem_functions.sh"
rig_up 1 --memory 1536M --nvdimm 64M --pmem fsdax --far 256M

guest <<'END'
"$KVFS" doctor >/tmp/doctor || true
grep -q '^ok  *numa.memory .*memory=numa:1' /tmp/doctor || no "$(cat /tmp/doctor)"
free_kib() { awk '/MemFree/ { print $4 }' "/sys/devices/system/node/node$1/meminfo"; }
mkdir -p /tmp/m
"$MKFS" -q -s 128M /tmp/v
"$MKFS" -q -s 64M --join /tmp/v/key /tmp/w
"$KVFS" mirror -o arena=128M,ring=8M,ack_timeout=18,listen=verbs:10.77.0.1:7000 /tmp/w
before=$(free_kib 1)
"$KVFS" mount -o arena=128M,mr_cache_size=16M,memory=numa:1,ack_timeout=18 \
	-o lanes=2,lanes_open=4,mirror=verbs:10.77.0.1:7000 /tmp/v /tmp/m
dd if=/dev/urandom of=/tmp/m/big bs=1M count=40 2>/dev/null
sha256sum </tmp/m/big >/tmp/sum
taken=$((before - $(free_kib 1)))
[ "$taken" -gt 38000 ] || no "node 1 gave only $taken KiB"
sent_in_place /tmp/w
"$KVFS" umount /tmp/m
"$KVFS" umount /tmp/w
"$KVFS" mount -o arena=1G,memory=numa:1 /tmp/v /tmp/m 2>/tmp/err && no "took more than the node has"
says "give a smaller arena=" /tmp/err
"$KVFS" mount -o arena=64M,memory=numa:7 /tmp/v /tmp/m 2>/tmp/err && no "took memory of no node"
says "no such node" /tmp/err
"$KVFS" mount -o arena=64M,memory=gpu /tmp/v /tmp/m 2>/tmp/err
says "libcuda" /tmp/err
says "host memory is used" /tmp/err
sha256sum </tmp/m/big | cmp - /tmp/sum || no "other bytes"
"$KVFS" umount /tmp/m
END
