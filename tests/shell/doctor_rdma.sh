#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvfs doctor on RDMA devices, locked memory and placement: each check can pass and fail.
# shellcheck source=tests/shell/doctor_functions.sh
. "$(dirname "$0")/doctor_functions.sh"
ib=sys/class/infiniband/mlx5_0

finds rdma.devices n/a "TCP"
rdma_port mlx5_0 "4: ACTIVE" Ethernet eth1 9000
finds rdma.devices ok mlx5_0
finds rdma.nodes ok
finds rdma.port ok "100 Gb/sec"
finds rdma.gid ok "RoCE v2"
finds rdma.mtu ok 9000
finds rdma.retries n/a
finds rdma.operations n/a

gone dev/infiniband/rdma_cm
finds rdma.nodes fail "modprobe rdma_ucm"
gone dev/infiniband
finds rdma.nodes fail "modprobe ib_uverbs"
put $ib/ports/1/state "1: DOWN"
finds rdma.port fail "ip link set up"
put $ib/ports/1/link_layer InfiniBand
put $ib/ports/1/state "2: INIT"
finds rdma.port fail opensm
put $ib/ports/1/state "4: ACTIVE"
finds rdma.port ok InfiniBand
finds rdma.mtu n/a
put $ib/ports/1/link_layer Ethernet
put sys/class/net/eth1/mtu 1500
finds rdma.mtu warn "packets of 1024 bytes"
gone sys/class/net/eth1
finds rdma.mtu n/a

put $ib/ports/1/gids/1 "0000:0000:0000:0000:0000:0000:0000:0000"
finds rdma.gid warn "IP address"
put $ib/ports/1/gid_attrs/types/0 "IB/RoCE v1"
finds rdma.gid warn "RoCE v1"
gone $ib/ports/1/gids
finds rdma.gid fail "no GID"
put $ib/ports/1/hw_counters/local_ack_timeout_err 0
finds rdma.retries ok
put $ib/ports/1/hw_counters/out_of_sequence 7
finds rdma.retries warn "7 retries"
gone $ib/ports
finds rdma.port fail "no port"

# What may be locked, with a device and without.
put proc/meminfo "MemTotal:       16777216 kB"
limits unlimited 4096
finds memory.memlock ok
limits 8388608 4096
finds memory.memlock fail "LimitMEMLOCK"
put proc/self/status "Name:	kvfs
CapEff:	0000000000004000"
finds memory.memlock ok CAP_IPC_LOCK
gone sys/class/infiniband
limits 8388608 4096
finds memory.memlock warn "registered buffers"
gone proc/self/limits
finds memory.memlock n/a

# Where device and memory are.
finds numa.placement n/a "one memory node"
for node in 0 1 2; do
	put sys/devices/system/node/node$node/meminfo "Node $node MemTotal:       1048576 kB"
	put sys/devices/system/node/node$node/cpulist "$node"
done
finds numa.placement n/a "which node"
put sys/devices/system/node/node2/cpulist ""
finds numa.memory ok "memory=numa:2"
put $ib/device/numa_node 1
finds numa.placement ok "node 1"
put sys/bus/nd/devices/namespace0.0/size 1073741824
put sys/bus/nd/devices/namespace0.0/numa_node 1
finds numa.placement ok "node 1"
put sys/bus/nd/devices/namespace0.0/numa_node 0
finds numa.placement warn "numactl --cpunodebind=1"
