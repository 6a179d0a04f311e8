#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The transports' contract over verbs, memory registered with a device (a GPU's refused by it), and
# replication over it (wrong epochs, corrupt records, lost lanes, resync), both ends in one guest on
# one device.
# shellcheck source=tests/vm/functions.sh
. "$(dirname "$0")/functions.sh"

unit=$top_builddir/tests/unit
rig_up 1 --memory 1536M
vm_timeout=300
transport="KVFS_TEST_ONLY_VERBS=1 KVFS_TEST_PATIENCE=4 CK_TIMEOUT_MULTIPLIER=4"
must 1 "$transport '$unit/test_transport'"
must 1 "$transport '$unit/test_transport_lanes'"
must 1 "$transport '$unit/test_transport_verbs_setup'"
must 1 "TMPDIR=/tmp '$unit/test_region_verbs'"
must 1 "$transport KVFS_TEST_CYCLES=30 '$unit/test_transport_cycles'"
replication="KVFS_TEST_TRANSPORT=verbs TMPDIR=/tmp CK_TIMEOUT_MULTIPLIER=8"
for case in fault away refuse; do
	must 1 "$replication CK_RUN_CASE=$case '$unit/test_repl'"
done
must 1 "$replication CK_RUN_CASE=epoch '$unit/test_repl_hostile'"
must 1 "$replication CK_RUN_CASE=load '$unit/test_repl_load'"
must 1 "$replication CK_RUN_CASE=batches '$unit/test_repl_lanes'"
