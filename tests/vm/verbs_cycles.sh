#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# 10 000 connects and disconnects over verbs (or KVFS_TEST_CYCLES) leak nothing: four processes
# share them, and each counts its descriptors, its memory and what the kernel lists as RDMA
# objects of all. In one guest, on one device. Given up after 35 minutes, or $vm_timeout seconds.
# shellcheck source=tests/vm/functions.sh
. "$(dirname "$0")/functions.sh"

each=$((${KVFS_TEST_CYCLES:-10000} / 4))
vm_timeout=${vm_timeout:-2100}
vm_lifetime=$((vm_timeout + 300)) rig_up 1 --memory 1536M
# Check's own limit is 600 s times the multiplier.
must 1 "export KVFS_TEST_ONLY_VERBS=1 KVFS_TEST_OTHERS=1 KVFS_TEST_CYCLES=$each \
		KVFS_TEST_PATIENCE=6 CK_TIMEOUT_MULTIPLIER=$((vm_timeout / 600 + 1))
	for n in 1 2 3 4; do
		'$top_builddir/tests/unit/test_transport_cycles' || touch /tmp/bad &
	done
	wait; [ ! -e /tmp/bad ]"
