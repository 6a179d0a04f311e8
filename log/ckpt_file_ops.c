/* SPDX-License-Identifier: Apache-2.0 */
/* The durability points of a checkpoint as the system's calls. */
#include "log/ckpt_io.h"

#include "common/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int sys_open(void *ctx, int dirfd, const char *name, int flags, mode_t mode)
{
	int fd = openat(dirfd, name, flags, mode);

	(void)ctx;
	return fd < 0 ? -errno : fd;
}

static int sys_write(void *ctx, int fd, const void *buf, size_t len, off_t off)
{
	(void)ctx;
	return io_pwrite_full(fd, buf, len, off);
}

static int sys_truncate(void *ctx, int fd, off_t len)
{
	(void)ctx;
	return ftruncate(fd, len) == 0 ? 0 : -errno;
}

static int sys_fsync(void *ctx, int fd)
{
	(void)ctx;
	return fdatasync(fd) == 0 ? 0 : -errno;
}

static int sys_rename(void *ctx, int dirfd, const char *from, const char *to)
{
	(void)ctx;
	return renameat(dirfd, from, dirfd, to) == 0 ? 0 : -errno;
}

static int sys_unlink(void *ctx, int dirfd, const char *name)
{
	(void)ctx;
	return unlinkat(dirfd, name, 0) == 0 ? 0 : -errno;
}

static int sys_fsync_dir(void *ctx, int dirfd)
{
	(void)ctx;
	return io_fsync_dir(dirfd);
}

const struct ckpt_file_ops ckpt_file_ops_system = {
	.open = sys_open,
	.write = sys_write,
	.truncate = sys_truncate,
	.fsync = sys_fsync,
	.rename = sys_rename,
	.unlink = sys_unlink,
	.fsync_dir = sys_fsync_dir,
};
