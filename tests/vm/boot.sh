#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One guest, with RDMA and persistent memory, from nothing to a command's result: in under 40 s on a
# machine that has nothing else to do; where more runs than it has CPUs, in as many times longer.
# shellcheck source=tests/vm/functions.sh
. "$(dirname "$0")/functions.sh"

begin=$(date +%s)
rig_up 1 --nvdimm 64M
[ "$(on 1 'uname -n')" = guest1 ] || fail "no answer of the guest"
seconds=$(($(date +%s) - begin))
limit=$(awk -v cpus="$(nproc)" '{ n = $1 / cpus; print int(40 * (n > 1 ? n : 1)) }' /proc/loadavg)
load=$(cut -d' ' -f1-3 /proc/loadavg)
echo "one guest: $seconds s to a command's result (limit $limit s, load $load)"
[ "$seconds" -lt "$limit" ] || fail "too slow"
