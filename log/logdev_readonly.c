/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libpmemlog pool for reading only, where the library, which opens for writing even to check a
 * pool, can't: on a read-only file system. The offsets are looked at, the checksum of the library's
 * header is not; the records have their own.
 * Threads: any number of readers. Errors: those of open(2), -EBADMSG.
 */
#include "log/logdev.h"

#include "common/io.h"
#include "log/logdev_bus.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* On media, from libpmemlog's log.h: its pool header, then three little-endian offsets. */
#define POOL_SIGNATURE "PMEMLOG" /* with its NUL */
#define POOL_SIGNATURE_BYTES 8
#define POOL_OFFSETS_AT 4096

struct logdev {
	const uint8_t *pool;
	uint64_t pool_bytes, start, used, capacity;
};

static int readonly_header(int fd, struct logdev *dev)
{
	uint8_t signature[POOL_SIGNATURE_BYTES];
	uint64_t at[3]; /* start, end, written up to */
	struct stat st;
	int err;

	if (fstat(fd, &st) != 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	err = io_pread_full(fd, signature, sizeof(signature), 0);
	if (!err)
		err = io_pread_full(fd, at, sizeof(at), POOL_OFFSETS_AT);
	if (err)
		return err == -ENODATA ? -EBADMSG : err;
	for (unsigned i = 0; i < 3; i++)
		at[i] = le64toh(at[i]);
	if (memcmp(signature, POOL_SIGNATURE, sizeof(signature)) != 0 ||
	    at[0] < POOL_OFFSETS_AT + sizeof(at) || at[0] > at[2] || at[2] > at[1] ||
	    at[1] > (uint64_t)st.st_size)
		return -EBADMSG;
	dev->pool_bytes = (uint64_t)st.st_size;
	dev->start = at[0];
	dev->used = at[2] - at[0];
	dev->capacity = at[1] - at[0];
	return 0;
}

static int readonly_open(int dirfd, const char *name, struct logdev **ret_dev)
{
	struct logdev *dev = calloc(1, sizeof(*dev));
	void *pool;
	int fd, err;

	if (!dev)
		return -ENOMEM;
	fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	logdev_bus_catch();
	err = fd < 0 ? -errno : readonly_header(fd, dev);
	if (!err) {
		pool = mmap(NULL, dev->pool_bytes, PROT_READ, MAP_SHARED, fd, 0);
		if (pool == MAP_FAILED)
			err = -errno;
		else
			dev->pool = pool;
	}
	if (fd >= 0)
		close(fd); /* the mapping stays */
	if (err) {
		free(dev);
		return err;
	}
	*ret_dev = dev;
	return 0;
}

static int readonly_create(int dirfd, const char *name, uint64_t size_bytes)
{
	(void)dirfd;
	(void)name;
	(void)size_bytes;
	return -EROFS;
}

static int readonly_append(struct logdev *dev, const struct iovec *iov, int iovcnt)
{
	(void)dev;
	(void)iov;
	(void)iovcnt;
	return -EROFS;
}

static int readonly_rewind(struct logdev *dev)
{
	(void)dev;
	return -EROFS;
}

static const void *readonly_base(struct logdev *dev)
{
	return dev->pool + dev->start;
}

static uint64_t readonly_used(struct logdev *dev)
{
	return dev->used;
}

static uint64_t readonly_capacity(struct logdev *dev)
{
	return dev->capacity;
}

/* Nothing is written that could be lost. */
static int readonly_check(struct logdev *dev)
{
	(void)dev;
	return 0;
}

static bool readonly_is_pmem(struct logdev *dev)
{
	(void)dev;
	return false;
}

static void readonly_forget(struct logdev *dev, uint64_t offset)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), end = dev->start + offset;

	if (end > dev->pool_bytes)
		end = dev->pool_bytes;
	(void)madvise((void *)(uintptr_t)dev->pool, end - end % page, MADV_DONTNEED);
}

static void readonly_close(struct logdev *dev)
{
	if (!dev)
		return;
	munmap((void *)(uintptr_t)dev->pool, dev->pool_bytes);
	free(dev);
}

const struct logdev_ops logdev_readonly_ops = {
	.name = "readonly",
	.create = readonly_create,
	.open = readonly_open,
	.append = readonly_append,
	.base = readonly_base,
	.used = readonly_used,
	.capacity = readonly_capacity,
	.rewind = readonly_rewind,
	.check = readonly_check,
	.is_pmem = readonly_is_pmem,
	.forget = readonly_forget,
	.close = readonly_close,
};
