/* SPDX-License-Identifier: Apache-2.0 */
/* Making a pool of the real log device: see logdev_pmemlog.c. */
#include "log/logdev.h"
#include "log/logdev_pmemlog_internal.h"

#include "common/io.h"
#include "log/logdev_pages.h"
#include "log/volume_place.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libpmem.h>
#include <libpmemlog.h>

#define POOL_MODE 0600

/* The pool file and its name are on the medium. */
static int pool_make_durable(int dirfd, const char *name)
{
	int rc = 0, fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fsync(fd) != 0 || fsync(dirfd) != 0)
		rc = -errno;
	close(fd);
	return rc;
}

/*
 * What makes the first append to a page costly is done here, where nobody waits for an append. On
 * DAX the first store to a page of an allocated but unwritten extent waits for the file system's
 * journal, milliseconds each: zeros are written over the whole pool. On tmpfs, see logdev_pages.h.
 */
static int pool_write_out(int dirfd, const char *name, uint64_t size_bytes)
{
	static const uint8_t zero[1 << 20];
	int fd = openat(dirfd, name, O_RDWR | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return -errno;
	for (uint64_t at = LOGDEV_HEADER_BYTES;
	     rc == 0 && at < size_bytes && volume_fd_is_dax(fd);) {
		size_t len =
		    size_bytes - at < sizeof(zero) ? (size_t)(size_bytes - at) : sizeof(zero);

		rc = io_pwrite_full(fd, zero, len, (off_t)at);
		at += len;
	}
	if (rc == 0 && pool_on_tmpfs(fd))
		rc = pages_make_huge(fd, LOGDEV_HEADER_BYTES, size_bytes);
	close(fd);
	return rc;
}

static int create_errno(int err)
{
	switch (err) {
	case EEXIST:
	case EINVAL:
	case ENOENT:
	case EACCES:
	case EPERM:
	case EROFS:
	case EFBIG:
	case EMFILE:
	case ENFILE:
		return -err;
	case ENOSPC:
	case EDQUOT:
		return -ENOSPC;
	default:
		return -EIO;
	}
}

/* A device that the name leads to; the library makes pools only where the header is zero. */
static int devdax_clear_header(int fd, uint64_t align)
{
	void *p = mmap(NULL, align, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	pmem_memset_persist(p, 0, LOGDEV_HEADER_BYTES);
	munmap(p, align);
	return 0;
}

static int devdax_create(int dirfd, const char *name, const char *path)
{
	int fd = openat(dirfd, name, O_RDWR | O_CLOEXEC), rc;
	uint64_t bytes, align;
	PMEMlogpool *pool;

	if (fd < 0)
		return -errno;
	rc = volume_devdax(fd, &bytes, &align) ? devdax_clear_header(fd, align) : -EEXIST;
	close(fd);
	if (rc != 0)
		return rc;
	pool_sds_off();
	pool = pmemlog_create(path, 0, POOL_MODE); /* 0: as large as the device */
	if (pool == NULL)
		return create_errno(errno);
	pmemlog_close(pool);
	return 0;
}

int pmemlog_dev_create(int dirfd, const char *name, uint64_t size_bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	char path[PATH_MAX];
	PMEMlogpool *pool;
	struct stat st;
	int rc = pool_path(dirfd, name, path);

	if (rc != 0)
		return rc;
	size_bytes -= size_bytes % page;
	if (size_bytes < PMEMLOG_MIN_POOL)
		return -EINVAL;
	/* Asked first, so that what a failed create leaves is ours to remove. */
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return S_ISLNK(st.st_mode) ? devdax_create(dirfd, name, path) : -EEXIST;
	pool_sds_off();
	pool_msync_off_on_tmpfs(dirfd);
	pool = pmemlog_create(path, size_bytes, POOL_MODE);
	if (pool == NULL) {
		rc = create_errno(errno);
		if (rc != -EEXIST)
			unlinkat(dirfd, name, 0);
		return rc;
	}
	pmemlog_close(pool);
	rc = pool_write_out(dirfd, name, size_bytes);
	if (rc == 0)
		rc = pool_make_durable(dirfd, name);
	if (rc != 0)
		unlinkat(dirfd, name, 0);
	return rc == 0 ? 0 : create_errno(-rc);
}
