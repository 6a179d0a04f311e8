/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real log device: a libpmemlog pool. Only this and logdev_pmemlog_create.c know that library
 * (it is deprecated upstream).
 *
 * libpmemlog drops the result of msync(2), so on an ordinary file an append could return success
 * with nothing on the medium. It leaves errno set then: when it is, the pool is fsynced through a
 * descriptor of our own, whose writeback-error cursor nobody else moves, and that result counts.
 *
 * A pool may be a device-DAX: the name is a symbolic link to it then. The library takes it whole,
 * with flushes; fsync has nothing to do there and is not asked.
 *
 * The library gives pools by path only: /proc/self/fd/N/name leads to the name in dirfd. It keeps
 * an exclusive flock while a pool is open.
 * Threads: one writer; used() is tracked here, so readers take no lock of the library.
 */
#include "log/logdev.h"
#include "log/logdev_pmemlog_internal.h"

#include "log/logdev_bus.h"
#include "log/logdev_pages.h"
#include "log/volume_place.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <libpmemlog.h>

#define FORGET_WINDOW_BYTES (16ULL << 20)

struct logdev {
	PMEMlogpool *pool;
	const void *base;
	uint64_t capacity;
	_Atomic uint64_t used; /* written by the writer; release, with acquire in used() */
	int fd;                /* own descriptor: fsync and its error cursor */
	bool pmem;
	bool devdax;           /* no file: fsync fails on it */
	/* msync is off in this process, and the pool is on a medium that needs it */
	bool must_sync;
	struct pages_ahead pages;
	atomic_bool dead;      /* a write error was seen */
};

