/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arena memory from memfd segments of at most 1 GiB (io_uring's limit for a registered buffer),
 * mapped side by side into one reserved range of addresses. Pages come by MADV_POPULATE_WRITE,
 * which reports an exhausted machine as an error where a touch would be a SIGBUS. They go by
 * punching a hole.
 *
 * A segment lies in reserved hugepages only when enough of them are free for all of it; it then
 * keeps them, for nobody else can use them and a hole would lose the reservation. Elsewhere
 * MADV_COLLAPSE makes huge pages of ordinary memory, also where the machine's settings for shmem
 * are "never": in a virtual machine the first use of each 4 KiB page was measured at 10 us (17 ms a
 * region), of huge ones at next to nothing.
 *
 * numa: the segments' pages are bound to one node (mbind on a shared mapping binds the memory,
 * whoever faults it in). A node that is full is an error there, not another node's memory.
 *
 * Threads: commit and decommit from any, on ranges that do not overlap.
 */
#include "replication/memory/region_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/memfd.h>
#include <linux/mempolicy.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

#define HUGE_BYTES (2ULL << 20)

/* Left to the rest of the machine: below it the kernel would look for a process to kill. */
#define MACHINE_SPARE_BYTES (64ULL << 20)
#define NODE_SPARE_BYTES (16ULL << 20)

#define NODE_NONE (-1)
#define NODES_MAX 1024

struct segment {
	int fd;
	bool huge;
};

struct region_memfd {
	uint8_t *base;
	uint64_t arena_bytes;
	int meminfo_fd; /* -1: no /proc */
	int node;       /* all memory is that NUMA node's; NODE_NONE: anywhere */
	bool huge;              /* some segment is in reserved hugepages */
	atomic_bool collapsed;  /* huge pages of ordinary memory work here */
	unsigned segments;
	struct segment segment[];
};

/* A line "key  N[ kB]" of /proc/meminfo, as written there. -ENOENT. */
static int meminfo_read(const struct region_memfd *m, const char *key, uint64_t *ret_value)
{
	char text[4096], *line;
	ssize_t n;

	if (m->meminfo_fd < 0)
		return -ENOENT;
	n = pread(m->meminfo_fd, text, sizeof(text) - 1, 0);
	if (n <= 0)
		return -ENOENT;
	text[n] = 0;
	line = strstr(text, key);
	if (!line)
		return -ENOENT;
	*ret_value = strtoull(line + strlen(key), NULL, 10);
	return 0;
}

static bool machine_has(const struct region_memfd *m, uint64_t len)
{
	uint64_t available_kib;

	if (m->node != NODE_NONE && region_node_free_bytes((unsigned)m->node) < len +
	    NODE_SPARE_BYTES)
		return false;
	return meminfo_read(m, "\nMemAvailable:", &available_kib) < 0 ||
	       (available_kib << 10) >= len + MACHINE_SPARE_BYTES;
}

/* True when default-size hugepages for all of len are free now. */
static bool hugepages_suffice(const struct region_memfd *m, uint64_t len)
{
	uint64_t free_pages, reserved, page_kib;

	if (meminfo_read(m, "\nHugePages_Free:", &free_pages) < 0 ||
	    meminfo_read(m, "\nHugePages_Rsvd:", &reserved) < 0 ||
	    meminfo_read(m, "\nHugepagesize:", &page_kib) < 0 || page_kib == 0 ||
	    free_pages <= reserved || len % (page_kib << 10))
		return false;
	return (free_pages - reserved) * (page_kib << 10) >= len;
}

