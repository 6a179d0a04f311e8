/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sending on a tcp lane. A batch is one sendmsg; what the socket does not take is copied, so that
 * the caller's memory is free when post returns, and goes out from poll when the socket has room.
 * Order on the lane holds because nothing is sent directly while such bytes wait. An error ends the
 * lane: the poll thread learns it from the socket.
 */
#include "common/byteorder.h"
#include "replication/transport/transport_tcp_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define CHUNK_POSTS 64
#define CHUNK_IOV 512

struct chunk {
	struct tcp_frame frame[CHUNK_POSTS];
	struct iovec iov[CHUNK_IOV];
	unsigned posts;
	int iovcnt;
};

static size_t out_pending(const struct tcp_lane *l)
{
	return l->out_end - l->out_start;
}

static void kill_locked(struct tcp_lane *l)
{
	l->tx_dead = true;
	l->out_start = l->out_end = 0;
	shutdown(l->fd, SHUT_RDWR);
}

static void watch_room_locked(struct tcp_lane *l, bool on)
{
	struct epoll_event ev = { .events = EPOLLIN | (on ? (uint32_t)EPOLLOUT : 0),
				  .data.u32 = l->index };

	/* Fails only if the poll thread has just taken the lane out: then it is dead. */
	if (epoll_ctl(l->ep->epoll_fd, EPOLL_CTL_MOD, l->fd, &ev) < 0)
		kill_locked(l);
}

/* Room for len more bytes; -ENOMEM. */
static int out_reserve_locked(struct tcp_lane *l, size_t len)
{
	size_t pending = out_pending(l), cap = l->out_cap;
	uint8_t *p;

	if (l->out_cap - l->out_end >= len)
		return 0;
	if (pending > 0)
		memmove(l->out, l->out + l->out_start, pending);
	l->out_start = 0;
	l->out_end = pending;
	if (l->out_cap - pending >= len)
		return 0;
	if (cap == 0)
		cap = TCP_RX_BYTES;
	while (cap - pending < len)
		cap *= 2;
	p = realloc(l->out, cap);
	if (p == NULL)
		return -ENOMEM;
	l->out = p;
	l->out_cap = cap;
	return 0;
}

/* Queues the pieces but for their first skip bytes. */
static int out_append_locked(struct tcp_lane *l, const struct iovec *iov, int iovcnt, size_t skip)
{
	bool was_empty = out_pending(l) == 0;
	size_t sum = 0;

	for (int i = 0; i < iovcnt; i++)
		sum += iov[i].iov_len;
	if (out_reserve_locked(l, sum - skip) < 0)
		return -ENOMEM;
	for (int i = 0; i < iovcnt; i++) {
		size_t pass = skip < iov[i].iov_len ? skip : iov[i].iov_len;

		skip -= pass;
		if (iov[i].iov_len == pass)
			continue;
		memcpy(l->out + l->out_end, (const uint8_t *)iov[i].iov_base + pass,
		       iov[i].iov_len - pass);
		l->out_end += iov[i].iov_len - pass;
	}
	if (was_empty)
		watch_room_locked(l, true);
	return 0;
}

/* Sends the pieces, or queues them behind what waits. Kills the lane when it can't. */
static void send_or_queue_locked(struct tcp_lane *l, struct iovec *iov, int iovcnt, size_t bytes)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = (size_t)iovcnt };
	ssize_t sent = 0;

	if (l->tx_dead)
		return;
	if (out_pending(l) == 0) {
		do
			sent = sendmsg(l->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		while (sent < 0 && errno == EINTR);
		if (sent < 0 && errno != EAGAIN) {
			kill_locked(l);
			return;
		}
		if (sent < 0)
			sent = 0;
	}
	if ((size_t)sent < bytes && out_append_locked(l, iov, iovcnt, (size_t)sent) < 0)
		kill_locked(l);
}

static void frame_fill_locked(struct tcp_lane *l, struct tcp_frame *f, enum tcp_frame_kind kind)
{
	uint32_t consumed = hint_read(&l->rx_consumed);

	put_be32(f->magic, TCP_MAGIC_FRAME);
	put_be16(f->kind, (uint16_t)kind);
	put_be16(f->lane, (uint16_t)l->index);
	put_be32(f->len, 0);
	put_be32(f->imm, 0);
	put_be64(f->off, 0);
	put_be32(f->seq, hint_read(&l->tx_posted));
	put_be32(f->consumed, consumed);
	hint_write(&l->rx_reported, consumed);
}

/* Puts as many posts as fit into one sendmsg (at least one) and sends them; returns how many. */
static unsigned post_chunk_locked(struct tcp_lane *l, const struct transport_post *posts,
				  unsigned n)
{
	struct chunk c;
	size_t bytes = 0;

	c.posts = 0;
	c.iovcnt = 0;
	while (c.posts < n && c.posts < CHUNK_POSTS) {
		const struct transport_post *p = &posts[c.posts];
		struct tcp_frame *f = &c.frame[c.posts];
		uint32_t len = 0;

		if (c.iovcnt + 1 + p->iovcnt > CHUNK_IOV)
			break;
		frame_fill_locked(l, f, TCP_FRAME_NOTICE);
		c.iov[c.iovcnt++] = (struct iovec){ .iov_base = f, .iov_len = sizeof(*f) };
		for (int i = 0; i < p->iovcnt; i++) {
			c.iov[c.iovcnt++] = p->iov[i];
			len += (uint32_t)p->iov[i].iov_len;
		}
		put_be32(f->len, len);
		put_be32(f->imm, p->imm);
		put_be64(f->off, p->remote_off);
		bytes += sizeof(*f) + len;
		hint_write(&l->tx_posted, hint_read(&l->tx_posted) + 1);
		c.posts++;
	}
	send_or_queue_locked(l, c.iov, c.iovcnt, bytes);
	return c.posts;
}

