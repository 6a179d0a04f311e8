/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cutting a log pool off where damage ends it. What lies behind may be acknowledged records, so it
 * is kept in a file first; then the valid part is copied to a new pool, which takes the old one's
 * name in one step. A stop in between leaves the old pool, and at most a file more.
 */
#include "mkfs/fsck_internal.h"

#include "common/io.h"
#include "log/logdev.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEW_POOL_NAME "log.new"
#define COPY_BYTES (4ULL << 20)
#define CUT_FILES_MAX 1000 /* of one LSN */

static const struct logdev_ops *const dev_ops = &logdev_pmemlog_ops;

/* A file that was not there: an earlier one may hold something else. */
static int cut_file_make(int dirfd, uint64_t lsn, char name[FSCK_CUT_NAME_BYTES])
{
	for (unsigned n = 1; n <= CUT_FILES_MAX; n++) {
		int fd;

		if (n == 1)
			snprintf(name, FSCK_CUT_NAME_BYTES, "cut-%llu", (unsigned long long)lsn);
		else
			snprintf(name, FSCK_CUT_NAME_BYTES, "cut-%llu.%u", (unsigned long long)lsn,
				 n);
		fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
			    0600);
		if (fd >= 0 || errno != EEXIST)
			return fd >= 0 ? fd : -errno;
	}
	return -EEXIST;
}

static int rest_save(struct fsck *f, const struct fsck_pool *p, const uint8_t *base,
		     char name[FSCK_CUT_NAME_BYTES])
{
	int err, fd = cut_file_make(f->dirfd, p->last_lsn + 1, name);

	if (fd < 0)
		return fd;
	err = io_write_full(fd, base + p->used_bytes, p->stored_bytes - p->used_bytes);
	if (!err && fsync(fd) != 0)
		err = -errno;
	if (close(fd) != 0 && !err)
		err = -errno;
	if (!err)
		err = io_fsync_dir(f->dirfd);
	if (err)
		unlinkat(f->dirfd, name, 0);
	return err;
}

static int pool_fill(int dirfd, const uint8_t *bytes, uint64_t len)
{
	struct logdev *dev;
	int err = dev_ops->open(dirfd, NEW_POOL_NAME, &dev);

	if (err)
		return err;
	for (uint64_t at = 0; !err && at < len; at += COPY_BYTES) {
		struct iovec iov = { .iov_base = (void *)(bytes + at),
				     .iov_len = len - at < COPY_BYTES ? len - at : COPY_BYTES };

		err = dev_ops->append(dev, &iov, 1);
	}
	if (!err)
		err = dev_ops->check(dev);
	dev_ops->close(dev);
	return err;
}

static int pool_replace(struct fsck *f, const struct fsck_pool *p, const uint8_t *base)
{
	struct stat st;
	int err;

	if (fstatat(f->dirfd, p->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return -errno;
	if (S_ISLNK(st.st_mode)) /* a device: no second one to write the valid part to */
		return -EOPNOTSUPP;
	unlinkat(f->dirfd, NEW_POOL_NAME, 0); /* of a repair that was stopped */
	err = dev_ops->create(f->dirfd, NEW_POOL_NAME, (uint64_t)st.st_size);
	if (err)
		return err;
	err = pool_fill(f->dirfd, base, p->used_bytes);
	if (!err && renameat(f->dirfd, NEW_POOL_NAME, f->dirfd, p->name) != 0)
		err = -errno;
	if (err) {
		unlinkat(f->dirfd, NEW_POOL_NAME, 0);
		return err;
	}
	return io_fsync_dir(f->dirfd);
}

int fsck_log_cut(struct fsck *f, struct fsck_pool *p, struct logdev *dev,
		 char ret_name[FSCK_CUT_NAME_BYTES])
{
	const uint8_t *base = dev_ops->base(dev);
	int err = rest_save(f, p, base, ret_name);

	if (!err)
		err = pool_replace(f, p, base);
	if (err)
		return err;
	p->stored_bytes = p->used_bytes;
	p->torn = false;
	p->island_offset = p->island_lsn = 0;
	return 0;
}