static int segment_map(uint8_t *at, uint64_t len, bool huge, int *ret_fd)
{
	int fd = memfd_create("kvfs-arena", MFD_CLOEXEC | (huge ? MFD_HUGETLB : 0));
	int err;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)len) < 0)
		goto fail;
	if (mmap(at, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		goto fail;
	if (!huge)
		(void)madvise(at, len, MADV_HUGEPAGE); /* where the machine allows it for memfd */
	*ret_fd = fd;
	return 0;
fail:
	err = -errno;
	close(fd);
	return err;
}

static int segment_bind(const struct region_memfd *m, uint8_t *at, uint64_t len)
{
	unsigned long mask[NODES_MAX / (8 * sizeof(unsigned long))] = { 0 };
	unsigned bits = 8 * sizeof(mask[0]);

	if (m->node == NODE_NONE)
		return 0;
	mask[(unsigned)m->node / bits] = 1UL << ((unsigned)m->node % bits);
	return syscall(SYS_mbind, at, len, MPOL_BIND, mask, NODES_MAX, 0) == 0 ? 0 : -errno;
}

static int segment_open(struct region_memfd *m, unsigned i, uint64_t huge_bytes)
{
	uint64_t off = i * REGION_SEGMENT_BYTES;
	uint64_t len = m->arena_bytes - off;
	struct segment *seg = &m->segment[i];
	int err;

	seg->fd = -1;
	if (len > REGION_SEGMENT_BYTES)
		len = REGION_SEGMENT_BYTES;
	/* how many reserved ones a node has is not asked */
	seg->huge = off < huge_bytes && m->node == NODE_NONE && hugepages_suffice(m, len);
	if (seg->huge && segment_map(m->base + off, len, true, &seg->fd) == 0) {
		m->huge = true;
		return 0;
	}
	seg->huge = false;
	err = segment_map(m->base + off, len, false, &seg->fd);
	if (!err)
		err = segment_bind(m, m->base + off, len);
	if (err && seg->fd >= 0)
		close(seg->fd);
	return err;
}

static void memfd_close(void *be)
{
	struct region_memfd *m = be;

	munmap(m->base, m->arena_bytes);
	for (unsigned i = 0; i < m->segments; i++)
		close(m->segment[i].fd);
	if (m->meminfo_fd >= 0)
		close(m->meminfo_fd);
	free(m);
}

static int node_open(int node, uint64_t arena_bytes, uint64_t huge_bytes, void **ret_be,
		     uint8_t **ret_base)
{
	uint64_t segments = (arena_bytes + REGION_SEGMENT_BYTES - 1) / REGION_SEGMENT_BYTES;
	struct region_memfd *m = calloc(1, sizeof(*m) + segments * sizeof(m->segment[0]));
	int err;

	if (!m)
		return -ENOMEM;
	m->arena_bytes = arena_bytes;
	m->node = node;
	err = region_address_reserve(arena_bytes, REGION_BYTES, &m->base);
	if (err) {
		free(m);
		return err;
	}
	m->meminfo_fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
	while (m->segments < segments) {
		err = segment_open(m, m->segments, huge_bytes);
		if (err) {
			memfd_close(m);
			return err;
		}
		m->segments++;
	}
	*ret_be = m;
	*ret_base = m->base;
	return 0;
}

static int memfd_open(const char *where, uint64_t arena_bytes, uint64_t huge_bytes, void **ret_be,
		      uint8_t **ret_base)
{
	(void)where;
	return node_open(NODE_NONE, arena_bytes, huge_bytes, ret_be, ret_base);
}

static int numa_open(const char *where, uint64_t arena_bytes, uint64_t huge_bytes, void **ret_be,
		     uint8_t **ret_base)
{
	unsigned long node = strtoul(where, NULL, 10);

	if (node >= NODES_MAX || region_node_bytes((unsigned)node) == 0)
		return -ENODEV;
	return node_open((int)node, arena_bytes, huge_bytes, ret_be, ret_base);
}

static void hole_punch(const struct segment *seg, uint64_t off, uint64_t len)
{
	(void)fallocate(seg->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			(off_t)(off % REGION_SEGMENT_BYTES), (off_t)len);
}

/* Kernels without MADV_POPULATE_WRITE: allocate by the file first, so that the touch can't fail. */
static int touch(const struct region_memfd *m, const struct segment *seg, uint64_t off, uint64_t
		 len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (fallocate(seg->fd, 0, (off_t)(off % REGION_SEGMENT_BYTES), (off_t)len) < 0)
		return -errno;
	for (uint64_t i = 0; i < len; i += page)
		*(volatile uint8_t *)(m->base + off + i) = 0;
	return 0;
}

/* One small page in each place of a huge one, then the kernel makes it whole, zeroed. Where it
 * can't, the caller's populating gives small ones. */
static void collapse(struct region_memfd *m, uint64_t off, uint64_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	for (uint64_t i = 0; i < len; i += HUGE_BYTES)
		if (madvise(m->base + off + i, page, MADV_POPULATE_WRITE) < 0)
			return;
	if (madvise(m->base + off, len, MADV_COLLAPSE) == 0)
		atomic_store_explicit(&m->collapsed, true, memory_order_relaxed);
}

static int memfd_commit(void *be, uint64_t off, uint64_t len)
{
	struct region_memfd *m = be;
	const struct segment *seg = &m->segment[off / REGION_SEGMENT_BYTES];
	int err = 0;

	if (!seg->huge && !machine_has(m, len))
		return -ENOMEM;
	if (!seg->huge)
		collapse(m, off, len);
	if (madvise(m->base + off, len, MADV_POPULATE_WRITE) < 0)
		err = errno == EINVAL || errno == ENOSYS ? touch(m, seg, off, len) : -errno;
	if (err) {
		hole_punch(seg, off, len);
		return -ENOMEM;
	}
	return 0;
}

static void memfd_decommit(void *be, uint64_t off, uint64_t len)
{
	struct region_memfd *m = be;
	const struct segment *seg = &m->segment[off / REGION_SEGMENT_BYTES];

	if (!seg->huge)
		hole_punch(seg, off, len);
}

static bool memfd_hugepages(void *be)
{
	struct region_memfd *m = be;

	return m->huge || atomic_load_explicit(&m->collapsed, memory_order_relaxed);
}

const struct region_backend_ops region_memfd_ops = {
	.name = "memfd",
	.open = memfd_open,
	.commit = memfd_commit,
	.decommit = memfd_decommit,
	.hugepages = memfd_hugepages,
	.close = memfd_close,
};

const struct region_backend_ops region_numa_ops = {
	.name = "numa",
	.open = numa_open,
	.commit = memfd_commit,
	.decommit = memfd_decommit,
	.hugepages = memfd_hugepages,
	.close = memfd_close,
};
