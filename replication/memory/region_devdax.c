/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arena memory on a device-DAX: persistent memory or a CXL pool that the kernel does not use as its
 * own. Used as plain memory: nothing is kept, and what comes out of commit is zero. The device's
 * flock keeps a second kvfs away, and a log pool's header protects that from being taken for free
 * space.
 *
 * Threads: commit and decommit from any, on ranges that do not overlap.
 */
#include "replication/memory/region_memory.h"

#include "log/volume_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

struct region_devdax {
	uint8_t *base;
	uint64_t bytes; /* mapped */
	uint64_t align;
	int fd;
};

static void devdax_close(void *be)
{
	struct region_devdax *m = be;

	if (m->base)
		munmap(m->base, m->bytes);
	if (m->fd >= 0)
		close(m->fd);
	free(m);
}

static int devdax_map(struct region_devdax *m, uint64_t arena_bytes)
{
	uint64_t align = m->align > REGION_BYTES ? m->align : REGION_BYTES;
	uint8_t *at = NULL;
	int err;

	m->bytes = (arena_bytes + m->align - 1) / m->align * m->align;
	err = region_address_reserve(m->bytes, align, &at);
	if (err)
		return err;
	m->base = at;
	if (mmap(at, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, m->fd, 0) ==
	    MAP_FAILED)
		return -errno;
	return memcmp(at, "PMEMLOG", 8) == 0 ? -EEXIST : 0;
}

static int devdax_open(const char *where, uint64_t arena_bytes, uint64_t huge_bytes, void **ret_be,
		       uint8_t **ret_base)
{
	struct region_devdax *m = calloc(1, sizeof(*m));
	uint64_t bytes = 0;
	int err = 0;

	if (!m)
		return -ENOMEM;
	m->fd = open(where, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (m->fd < 0)
		err = -errno;
	else if (!volume_devdax(m->fd, &bytes, &m->align))
		err = -ENODEV;
	else if (arena_bytes > bytes)
		err = -ENOSPC;
	else if (flock(m->fd, LOCK_EX | LOCK_NB) != 0)
		err = errno == EWOULDBLOCK ? -EBUSY : -errno;
	if (!err)
		err = devdax_map(m, arena_bytes);
	if (err) {
		devdax_close(m);
		return err;
	}
	*ret_be = m;
	*ret_base = m->base;
	return 0;
}

/* Faults it in and takes away what was there. */
static int devdax_commit(void *be, uint64_t off, uint64_t len)
{
	struct region_devdax *m = be;

	memset(m->base + off, 0, len);
	return 0;
}

static void devdax_decommit(void *be, uint64_t off, uint64_t len)
{
	(void)be; /* nobody else can use the device's memory */
}

static bool devdax_hugepages(void *be)
{
	struct region_devdax *m = be;

	return m->align >= 2ULL << 20;
}

const struct region_backend_ops region_devdax_ops = {
	.name = "devdax",
	.open = devdax_open,
	.commit = devdax_commit,
	.decommit = devdax_decommit,
	.hugepages = devdax_hugepages,
	.close = devdax_close,
};
