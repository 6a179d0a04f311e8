/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target for what comes on a lane of the tcp transport: the input, after four bytes that set
 * the scene, is the peer's stream, arriving in pieces. The window is memory of just its size.
 * Corpus: tests/fuzz/corpus/tcp.
 */
#include "replication/transport/transport_tcp_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* What was decoded, and what the lane says of itself, is within what the peer may do. */
static void lane_check(const struct tcp_lane *l, const struct transport_sink *s, uint32_t posted)
{
	for (int i = 0; i < s->count; i++) {
		const struct transport_event *e = &s->events[i];

		must(e->kind == TRANSPORT_EVENT_NOTICE && e->lane == l->index);
		must(e->off <= WINDOW_BYTES && e->len <= WINDOW_BYTES - e->off);
	}
	must(l->rx_start <= l->rx_end && l->rx_end <= TCP_RX_BYTES);
	must(!l->in_frame || l->frame_got <= l->frame_len);
	must(l->tx_consumed <= posted);
	must(l->rx_seq - l->rx_reported <= TRANSPORT_CREDITS);
	must(l->rx_seq - l->rx_consumed == l->in_frame);
}

/* Decodes what is in the buffer, the events taken as often as their array is full. */
static int lane_drain(struct tcp_lane *l, int events_max, uint32_t posted, bool report)
{
	struct transport_event events[4];
	int r;

	do {
		struct transport_sink s = { .events = events, .max = events_max };

		r = tcp_rx_parse(l, &s);
		lane_check(l, &s, posted);
		must(r == 0 || r == -EPROTO || (r == 1 && s.count == events_max));
		if (report)
			l->rx_reported = l->rx_consumed;
	} while (r == 1);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct tcp_ep ep;
	struct tcp_lane *l = &ep.lane[0];
	size_t at = 4, piece;

	if (size < at)
		return 0;
	memset(&ep, 0, sizeof(ep));
	ep.base.window = malloc(WINDOW_BYTES);
	ep.base.window_bytes = WINDOW_BYTES;
	l->ep = &ep;
	l->fd = -1;
	l->tx_posted = data[0];
	l->rx = malloc(TCP_RX_BYTES);
	must(ep.base.window && l->rx);
	piece = 1 + data[1] * 16U;
	while (at < size) {
		size_t n = size - at < piece ? size - at : piece;

		memmove(l->rx, l->rx + l->rx_start, l->rx_end - l->rx_start);
		l->rx_end -= l->rx_start;
		l->rx_start = 0;
		memcpy(l->rx + l->rx_end, data + at, n);
		l->rx_end += (uint32_t)n;
		at += n;
		if (lane_drain(l, 1 + data[2] % 4, data[0], data[3] & 1) != 0)
			break;
		must(l->rx_end - l->rx_start < sizeof(struct tcp_frame));
	}
	free(l->rx);
	free(ep.base.window);
	return 0;
}
