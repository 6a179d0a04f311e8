/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers that go on until they are whole, and files replaced durably: see io.h. */
#include "common/io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int io_pread_full(int fd, void *buf, size_t len, off_t off)
{
	char *p = buf;

	while (len > 0) {
		ssize_t n = pread(fd, p, len, off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ENODATA;
		p += n;
		off += n;
		len -= (size_t)n;
	}
	return 0;
}

int io_pwrite_full(int fd, const void *buf, size_t len, off_t off)
{
	const char *p = buf;

	while (len > 0) {
		ssize_t n = pwrite(fd, p, len, off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		off += n;
		len -= (size_t)n;
	}
	return 0;
}

int io_write_full(int fd, const void *buf, size_t len)
{
	const char *p = buf;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int io_fsync_dir(int dirfd)
{
	return fsync(dirfd) == 0 ? 0 : -errno;
}

static int io_write_new_file(int dirfd, const char *name, const void *data, size_t len, mode_t mode)
{
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
	int err;

	if (fd < 0)
		return -errno;
	err = io_write_full(fd, data, len);
	if (!err && fsync(fd) != 0)
		err = -errno;
	if (close(fd) != 0 && !err)
		err = -errno;
	return err;
}

int io_replace_file(int dirfd, const char *name, const void *data, size_t len, mode_t mode)
{
	char tmp[256];
	int err;

	if ((size_t)snprintf(tmp, sizeof(tmp), "%s.tmp", name) >= sizeof(tmp))
		return -ENAMETOOLONG;
	err = io_write_new_file(dirfd, tmp, data, len, mode);
	if (!err && renameat(dirfd, tmp, dirfd, name) != 0)
		err = -errno;
	if (err) {
		unlinkat(dirfd, tmp, 0);
		return err;
	}
	return io_fsync_dir(dirfd);
}

int io_flush_stdout(void)
{
	bool lost = ferror(stdout);

	if (fflush(stdout) != 0)
		return -errno;
	return lost ? -EIO : 0;
}

/* As good as /dev/null, in a container or an early root that has none. */
static int io_open_null(void)
{
	int fd = open("/dev/null", O_RDWR);

	return fd < 0 ? memfd_create("null", 0) : fd;
}

void io_process_init(void)
{
	int fd;

	do {
		fd = io_open_null();
		if (fd < 0) {
			/* before diag_init: whoever calls us says its name there */
			fprintf(stderr, "%s: no descriptor can be opened: %s\n",
				program_invocation_short_name, strerror(errno));
			exit(1);
		}
	} while (fd <= STDERR_FILENO);
	close(fd);
	signal(SIGXFSZ, SIG_IGN);
}

bool io_accept_lacks(int err)
{
	return err == EMFILE || err == ENFILE || err == ENOMEM || err == ENOBUFS;
}
