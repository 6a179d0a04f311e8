/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target for a lane of the shm transport: the input is what a peer has written into the memory
 * that both share, the ring of our notices' credits and the ring of its own notices, behind a head
 * that says how far both had come. The window is of the peer's making as well and only pointed to.
 * Corpus: tests/fuzz/corpus/shm.
 */
#include "replication/transport/transport_shm_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES 4096
#define EVENTS 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Begins an input; the rings of notices and of credits follow. */
struct scene {
	uint32_t tx_head, rx_tail;
	uint8_t want, events_max, peer_gone, zero;
};

static struct shm_ep ep;
static unsigned notices, downs;

static void must(bool holds)
{
	if (!holds)
		abort();
}

static void event_check(const struct shm_lane *l, const struct transport_event *e)
{
	must(e->lane == l->index && downs == 0);
	if (e->kind == TRANSPORT_EVENT_NOTICE) {
		must(e->off <= WINDOW_BYTES && e->len <= WINDOW_BYTES - e->off);
		notices++;
	} else if (e->kind == TRANSPORT_EVENT_LANE_DOWN) {
		must(e->err == -EPROTO || e->err == -ECONNRESET);
		downs++;
	} else {
		must(e->kind == TRANSPORT_EVENT_WRITABLE && l->want == 0);
	}
}

static void lane_drain(struct shm_lane *l, int events_max)
{
	struct transport_event events[EVENTS];
	unsigned rounds = 0;
	bool all;

	do {
		struct transport_sink s = { .events = events, .max = events_max };

		all = shm_lane_scan(l, &s);
		must(all || s.count == events_max);
		for (int i = 0; i < s.count; i++)
			event_check(l, &events[i]);
	} while (!all && ++rounds <= TRANSPORT_CREDITS + 2);
	must(all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct shm_lane *l = &ep.lane[0];
	size_t bytes = shm_inbox_bytes(1, WINDOW_BYTES), rings = sizeof(struct shm_ring);
	struct scene scene;
	uint32_t head;

	if (size < sizeof(scene))
		return 0;
	memcpy(&scene, data, sizeof(scene));
	data += sizeof(scene);
	size -= sizeof(scene);
	memset(&ep, 0, sizeof(ep));
	ep.inbox = aligned_alloc(SHM_PAGE, bytes);
	ep.peer_inbox = aligned_alloc(SHM_PAGE, bytes);
	must(ep.inbox && ep.peer_inbox);
	memset(ep.inbox, 0, bytes);
	memset(ep.peer_inbox, 0, bytes);
	ep.head = (struct shm_head *)ep.inbox;
	ep.peer_head = (struct shm_head *)ep.peer_inbox;
	ep.base.window = ep.inbox + shm_window_off(1);
	ep.base.window_bytes = WINDOW_BYTES;
	ep.peer_gone = scene.peer_gone & 1;
	ep.peer_err = -ECONNRESET;
	*l = (struct shm_lane){
		.ep = &ep,
		.in = shm_ring_at(ep.inbox, 0),
		.out = shm_ring_at(ep.peer_inbox, 0),
		.tx_head = scene.tx_head,
		.tx_tail = scene.tx_head,
		.rx_tail = scene.rx_tail,
		.want = scene.want % 3,
	};
	memcpy(l->in, data, size < rings ? size : rings);
	if (size > rings)
		memcpy(l->out, data + rings, size - rings < rings ? size - rings : rings);
	head = l->in->head;
	notices = downs = 0;
	lane_drain(l, 1 + scene.events_max % EVENTS);
	must(notices == l->rx_tail - scene.rx_tail && notices <= TRANSPORT_CREDITS);
	must(downs || l->rx_tail == head);
	must(notices == 0 || l->down || l->in->tail == l->rx_tail);
	must(downs == l->down);
	free(ep.inbox);
	free(ep.peer_inbox);
	return 0;
}
