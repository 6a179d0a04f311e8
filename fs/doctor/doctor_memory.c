/* SPDX-License-Identifier: Apache-2.0 */
/* Locked memory, huge pages, NUMA: see doctor.h. */
#include "fs/doctor/doctor_internal.h"

#include "common/units.h"

#include <stdlib.h>
#include <string.h>

#define NODE_DIR "/sys/devices/system/node"
#define CAP_IPC_LOCK_BIT 14
#define LOCKED_MIN_BYTES (64ULL << 20) /* io_uring's buffers of a checkpoint, and room */

/* Hard limit of locked memory; UINT64_MAX without one. */
static bool memlock_limit(const struct doctor *d, uint64_t *ret_bytes)
{
	char text[4096], hard[32], *line;

	if (doctor_read(d, text, sizeof(text), "/proc/self/limits") != 0 ||
	    !(line = strstr(text, "Max locked memory")) ||
	    sscanf(line, "Max locked memory %*s %31s", hard) != 1)
		return false;
	*ret_bytes = strcmp(hard, "unlimited") == 0 ? UINT64_MAX : strtoull(hard, NULL, 10);
	return true;
}

/* The kernel doesn't apply the limit to who may lock all memory. */
static bool may_lock_all(const struct doctor *d)
{
	char text[4096], *line;

	if (doctor_read(d, text, sizeof(text), "/proc/self/status") != 0 ||
	    !(line = strstr(text, "\nCapEff:")))
		return false;
	return (strtoull(line + 8, NULL, 16) >> CAP_IPC_LOCK_BIT) & 1;
}

static void check_memlock(struct doctor *d)
{
	static const char *const remedy =
		"ulimit -l unlimited; for good: memlock in /etc/security/limits.d "
		"(scripts/tune-host), "
		"LimitMEMLOCK=infinity in a unit file";
	uint64_t limit = 0, memory_kib = 0;
	bool rdma = doctor_has_rdma(d);
	char text[UNITS_TEXT_BYTES];

	if (!memlock_limit(d, &limit)) {
		doctor_say(d, "memory.memlock", DOCTOR_NA, "", "the limit of locked memory is "
			   "not known");
		return;
	}
	doctor_line_u64(d, "/proc/meminfo", "MemTotal:", &memory_kib);
	units_format_size(limit, text);
	if (limit == UINT64_MAX)
		doctor_say(d, "memory.memlock", DOCTOR_OK, "", "locked memory is not limited");
	else if (may_lock_all(d))
		doctor_say(d, "memory.memlock", DOCTOR_OK, "", "locked memory is limited to %s, "
			   "not for this user "
			   "(CAP_IPC_LOCK)", text);
	else if (rdma && limit < (memory_kib << 10) / 2)
		doctor_say(d, "memory.memlock", DOCTOR_FAIL, remedy, "only %s may be locked: the "
			   "arena can't be "
			   "registered for RDMA", text);
	else if (limit < LOCKED_MIN_BYTES)
		doctor_say(d, "memory.memlock", DOCTOR_WARN, remedy, "only %s may be locked: "
			   "checkpoints may get no "
			   "registered buffers", text);
	else
		doctor_say(d, "memory.memlock", DOCTOR_OK, "", "%s may be locked", text);
}

static void check_hugepages(struct doctor *d)
{
	uint64_t total = 0, free_pages = 0, kib = 0;
	char thp[128] = "";

	doctor_line_u64(d, "/proc/meminfo", "HugePages_Total:", &total);
	doctor_line_u64(d, "/proc/meminfo", "HugePages_Free:", &free_pages);
	doctor_line_u64(d, "/proc/meminfo", "Hugepagesize:", &kib);
	if (total > 0)
		doctor_say(d, "memory.hugepages", DOCTOR_OK, "", "%llu of %llu reserved pages of "
			   "%llu KiB are free",
			   (unsigned long long)free_pages, (unsigned long long)total, (unsigned
			   long long)kib);
	else if (doctor_read(d, thp, sizeof(thp),
		 "/sys/kernel/mm/transparent_hugepage/shmem_enabled") != 0)
		doctor_say(d, "memory.hugepages", DOCTOR_WARN, "sysctl vm.nr_hugepages=N "
			   "(scripts/tune-host "
			   "--hugepages SIZE)", "none reserved, and this kernel has no "
			   "transparent ones: more faults, "
			   "more entries in an adapter's tables");
	else if (doctor_has_rdma(d))
		doctor_say(d, "memory.hugepages", DOCTOR_WARN, "sysctl vm.nr_hugepages=N for the "
			   "arena (scripts/tune-host "
			   "--hugepages SIZE)", "none reserved: memory is made huge pages where "
			   "some are whole, which "
			   "an adapter's tables can't count on");
	else
		doctor_say(d, "memory.hugepages", DOCTOR_OK, "", "none reserved; memory is made "
			   "huge pages as it is taken");
}

