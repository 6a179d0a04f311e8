#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A guest's NVDIMM is real persistent memory to the kernel and to libpmemlog, and keeps its content
# when the guest is killed.
# shellcheck source=tests/vm/functions.sh
. "$(dirname "$0")/functions.sh"

rig_up 1 --nvdimm 128M --no-rdma
must 1 'grep -E "^/dev/pmem0 /pmem0 ext4 .*dax=always" /proc/mounts'
must 1 "'$MKFS' -s 32M /pmem0/v" >"$tmp/out"
in_out "real persistent memory (DAX)"
must 1 'head -c 1000000 /dev/urandom >/pmem0/blob && sync -f /pmem0/blob &&
	sha256sum /pmem0/blob' >"$tmp/sum"
"$RIG" kill 1
expect 125 "$RIG" run -n 1 -- true
one_line "guest 1 is not up"
"$RIG" start 1 || fail "the guest does not start again"
must 1 'sha256sum /pmem0/blob' >"$tmp/sum.after"
cmp "$tmp/sum" "$tmp/sum.after" || fail "the NVDIMM lost its content"
must 1 "'$FSCK' /pmem0/v"
