/* SPDX-License-Identifier: Apache-2.0 */
/* Sending and receiving of frames: see frame.h. */
#include "replication/frame.h"

#include "common/byteorder.h"
#include "common/clock.h"
#include "common/crc32c.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define CONTROL_SLICE_NS (100 * NSEC_PER_MSEC)

int frame_decode(const void *header, struct frame *ret_frame)
{
	struct repl_frame h;
	uint32_t max;
	unsigned type;

	memcpy(&h, header, sizeof(h));
	if (be32toh(h.magic) != REPL_MAGIC)
		return -EBADMSG;
	if (be16toh(h.version) != REPL_VERSION)
		return -EPROTONOSUPPORT;
	type = be16toh(h.type);
	if (type < REPL_HELLO || type >= REPL_FRAME_TYPE_END)
		return -EBADMSG;
	max = type == REPL_RESYNC_DATA ? REPL_DATA_BYTES_MAX :
	      type == REPL_EPOCHS      ? EPOCHS_BYTES_MAX :
					 REPL_SMALL_BYTES_MAX;
	if (be32toh(h.len) > max)
		return -EMSGSIZE;
	ret_frame->type = (enum repl_frame_type)type;
	ret_frame->len = be32toh(h.len);
	return 0;
}

static uint32_t frame_checksum(const struct repl_frame *h, const void *payload, size_t len)
{
	struct repl_frame sum = *h;

	sum.checksum = 0;
	return crc32c(crc32c(0, payload, len), &sum, sizeof(sum));
}

bool frame_intact(const void *header, const void *payload, size_t len)
{
	struct repl_frame h;

	memcpy(&h, header, sizeof(h));
	return frame_checksum(&h, payload, len) == be32toh(h.checksum);
}

/* Waits for events on fd in slices. 0: ready. */
static int frame_wait(int fd, short events, uint64_t deadline_ns, const atomic_bool *cancel)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = events };
		uint64_t now = clock_mono_ns();
		uint64_t slice;
		int n;

		if (cancel && atomic_load_explicit(cancel, memory_order_relaxed))
			return -ECANCELED;
		if (now >= deadline_ns)
			return -ETIMEDOUT;
		slice = deadline_ns - now;
		if (slice > CONTROL_SLICE_NS)
			slice = CONTROL_SLICE_NS;
		n = poll(&p, 1, (int)(slice / NSEC_PER_MSEC) + 1);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

static int frame_socket_error(int err)
{
	return err == EPIPE ? -ECONNRESET : -err;
}

static int frame_send_all(int fd, struct iovec *iov, int iovcnt, uint64_t deadline_ns,
			  const atomic_bool *cancel)
{
	while (iovcnt > 0) {
		struct msghdr msg = { .msg_iov = iov, .msg_iovlen = (size_t)iovcnt };
		ssize_t n = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		int err;

		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return frame_socket_error(errno);
		if (n < 0) {
			err = frame_wait(fd, POLLOUT, deadline_ns, cancel);
			if (err)
				return err;
			continue;
		}
		while (iovcnt > 0 && (size_t)n >= iov->iov_len) {
			n -= (ssize_t)iov->iov_len;
			iov++;
			iovcnt--;
		}
		if (iovcnt > 0) {
			iov->iov_base = (char *)iov->iov_base + n;
			iov->iov_len -= (size_t)n;
		}
	}
	return 0;
}

int frame_send(int fd, enum repl_frame_type type, const void *payload, size_t len,
	       uint64_t deadline_ns, const atomic_bool *cancel)
{
	struct repl_frame h = {
		.magic = htobe32(REPL_MAGIC),
		.version = htobe16(REPL_VERSION),
		.type = htobe16((uint16_t)type),
		.len = htobe32((uint32_t)len),
	};
	struct iovec iov[2] = {
		{ .iov_base = &h, .iov_len = sizeof(h) },
		{ .iov_base = (void *)(uintptr_t)payload, .iov_len = len },
	};

	assert(len <= REPL_DATA_BYTES_MAX);
	h.checksum = htobe32(frame_checksum(&h, payload, len));
	return frame_send_all(fd, iov, len ? 2 : 1, deadline_ns, cancel);
}

static int frame_recv_all(int fd, void *buf, size_t len, uint64_t deadline_ns,
			  const atomic_bool *cancel)
{
	uint8_t *p = buf;

	while (len > 0) {
		ssize_t n = recv(fd, p, len, MSG_DONTWAIT);
		int err;

		if (n == 0)
			return -ECONNRESET;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return frame_socket_error(errno);
		if (n < 0) {
			err = frame_wait(fd, POLLIN, deadline_ns, cancel);
			if (err)
				return err;
			continue;
		}
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int frame_recv(int fd, void *buf, size_t cap, uint64_t deadline_ns, const atomic_bool *cancel,
	       struct frame *ret_frame)
{
	uint8_t header[sizeof(struct repl_frame)];
	struct frame f;
	int err;

	err = frame_recv_all(fd, header, sizeof(header), deadline_ns, cancel);
	if (!err)
		err = frame_decode(header, &f);
	if (err)
		return err;
	if (f.len > cap)
		return -EMSGSIZE;
	err = frame_recv_all(fd, buf, f.len, deadline_ns, cancel);
	if (err)
		return err;
	if (!frame_intact(header, buf, f.len))
		return -EBADMSG;
	*ret_frame = f;
	return 0;
}

/* Reads on until the reader holds want bytes. */
static int frame_read_upto(int fd, struct frame_reader *r, uint32_t want)
{
	while (r->got < want) {
		ssize_t n = recv(fd, r->bytes + r->got, want - r->got, MSG_DONTWAIT);

		if (n == 0)
			return -ECONNRESET;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return frame_socket_error(errno);
		r->got += (uint32_t)n;
	}
	return 0;
}

int frame_read_some(int fd, struct frame_reader *r, struct frame *ret_frame)
{
	struct frame f;
	int err = frame_read_upto(fd, r, sizeof(struct repl_frame));

	if (!err)
		err = frame_decode(r->bytes, &f);
	if (!err && f.len > REPL_SMALL_BYTES_MAX)
		err = -EMSGSIZE;
	if (!err)
		err = frame_read_upto(fd, r, (uint32_t)sizeof(struct repl_frame) + f.len);
	if (!err && !frame_intact(r->bytes, frame_reader_payload(r), f.len))
		err = -EBADMSG;
	if (!err)
		*ret_frame = f;
	return err;
}

void frame_socket_tune(int fd)
{
	int one = 1, idle_s = 2, interval_s = 1, count = 5;

	/* All best effort: a Unix socket knows none of them. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}
