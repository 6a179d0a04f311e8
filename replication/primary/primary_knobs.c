/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may be changed while links run: lanes, batch and poll_us in one atomic word, which a link
 * reads for each batch. Parking a lane needs no more than that nothing new is posted on it: records
 * are ordered by LSN, not by lane, and what is under way on a lane arrives on it or the session
 * ends. Any thread.
 */
#include "replication/primary/link.h"

#include <assert.h>

#define KNOBS_BATCH_SHIFT 8
#define KNOBS_POLL_SHIFT 32

static uint64_t knobs_pack(const struct primary_knobs *k)
{
	return (uint64_t)k->poll_us << KNOBS_POLL_SHIFT | (uint64_t)k->batch << KNOBS_BATCH_SHIFT |
	       k->lanes;
}

static struct primary_knobs knobs_read(const struct primary *p)
{
	uint64_t word = atomic_load_explicit(&p->knobs, memory_order_relaxed);

	return (struct primary_knobs){
		.lanes = word & 0xFF,
		.batch = word >> KNOBS_BATCH_SHIFT & 0xFF,
		.poll_us = (unsigned)(word >> KNOBS_POLL_SHIFT),
	};
}

unsigned primary_lanes_open(const struct primary_config *cfg, const struct transport_ops *ops)
{
	unsigned used = cfg->lanes, open;

	if (cfg->lanes_open)
		return cfg->lanes_open > used ? cfg->lanes_open : used;
	if (cfg->lanes_default && ops->lanes_used && ops->lanes_used < used)
		used = ops->lanes_used;
	if (!cfg->lanes_ahead)
		return used;
	open = 2 * used > ops->lanes_open ? 2 * used : ops->lanes_open;
	return open < TRANSPORT_LANES_MAX ? open : TRANSPORT_LANES_MAX;
}

void primary_init_knobs(struct primary *p)
{
	struct primary_knobs k = {
		.lanes = p->cfg.lanes, .batch = PRIMARY_BATCH_MAX, .poll_us = p->cfg.poll_us
	};

	atomic_store_explicit(&p->knobs, knobs_pack(&k), memory_order_relaxed);
}

void primary_set_knobs(struct primary *p, const struct primary_knobs *knobs)
{
	assert(knobs->lanes > 0 && knobs->lanes <= TRANSPORT_LANES_MAX);
	assert(knobs->batch > 0 && knobs->batch <= PRIMARY_BATCH_MAX);
	pthread_mutex_lock(&p->lock);
	/* with the lock: a session that begins sets its endpoint to what it finds here */
	atomic_store_explicit(&p->knobs, knobs_pack(knobs), memory_order_relaxed);
	for (unsigned i = 0; i < p->cfg.mirror_count; i++) {
		struct link *l = &p->links[i];

		if (l->wake_ep)
			l->tops->set_poll_us(l->wake_ep, knobs->poll_us);
	}
	pthread_mutex_unlock(&p->lock);
}

struct primary_knobs primary_get_knobs(const struct primary *p)
{
	return knobs_read(p);
}

unsigned link_lanes_active(const struct link *l, unsigned opened)
{
	unsigned wanted = knobs_read(l->primary).lanes;

	return wanted < opened ? wanted : opened;
}

unsigned link_batch_max(const struct link *l)
{
	return knobs_read(l->primary).batch;
}

unsigned link_lanes_draining(const struct link *l)
{
	unsigned opened = atomic_load_explicit(&l->lanes, memory_order_relaxed), n = 0;
	uint64_t acked_lsn = atomic_load_explicit(&l->acked_lsn, memory_order_relaxed);

	for (unsigned i = link_lanes_active(l, opened); i < opened; i++)
		n += atomic_load_explicit(&l->lane_lsn[i], memory_order_relaxed) > acked_lsn;
	return n;
}