int pool_path(int dirfd, const char *name, char path[PATH_MAX])
{
	int n = snprintf(path, PATH_MAX, "/proc/self/fd/%d/%s", dirfd, name);

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

void pool_sds_off(void)
{
	int off = 0;

	if (pmemlog_ctl_set(NULL, "sds.at_create", &off) != 0)
		setenv("PMEMLOG_CONF", "sds.at_create=0", 0);
}

bool pool_on_tmpfs(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

void pool_msync_off_on_tmpfs(int dirfd)
{
	if (pool_on_tmpfs(dirfd))
		setenv("PMEM_IS_PMEM_FORCE", "1", 0);
}

static bool msync_is_off(void)
{
	const char *force = getenv("PMEM_IS_PMEM_FORCE");

	return force && strcmp(force, "1") == 0;
}

static int base_cb(const void *buf, size_t len, void *arg)
{
	(void)len;
	*(const void **)arg = buf;
	return 0;
}

static int open_errno(int err)
{
	switch (err) {
	case ENOENT:
	case EACCES:
	case EPERM:
	case EROFS:
	case ENOMEM:
	case EMFILE:
	case ENFILE:
		return -err;
	case EAGAIN: /* the library's flock */
	case EBUSY:
		return -EBUSY;
	case EINVAL:
	case ENOTSUP:
		return -EBADMSG;
	default:
		return -EIO;
	}
}

/* A file, or a link to a device-DAX; told apart here, since the library would map anything. */
static int pool_open_fd(int dirfd, const char *name, int *ret_fd, bool *ret_devdax)
{
	uint64_t bytes, align;
	struct stat st;
	bool link, good;
	int fd, rc;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return open_errno(errno);
	link = S_ISLNK(st.st_mode);
	fd = openat(dirfd, name, O_RDWR | O_CLOEXEC | O_NONBLOCK | (link ? 0 : O_NOFOLLOW));
	if (fd < 0)
		return open_errno(errno);
	if (link)
		good = volume_devdax(fd, &bytes, &align);
	else
		good = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
		       st.st_size >= (off_t)PMEMLOG_MIN_POOL;
	rc = good ? 0 : -EBADMSG;
	if (rc != 0) {
		close(fd);
		return rc;
	}
	*ret_fd = fd;
	*ret_devdax = link;
	return 0;
}

/* What was copied sparsely has its blocks again before a store needs them. -ENOSPC, -EIO. */
static int pool_fill_holes(int fd)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return -EIO;
	if ((uint64_t)st.st_blocks * 512 >= (uint64_t)st.st_size)
		return 0;
	while (fallocate(fd, 0, 0, st.st_size) != 0) {
		if (errno == ENOSPC || errno == EDQUOT)
			return -ENOSPC;
		if (errno != EINTR)
			return 0; /* the file system can't: stores may fail later */
	}
	return 0;
}

static int pmemlog_dev_open(int dirfd, const char *name, struct logdev **ret_dev)
{
	char path[PATH_MAX];
	struct logdev *dev;
	int rc = pool_path(dirfd, name, path);

	if (rc != 0)
		return rc;
	dev = calloc(1, sizeof(*dev));
	if (dev == NULL)
		return -ENOMEM;
	rc = pool_open_fd(dirfd, name, &dev->fd, &dev->devdax);
	if (rc != 0)
		goto free_dev;
	rc = dev->devdax ? 0 : pool_fill_holes(dev->fd);
	if (rc != 0)
		goto close_fd;
	logdev_bus_catch();
	pool_sds_off();
	pool_msync_off_on_tmpfs(dirfd);
	dev->pool = pmemlog_open(path);
	if (dev->pool == NULL) {
		rc = open_errno(errno);
		goto close_fd;
	}
	pmemlog_walk(dev->pool, 0, base_cb, &dev->base);
	dev->capacity = pmemlog_nbyte(dev->pool);
	atomic_init(&dev->used, (uint64_t)pmemlog_tell(dev->pool));
	/* The library tells neither whether it flushes or msyncs; it does the former where MAP_SYNC
	 * works. (Not pmem_is_pmem: libpmem knows its own mappings only, and PMEM_IS_PMEM_FORCE
	 * makes it say yes to any.) */
	dev->pmem = volume_fd_is_dax(dev->fd);
	dev->must_sync = msync_is_off() && !dev->pmem && !pool_on_tmpfs(dev->fd);
	dev->pages = (struct pages_ahead){ .base = (uintptr_t)dev->base, .bytes = dev->capacity };
	*ret_dev = dev;
	return 0;

close_fd:
	close(dev->fd);
free_dev:
	free(dev);
	return rc;
}

/* A write error since the last call, asked of the medium. */
static int pmemlog_dev_check(struct logdev *dev)
{
	if (!atomic_load_explicit(&dev->dead, memory_order_relaxed) && !dev->devdax &&
	    fsync(dev->fd) != 0)
		atomic_store_explicit(&dev->dead, true, memory_order_relaxed);
	return atomic_load_explicit(&dev->dead, memory_order_relaxed) ? -EIO : 0;
}

/* One call of the library that writes. */
struct pool_write {
	struct logdev *dev;
	const struct iovec *iov; /* NULL: rewind */
	int iovcnt, rc, err;
};

static void pool_write_unguarded(void *arg)
{
	struct pool_write *s = arg;

	errno = 0;
	if (s->iov)
		s->rc = pmemlog_appendv(s->dev->pool, s->iov, s->iovcnt);
	else
		pmemlog_rewind(s->dev->pool);
	s->err = errno;
}

/* Through the library, whose lock stays taken where the medium refuses a store: such a pool is dead
 * and only closed. */
static int pool_write(struct pool_write *s)
{
	int rc = logdev_bus_guard(pool_write_unguarded, s);

	if (rc == 0)
		rc = s->rc != 0 ? -EIO : 0;
	if (rc == 0 && (s->err != 0 || s->dev->must_sync))
		rc = pmemlog_dev_check(s->dev);
	if (rc != 0)
		atomic_store_explicit(&s->dev->dead, true, memory_order_relaxed);
	return rc;
}

static int pmemlog_dev_append(struct logdev *dev, const struct iovec *iov, int iovcnt)
{
	uint64_t used = atomic_load_explicit(&dev->used, memory_order_relaxed), bytes = 0;
	struct pool_write s = { .dev = dev, .iov = iov, .iovcnt = iovcnt };
	int i;

	assert(iovcnt > 0);
	if (atomic_load_explicit(&dev->dead, memory_order_relaxed))
		return -EIO;
	for (i = 0; i < iovcnt; i++)
		bytes += iov[i].iov_len;
	if (bytes > dev->capacity - used)
		return -ENOSPC; /* asked here: the library formats an error text first */
	if (!dev->pmem)
		pages_ahead_reach(&dev->pages, used + bytes);
	if (pool_write(&s) != 0)
		return -EIO;
	atomic_store_explicit(&dev->used, used + bytes, memory_order_release);
	return 0;
}

static int pmemlog_dev_rewind(struct logdev *dev)
{
	struct pool_write s = { .dev = dev };

	if (atomic_load_explicit(&dev->dead, memory_order_relaxed))
		return -EIO;
	if (pool_write(&s) != 0)
		return -EIO;
	if (pmemlog_tell(dev->pool) != 0) {
		atomic_store_explicit(&dev->dead, true, memory_order_relaxed);
		return -EIO;
	}
	pages_ahead_restart(&dev->pages);
	atomic_store_explicit(&dev->used, 0, memory_order_release);
	return 0;
}

static const void *pmemlog_dev_base(struct logdev *dev)
{
	return dev->base;
}

static uint64_t pmemlog_dev_used(struct logdev *dev)
{
	return atomic_load_explicit(&dev->used, memory_order_acquire);
}

static uint64_t pmemlog_dev_capacity(struct logdev *dev)
{
	return dev->capacity;
}

static bool pmemlog_dev_is_pmem(struct logdev *dev)
{
	return dev->pmem;
}

/*
 * The mapping is MAP_SHARED, so this only unmaps pages: their contents, dirty or not, stay in the
 * page cache. Only the last FORGET_WINDOW_BYTES below offset, so that frequent calls stay cheap.
 * On pmem there is no page cache and nothing to save.
 */
static void pmemlog_dev_forget(struct logdev *dev, uint64_t offset)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t begin = (uintptr_t)dev->base, end;

	if (dev->pmem)
		return;
	if (offset > dev->capacity)
		offset = dev->capacity;
	end = (begin + offset) & ~(page - 1);
	if (offset > FORGET_WINDOW_BYTES)
		begin += offset - FORGET_WINDOW_BYTES;
	begin = (begin + page - 1) & ~(page - 1);
	if (begin < end)
		(void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

static void pmemlog_dev_close(struct logdev *dev)
{
	if (dev == NULL)
		return;
	pmemlog_close(dev->pool); /* also with its lock taken (pool_write) */
	close(dev->fd);
	free(dev);
}

const struct logdev_ops logdev_pmemlog_ops = {
	.name = "pmemlog",
	.create = pmemlog_dev_create,
	.open = pmemlog_dev_open,
	.append = pmemlog_dev_append,
	.base = pmemlog_dev_base,
	.used = pmemlog_dev_used,
	.capacity = pmemlog_dev_capacity,
	.rewind = pmemlog_dev_rewind,
	.check = pmemlog_dev_check,
	.is_pmem = pmemlog_dev_is_pmem,
	.forget = pmemlog_dev_forget,
	.close = pmemlog_dev_close,
};
