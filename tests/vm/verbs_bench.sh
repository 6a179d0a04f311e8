#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvfs bench --replication in a guest with an RDMA device: the table has tcp, shm and verbs, static
# and tuned, every operation succeeds, and what the emulated device says is marked as no speed.
# shellcheck source=tests/vm/functions.sh
. "$(dirname "$0")/functions.sh"

command -v jq >/dev/null || skip "no jq"

# bench wants 512 MiB for each of the two volumes, /dev/shm has half of the memory
rig_up 1 --memory 3G
bench="'$KVFS' bench --replication --keys 50 --runs 1 --seconds 1 --warm-up 0.2 \
	-o arena=96M,lanes=4"
vm_timeout=600 must 1 "$bench --load closed --value 4K --settle 2 --json" >"$tmp/json"
jq -e '([.rows[] | [.transport, .value_bytes, .settings]] | unique | length) == 6 and
	([.rows[].transport] | unique) == ["shm", "tcp", "verbs"] and (.left_out | length) == 0 and
	.emulated_device == "rxe0" and all(.rows[];
		.errors == 0 and .operations_per_second.median > 0 and
		.p99_us.median <= .p999_us.median and .emulated == (.transport == "verbs"))' \
	"$tmp/json" >/dev/null || fail "$(cat "$tmp/json")"
jq -r '.rows[] | "\(.transport) \(.value_bytes) \(.settings): \(.operations_per_second.median)"' \
	"$tmp/json"
must 1 "$bench --transport tcp,verbs --load a --value 4K --settings static \
	--plot /root/plot.svg" >"$tmp/table"
cat "$tmp/table"
grep -q '^verbs\* .*4.00 KiB' "$tmp/table" || fail "no row of verbs"
grep -q 'rxe0 is an emulated RDMA device: it shows function, not speed' "$tmp/table" ||
	fail "not marked as emulated"
must 1 'grep -q "its bars show function, not speed" /root/plot.svg'
