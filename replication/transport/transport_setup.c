/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole transfers on a socket with a deadline, for the set-up of a transport. Works on blocking and
 * non-blocking sockets alike and leaves their mode alone: the control connection is the caller's.
 */
#include "replication/transport/transport_internal.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

int setup_wait(int fd, short events, uint64_t deadline_ns)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = events };
		uint64_t now_ns = clock_mono_ns();
		struct timespec ts;
		int r;

		if (now_ns >= deadline_ns)
			return -ETIMEDOUT;
		ts = transport_timespec(deadline_ns - now_ns);
		r = ppoll(&p, 1, &ts, NULL);
		if (r > 0)
			return 0;
		if (r < 0 && errno != EINTR)
			return -errno;
	}
}

static int transfer_error(int err)
{
	return err == EPIPE ? -ECONNRESET : -err;
}

int setup_send(int fd, const void *data, size_t len, uint64_t deadline_ns)
{
	const uint8_t *p = data;

	while (len > 0) {
		ssize_t r = send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (r >= 0) {
			p += r;
			len -= (size_t)r;
		} else if (errno == EAGAIN) {
			int w = setup_wait(fd, POLLOUT, deadline_ns);

			if (w < 0)
				return w;
		} else if (errno != EINTR) {
			return transfer_error(errno);
		}
	}
	return 0;
}

int setup_recv(int fd, void *data, size_t len, uint64_t deadline_ns)
{
	uint8_t *p = data;

	while (len > 0) {
		ssize_t r = recv(fd, p, len, MSG_DONTWAIT);

		if (r > 0) {
			p += r;
			len -= (size_t)r;
		} else if (r == 0) {
			return -ECONNRESET;
		} else if (errno == EAGAIN) {
			int w = setup_wait(fd, POLLIN, deadline_ns);

			if (w < 0)
				return w;
		} else if (errno != EINTR) {
			return transfer_error(errno);
		}
	}
	return 0;
}
