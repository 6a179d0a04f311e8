/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory and descriptors of the shm transport's set-up. A peer's memfd is mapped only when it is
 * what it should be: on tmpfs (hugetlbfs can run out of pages under us), of the full size, and
 * sealed against shrinking, so that it stays so. Descriptors that come unasked for are closed.
 */
#include "replication/transport/transport_shm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define FDS_MAX 4

static int map(int fd, uint64_t bytes, uint8_t **ret_map)
{
	void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);

	if (m == MAP_FAILED)
		return -errno;
	*ret_map = m;
	return 0;
}

int shm_inbox_create(uint64_t bytes, int *ret_fd, uint8_t **ret_map)
{
	int r, fd = memfd_create("kvfs-inbox", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	/* Allocated now: later there is nobody to tell that memory is short. */
	if (fallocate(fd, 0, 0, (off_t)bytes) < 0)
		r = errno == ENOSPC ? -ENOMEM : -errno;
	else if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		r = -errno;
	else
		r = map(fd, bytes, ret_map);
	if (r < 0) {
		close(fd);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

int shm_inbox_map(int fd, uint64_t bytes, uint8_t **ret_map)
{
	struct statfs fs;
	struct stat st;
	int r, seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
		return -EPROTO;
	if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != bytes || fs.f_type != TMPFS_MAGIC)
		return -EPROTO;
	r = map(fd, bytes, ret_map);
	return r == -EPERM || r == -EACCES ? -EPROTO : r; /* sealed against writing */
}

int shm_hello_send(int sock, const struct shm_hello *h, const int *fds, unsigned n,
		   uint64_t deadline_ns)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)h, .iov_len = sizeof(*h) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t r;

	if (n > 0) {
		struct cmsghdr *c = &control.align;

		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	}
	while ((r = sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0) {
		if (errno == EAGAIN) {
			int w = setup_wait(sock, POLLOUT, deadline_ns);

			if (w < 0)
				return w;
		} else if (errno != EINTR) {
			return errno == EPIPE ? -ECONNRESET : -errno;
		}
	}
	return setup_send(sock, (const uint8_t *)h + r, sizeof(*h) - (size_t)r, deadline_ns);
}

/* Moves the descriptors of a message to fds; returns how many there were, closing
 * those beyond max. */
static unsigned take_fds(struct msghdr *msg, int *fds, unsigned max)
{
	unsigned count = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++, count++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (count < max)
				fds[count] = fd;
			else
				close(fd);
		}
	}
	return count;
}

int shm_hello_recv(int sock, struct shm_hello *ret_h, int *ret_fds, unsigned want,
		   uint64_t deadline_ns)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} control;
	struct shm_hello h;
	struct iovec iov = { .iov_base = &h, .iov_len = sizeof(h) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	int fds[FDS_MAX];
	unsigned got;
	ssize_t n;
	int r;

	do {
		r = setup_wait(sock, POLLIN, deadline_ns);
		if (r < 0)
			return r;
		n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && (errno == EAGAIN || errno == EINTR));
	if (n <= 0)
		return n == 0 ? -ECONNRESET : -errno;
	got = take_fds(&msg, fds, FDS_MAX);
	r = setup_recv(sock, (uint8_t *)&h + n, sizeof(h) - (size_t)n, deadline_ns);
	if (r == 0 && (got != want || h.magic != SHM_MAGIC || h.version != SHM_FORMAT_VERSION))
		r = h.magic == SHM_MAGIC && h.lanes == 0 ? -ECONNABORTED : -EPROTO;
	if (r < 0) {
		for (unsigned i = 0; i < got && i < FDS_MAX; i++)
			close(fds[i]);
		return r;
	}
	*ret_h = h;
	for (unsigned i = 0; i < want; i++)
		ret_fds[i] = fds[i];
	return 0;
}
