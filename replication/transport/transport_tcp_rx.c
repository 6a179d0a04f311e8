/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receiving on a tcp lane: poll thread only. One recv brings many small frames into the lane's
 * buffer; the rest of a payload that began there is read straight into the window. Each header is
 * checked before a byte is put anywhere: a peer that talks nonsense loses the lane (-EPROTO).
 */
#include "common/byteorder.h"
#include "replication/transport/transport_tcp_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define READS_A_TURN 4 /* then the other lanes */

/* The peer's count of notices it took; it can't have taken more than were sent, nor take back. */
static int credits_take(struct tcp_lane *l, uint32_t consumed)
{
	uint32_t old = hint_read(&l->tx_consumed);

	if (consumed == old)
		return 0;
	if (consumed - old > hint_read(&l->tx_posted) - old)
		return -EPROTO;
	credit_return(&l->tx_consumed, consumed);
	return 0;
}

/* A header at the start of the buffer. 0, or -EPROTO. */
static int frame_begin(struct tcp_lane *l)
{
	const struct tcp_frame *f = (const struct tcp_frame *)(l->rx + l->rx_start);
	uint32_t len = get_be32(f->len), seq = get_be32(f->seq);
	uint16_t kind = get_be16(f->kind);
	uint64_t off = get_be64(f->off);

	if (get_be32(f->magic) != TCP_MAGIC_FRAME || get_be16(f->lane) != l->index ||
	    seq != l->rx_seq || credits_take(l, get_be32(f->consumed)) < 0)
		return -EPROTO;
	l->rx_start += sizeof(*f);
	if (kind == TCP_FRAME_CREDIT)
		return len == 0 && off == 0 && get_be32(f->imm) == 0 ? 0 : -EPROTO;
	if (kind != TCP_FRAME_NOTICE || !transport_in_window(off, len, l->ep->base.window_bytes))
		return -EPROTO;
	/* More notices than credits given: on RDMA there would be no receive for it. */
	if (seq - hint_read(&l->rx_reported) >= TRANSPORT_CREDITS)
		return -EPROTO;
	l->rx_seq++;
	l->in_frame = true;
	l->frame_len = len;
	l->frame_got = 0;
	l->frame_imm = get_be32(f->imm);
	l->frame_off = off;
	return 0;
}

static void frame_copy(struct tcp_lane *l)
{
	uint32_t have = l->rx_end - l->rx_start;
	uint32_t n = l->frame_len - l->frame_got;

	if (n > have)
		n = have;
	memcpy(l->ep->base.window + l->frame_off + l->frame_got, l->rx + l->rx_start, n);
	l->rx_start += n;
	l->frame_got += n;
}

int tcp_rx_parse(struct tcp_lane *l, struct transport_sink *s)
{
	for (;;) {
		if (l->in_frame) {
			frame_copy(l);
			if (l->frame_got < l->frame_len)
				return 0;
			if (sink_full(s))
				return 1;
			sink_add_notice(s, l->index, l->frame_imm, l->frame_off, l->frame_len);
			hint_write(&l->rx_consumed, hint_read(&l->rx_consumed) + 1);
			l->in_frame = false;
		}
		if (l->rx_end - l->rx_start < sizeof(struct tcp_frame))
			return 0;
		if (frame_begin(l) < 0)
			return -EPROTO;
	}
}

/* One read. Bytes, -EAGAIN, or another -errno. *ret_drained: the socket held less than
 * was asked for. */
static ssize_t read_some(struct tcp_lane *l, bool *ret_drained)
{
	uint32_t left = l->rx_end - l->rx_start;
	struct iovec iov[2];
	int iovcnt = 0;
	size_t window_part = 0, asked;
	ssize_t r;

	memmove(l->rx, l->rx + l->rx_start, left);
	l->rx_start = 0;
	l->rx_end = left;
	if (l->in_frame) {
		window_part = l->frame_len - l->frame_got;
		iov[iovcnt++] = (struct iovec){
			.iov_base = l->ep->base.window + l->frame_off + l->frame_got,
			.iov_len = window_part
		};
	}
	iov[iovcnt++] = (struct iovec){ .iov_base = l->rx + left, .iov_len = TCP_RX_BYTES - left };
	asked = window_part + TCP_RX_BYTES - left;
	do
		r = readv(l->fd, iov, iovcnt);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	if (r == 0)
		return -ECONNRESET;
	*ret_drained = (size_t)r < asked;
	if ((size_t)r < window_part)
		window_part = (size_t)r;
	l->frame_got += (uint32_t)window_part;
	l->rx_end += (uint32_t)((size_t)r - window_part);
	return r;
}

static void backlog_set(struct tcp_lane *l, bool on)
{
	l->backlog = on;
	if (on)
		sleep_announce(&l->ep->attention, 1);
}

static void finish(struct tcp_lane *l, int r)
{
	if (r < 0 && r != -EAGAIN)
		tcp_lane_down(l, r);
	else
		tcp_tx_credit(l);
}

void tcp_rx_backlog(struct tcp_lane *l, struct transport_sink *s)
{
	int r = tcp_rx_parse(l, s);

	backlog_set(l, r == 1);
	finish(l, r);
}

void tcp_rx(struct tcp_lane *l, struct transport_sink *s)
{
	bool drained = false;
	int r = 0;

	if (l->down)
		return;
	for (int i = 0; i < READS_A_TURN && !drained; i++) {
		ssize_t n;

		r = tcp_rx_parse(l, s);
		if (r != 0)
			break;
		n = read_some(l, &drained);
		if (n < 0) {
			r = (int)n;
			break;
		}
		l->ep->hot = l->index;
		r = tcp_rx_parse(l, s);
		if (r != 0)
			break;
	}
	backlog_set(l, r == 1);
	finish(l, r);
}
