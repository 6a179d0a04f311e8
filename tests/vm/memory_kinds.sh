#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A guest with a NUMA node that has memory and no CPU, and with two NVDIMMs as device-DAX.
# shellcheck source=tests/vm/functions.sh
. "$(dirname "$0")/functions.sh"

rig_up 1 --no-rdma --far 256M --nvdimm 64M,64M --pmem devdax
must 1 'cat /sys/devices/system/node/has_memory; cat /sys/devices/system/node/has_cpu' >"$tmp/nodes"
[ "$(cat "$tmp/nodes")" = "0-1
0" ] || fail "nodes with memory and with CPUs: $(cat "$tmp/nodes")"
must 1 '[ -c /dev/dax0.0 ] && [ -c /dev/dax1.0 ]'