void doctor_check_memory(struct doctor *d)
{
	check_memlock(d);
	check_hugepages(d);
}

static uint64_t node_bytes(const struct doctor *d, const char *node)
{
	char text[4096], *line;

	if (doctor_read(d, text, sizeof(text), NODE_DIR "/%s/meminfo", node) != 0 ||
	    !(line = strstr(text, "MemTotal:")))
		return 0;
	return strtoull(line + strlen("MemTotal:"), NULL, 10) << 10;
}

static void check_nodes_without_cpu(struct doctor *d, const struct doctor_names *nodes)
{
	char cpus[256], size[UNITS_TEXT_BYTES];

	for (size_t i = 0; i < nodes->count; i++) {
		uint64_t bytes = node_bytes(d, nodes->name[i]);

		if (bytes == 0 || doctor_read(d, cpus, sizeof(cpus), NODE_DIR "/%s/cpulist",
					      nodes->name[i]) != 0 || cpus[0])
			continue;
		doctor_say(d, "numa.memory", DOCTOR_OK, "", "node %s has %s and no processor (a "
			   "CXL pool or "
			   "PMEM as memory): the arena can lie there with memory=numa:%s",
			   nodes->name[i] + 4,
			   units_format_size(bytes, size), nodes->name[i] + 4);
	}
}

struct placed {
	char what[DOCTOR_NAME_BYTES];
	int node;
};

static size_t placed_devices(const struct doctor *d, struct placed *list, size_t max)
{
	struct doctor_names names;
	size_t n = 0;
	char dir[192];

	doctor_list(d, &names, "", "/sys/class/infiniband");
	for (size_t i = 0; i < names.count && n < max; i++) {
		snprintf(dir, sizeof(dir), "/sys/class/infiniband/%s/device", names.name[i]);
		list[n].node = doctor_node_of(d, dir);
		snprintf(list[n].what, sizeof(list[n].what), "%s", names.name[i]);
		n += list[n].node >= 0;
	}
	doctor_list(d, &names, "namespace", "/sys/bus/nd/devices");
	for (size_t i = 0; i < names.count && n < max; i++) {
		int64_t bytes = 0;

		snprintf(dir, sizeof(dir), "/sys/bus/nd/devices/%s", names.name[i]);
		doctor_read_i64(d, &bytes, "%s/size", dir);
		list[n].node = doctor_node_of(d, dir);
		snprintf(list[n].what, sizeof(list[n].what), "%s", names.name[i]);
		n += bytes > 0 && list[n].node >= 0;
	}
	return n;
}

static void check_placement(struct doctor *d)
{
	struct placed list[32];
	size_t n = placed_devices(d, list, sizeof(list) / sizeof(list[0]));
	char remedy[192];

	if (n == 0) {
		doctor_say(d, "numa.placement", DOCTOR_NA, "", "no RDMA device or PMEM says "
			   "which node it is on");
		return;
	}
	for (size_t i = 1; i < n; i++) {
		if (list[i].node == list[0].node)
			continue;
		snprintf(remedy, sizeof(remedy), "use devices of one node, and run kvfs there: "
			 "numactl --cpunodebind=%d kvfs mount -o memory=numa:%d", list[0].node,
			 list[0].node);
		doctor_say(d, "numa.placement", DOCTOR_WARN, remedy, "%s is on node %d, but %s "
			   "on node %d",
			   list[0].what, list[0].node, list[i].what, list[i].node);
		return;
	}
	doctor_say(d, "numa.placement", DOCTOR_OK, "", "%s%s on node %d: run kvfs there (numactl "
		   "--cpunodebind=%d), with memory=numa:%d", list[0].what, n > 1 ? " and all "
		   "others are" : " is",
		   list[0].node, list[0].node, list[0].node);
}

void doctor_check_numa(struct doctor *d)
{
	struct doctor_names nodes;

	doctor_list(d, &nodes, "node", NODE_DIR);
	if (nodes.count <= 1) {
		doctor_say(d, "numa.placement", DOCTOR_NA, "", "one memory node: everything is "
			   "near");
		return;
	}
	check_nodes_without_cpu(d, &nodes);
	check_placement(d);
}