/* Of n posts, how many the bound on queued bytes lets in. */
static unsigned room_allows_locked(const struct tcp_lane *l, const struct transport_post *posts,
				   unsigned n)
{
	size_t sum = out_pending(l);
	unsigned k = 0;

	while (k < n) {
		uint32_t len = 0;

		for (int i = 0; i < posts[k].iovcnt; i++)
			len += (uint32_t)posts[k].iov[i].iov_len;
		if (sum > 0 && sum + sizeof(struct tcp_frame) + len > TCP_OUT_BYTES)
			break;
		sum += sizeof(struct tcp_frame) + len;
		k++;
	}
	return k;
}

/* How many posts may go now. Where fewer than n: says so to the poll thread, then looks once more
 * (the credits may have come between), so that a WRITABLE event is certain. */
static unsigned allowed_locked(struct tcp_lane *l, const struct transport_post *posts, unsigned n)
{
	unsigned room = room_allows_locked(l, posts, n);
	uint32_t posted = hint_read(&l->tx_posted);
	unsigned k = transport_credits_allow(posts, room, posted, credit_observe(&l->tx_consumed));
	uint32_t want;

	if (k == n)
		return n;
	want = room < n ? WANT_ROOM : posts[k].control ? WANT_CONTROL_CREDIT : WANT_CREDIT;
	sleep_announce(&l->want, want);
	sleep_announce(&l->ep->attention, 1);
	return transport_credits_allow(posts, room, posted, credit_observe(&l->tx_consumed));
}

int tcp_post(struct transport_ep *base, unsigned lane, const struct transport_post *posts,
	     unsigned n)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;
	struct tcp_lane *l;
	unsigned allowed, done = 0, end;
	bool dead;

	if (transport_check_batch(base, lane, posts, n) < 0)
		return -EINVAL;
	for (unsigned i = 0; i < n; i++)
		if (posts[i].iovcnt >= CHUNK_IOV)
			return -EINVAL;
	l = &ep->lane[lane];
	pthread_mutex_lock(&l->tx_lock);
	/* Again after each part: what the socket took at once makes room for more. */
	do {
		allowed = l->tx_dead ? 0 : allowed_locked(l, posts + done, n - done);
		end = done + allowed;
		while (done < end && !l->tx_dead)
			done += post_chunk_locked(l, posts + done, end - done);
	} while (allowed > 0 && done < n);
	dead = l->tx_dead;
	pthread_mutex_unlock(&l->tx_lock);
	return dead ? -ENOTCONN : (int)done;
}

void tcp_tx_flush(struct tcp_lane *l)
{
	pthread_mutex_lock(&l->tx_lock);
	while (!l->tx_dead && out_pending(l) > 0) {
		ssize_t r = send(l->fd, l->out + l->out_start, out_pending(l),
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (r >= 0)
			l->out_start += (size_t)r;
		else if (errno == EAGAIN)
			break;
		else if (errno != EINTR)
			kill_locked(l);
	}
	if (!l->tx_dead && out_pending(l) == 0) {
		l->out_start = l->out_end = 0;
		watch_room_locked(l, false);
	}
	pthread_mutex_unlock(&l->tx_lock);
}

void tcp_tx_credit(struct tcp_lane *l)
{
	struct tcp_frame f;
	struct iovec iov = { .iov_base = &f, .iov_len = sizeof(f) };

	if (hint_read(&l->rx_consumed) - hint_read(&l->rx_reported) < TCP_CREDIT_BATCH)
		return;
	pthread_mutex_lock(&l->tx_lock);
	if (!l->tx_dead) {
		frame_fill_locked(l, &f, TCP_FRAME_CREDIT);
		send_or_queue_locked(l, &iov, 1, sizeof(f));
	}
	pthread_mutex_unlock(&l->tx_lock);
}

bool tcp_tx_writable(struct tcp_lane *l, uint32_t want)
{
	uint32_t left, need = want & WANT_CONTROL_CREDIT ? 0 : TRANSPORT_CREDITS_CONTROL;
	bool ok;

	pthread_mutex_lock(&l->tx_lock);
	left = TRANSPORT_CREDITS - (hint_read(&l->tx_posted) - credit_observe(&l->tx_consumed));
	ok = !l->tx_dead && left > need && out_pending(l) <= TCP_OUT_BYTES / 2;
	pthread_mutex_unlock(&l->tx_lock);
	return ok;
}

void tcp_tx_kill(struct tcp_lane *l)
{
	pthread_mutex_lock(&l->tx_lock);
	kill_locked(l);
	pthread_mutex_unlock(&l->tx_lock);
}
