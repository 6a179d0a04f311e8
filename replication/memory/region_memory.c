/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing of memory= and the choice of the back-end: see region_memory.h. */
#include "replication/memory/region_memory.h"

#include "common/units.h"
#include "log/volume_place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct memory_kind {
	const char *name;
	const struct region_backend_ops *ops;
	bool wants_where;
} memory_kinds[] = {
	{ "host", &region_memfd_ops, false },
	{ "numa", &region_numa_ops, true },
	{ "devdax", &region_devdax_ops, true },
	{ "gpu", &region_gpu_ops, false },
};

static bool where_fits(const struct memory_kind *k, const char *where)
{
	uint64_t number;

	if (k->ops == &region_memfd_ops)
		return where == NULL;
	if (k->ops == &region_devdax_ops)
		return where && where[0] == '/';
	return where ? units_parse_u64(where, 0, 1023, &number) == 0 : !k->wants_where;
}

int region_memory_parse(const char *text, struct region_memory *ret_memory,
			char why[REGION_MEMORY_WHY_BYTES])
{
	const char *name = text && text[0] ? text : "host", *colon = strchr(name, ':');
	size_t len = colon ? (size_t)(colon - name) : strlen(name);

	for (size_t i = 0; i < sizeof(memory_kinds) / sizeof(memory_kinds[0]); i++) {
		const struct memory_kind *k = &memory_kinds[i];

		if (strlen(k->name) != len || strncmp(k->name, name, len) != 0)
			continue;
		if (!where_fits(k, colon ? colon + 1 : NULL))
			break;
		*ret_memory = (struct region_memory){ .ops = k->ops, .where = colon ? colon + 1
		: NULL };
		return 0;
	}
	snprintf(why, REGION_MEMORY_WHY_BYTES, "memory=%.200s: give host, numa:NODE, "
		 "devdax:/dev/daxX.Y, gpu or "
		 "gpu:NUMBER", name);
	return -EINVAL;
}

static uint64_t node_line(unsigned node, const char *key)
{
	char path[64], text[4096], *line;
	uint64_t kib = 0;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/meminfo", node);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	line = strstr(text, key);
	if (line)
		kib = strtoull(line + strlen(key), NULL, 10);
	return kib << 10;
}

uint64_t region_node_bytes(unsigned node)
{
	return node_line(node, "MemTotal:");
}

uint64_t region_node_free_bytes(unsigned node)
{
	return node_line(node, "MemFree:") + node_line(node, "Inactive(file):");
}

static uint64_t devdax_bytes(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	uint64_t bytes = 0, align;

	if (fd < 0)
		return 0;
	if (!volume_devdax(fd, &bytes, &align))
		bytes = 0;
	close(fd);
	return bytes - bytes % REGION_BYTES;
}

uint64_t region_memory_bytes(const struct region_memory *m)
{
	long pages, page;

	if (m->ops == &region_numa_ops)
		return region_node_bytes((unsigned)strtoul(m->where, NULL, 10));
	if (m->ops == &region_devdax_ops)
		return devdax_bytes(m->where);
	if (m->ops == &region_gpu_ops)
		return 0;
	pages = sysconf(_SC_PHYS_PAGES);
	page = sysconf(_SC_PAGESIZE);
	return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

static const char *gpu_why(int err)
{
	switch (err) {
	case -ENOENT:
		return "CUDA's driver library (libcuda.so.1) is not there or too old";
	case -ENODEV:
		return "CUDA finds no such device";
	case -EOPNOTSUPP:
		return "the device can't share its memory by dmabuf (it needs the open kernel "
								     "modules)";
	case -ENXIO:
		return "the driver lets the processor not map the device's memory";
	default:
		return "the device has not enough free memory";
	}
}

const char *region_memory_why(const struct region_memory *m, int err)
{
	if (m->ops == &region_gpu_ops)
		return gpu_why(err);
	if (err == -ENODEV)
		return m->ops == &region_numa_ops ? "there is no such node with memory; see kvfs "
			"doctor" :
		       "it is no device-DAX; see kvfs doctor";
	if (err == -EEXIST)
		return "it holds a log (a libpmemlog pool); use another device";
	if (err == -EBUSY)
		return "it is in use by another kvfs";
	if (err == -EPERM)
		return "memory may not be bound to a node here; run as root, or without a cpuset "
			"that forbids it";
	if (err == -EMFILE || err == -ENFILE)
		return "raise the limit of open files (ulimit -n)";
	if (err == -EFBIG)
		return "raise the limit of file sizes (ulimit -f)";
	return "give a smaller arena=";
}

static bool may_lock_all(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	return syscall(SYS_capget, &header, data) == 0 && (data[0].effective >> CAP_IPC_LOCK) & 1;
}

int region_memlock_check(uint64_t bytes, char why[REGION_MEMORY_WHY_BYTES])
{
	char want[UNITS_TEXT_BYTES], have[UNITS_TEXT_BYTES];
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
	    limit.rlim_cur >= bytes || may_lock_all())
		return 0;
	snprintf(why, REGION_MEMORY_WHY_BYTES, "only %s may be locked, and registering the arena "
		 "with an RDMA device "
		 "locks %s: raise the limit (ulimit -l unlimited; a unit file: "
		 "LimitMEMLOCK=infinity)",
		 units_format_size(limit.rlim_cur, have), units_format_size(bytes, want));
	return -ENOMEM;
}

int region_address_reserve(uint64_t len, uint64_t align, uint8_t **ret_base)
{
	uint8_t *p = mmap(NULL, len + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS |
			  MAP_NORESERVE, -1, 0);
	size_t head;

	if (p == MAP_FAILED)
		return -errno;
	head = -(uintptr_t)p & (align - 1);
	if (head)
		munmap(p, head);
	munmap(p + head + len, align - head);
	*ret_base = p + head;
	return 0;
}
