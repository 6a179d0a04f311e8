/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mirrors as the commit queue sees them: acknowledgements, the in-sync set, and the commit point
 * they move.
 */
#include "replication/commit/commit_internal.h"

#include "common/clock.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

uint64_t commit_point(const struct commit *c)
{
	return atomic_load_explicit(&c->point, memory_order_acquire);
}

uint64_t commit_durable_lsn(const struct commit *c)
{
	return atomic_load_explicit(&c->durable_lsn, memory_order_acquire);
}

enum commit_protocol commit_protocol_of(const struct commit *c)
{
	return c->cfg.protocol;
}

static uint64_t commit_link_acked(const struct commit_link *l)
{
	return l->commit->cfg.protocol == COMMIT_PROTOCOL_B ? l->received_lsn : l->durable_lsn;
}

/* The newest LSN that is durable here and acknowledged as the protocol asks; the present point
 * while too few mirrors are in sync. */
static uint64_t commit_point_wanted_locked(const struct commit *c)
{
	uint64_t lsn = commit_durable_lsn(c);
	unsigned in_sync = 0;

	for (unsigned i = 0; i < c->link_count; i++) {
		const struct commit_link *l = c->links[i];

		if (!l->in_sync && !l->joining)
			continue;
		in_sync += l->in_sync;
		if (c->cfg.protocol != COMMIT_PROTOCOL_A && commit_link_acked(l) < lsn)
			lsn = commit_link_acked(l);
	}
	return in_sync < c->cfg.min_mirrors ? commit_point(c) : lsn;
}

static void commit_collect_locked(struct cds_list_head *list, uint64_t point,
				  struct cds_list_head *done)
{
	struct op *op, *next;

	cds_list_for_each_entry_safe(op, next, list, node) {
		if (op->lsn > point)
			break;
		cds_list_del(&op->node);
		cds_list_add_tail(&op->node, done);
	}
}

void commit_advance_locked(struct commit *c, struct cds_list_head *done)
{
	uint64_t wanted = commit_point_wanted_locked(c);

	if (wanted <= commit_point(c))
		return;
	atomic_store_explicit(&c->point, wanted, memory_order_release);
	if (c->point_waiters)
		pthread_cond_broadcast(&c->moved);
	commit_collect_locked(&c->pending, wanted, done);
	commit_collect_locked(&c->waiters, wanted, done);
}

int commit_link_add(struct commit *c, const struct commit_link_ops *ops, void *ctx,
		    struct commit_link **ret_l)
{
	struct commit_link *l = calloc(1, sizeof(*l));
	int err = 0;

	if (!l)
		return -ENOMEM;
	l->commit = c;
	l->ops = ops;
	l->ctx = ctx;
	pthread_mutex_lock(&c->lock);
	if (c->link_count == COMMIT_LINKS_MAX)
		err = -ENOSPC;
	else
		c->links[c->link_count++] = l;
	pthread_mutex_unlock(&c->lock);
	if (err) {
		free(l);
		return err;
	}
	*ret_l = l;
	return 0;
}

void commit_link_remove(struct commit_link *l)
{
	struct commit *c = l->commit;
	CDS_LIST_HEAD(done);

	pthread_mutex_lock(&c->lock);
	for (unsigned i = 0; i < c->link_count; i++) {
		if (c->links[i] != l)
			continue;
		c->links[i] = c->links[--c->link_count];
		break;
	}
	/* post() never blocks, so this ends; the tick only bounds a lost wake-up */
	while (l->posting)
		commit_sleep_locked(c, clock_mono_ns() + COMMIT_TICK_NS);
	commit_advance_locked(c, &done);
	pthread_mutex_unlock(&c->lock);
	commit_finish(&done, 0);
	free(l);
}

int commit_link_set_sync(struct commit_link *l, bool in_sync)
{
	struct commit *c = l->commit;
	CDS_LIST_HEAD(done);
	int err = 0;

	pthread_mutex_lock(&c->lock);
	if (in_sync && c->cfg.protocol != COMMIT_PROTOCOL_A &&
	    commit_link_acked(l) < commit_point(c))
		err = -EAGAIN;
	else
		l->in_sync = in_sync;
	l->joining = err == -EAGAIN;
	commit_advance_locked(c, &done);
	pthread_mutex_unlock(&c->lock);
	commit_finish(&done, 0);
	return err;
}

void commit_link_ack(struct commit_link *l, uint64_t received_lsn, uint64_t durable_lsn)
{
	struct commit *c = l->commit;
	CDS_LIST_HEAD(done);

	pthread_mutex_lock(&c->lock);
	l->received_lsn = received_lsn;
	l->durable_lsn = durable_lsn;
	commit_advance_locked(c, &done);
	pthread_mutex_unlock(&c->lock);
	commit_finish(&done, 0);
}

void commit_stats(struct commit *c, struct commit_stats *ret_stats)
{
	struct commit_stats s = {
		.commit_point = commit_point(c),
		.durable_lsn = commit_durable_lsn(c),
		.next_lsn = commit_next_lsn(c),
		.appended_records =
			atomic_load_explicit(&c->appended_records, memory_order_relaxed),
		.appended_bytes = atomic_load_explicit(&c->appended_bytes, memory_order_relaxed),
		.pace_bytes = atomic_load_explicit(&c->pace_bytes, memory_order_relaxed),
		.appends = atomic_load_explicit(&c->appends, memory_order_relaxed),
	};

	pthread_mutex_lock(&c->lock);
	for (unsigned i = 0; i < c->link_count; i++)
		s.in_sync += c->links[i]->in_sync;
	s.links = c->link_count;
	s.timeouts = c->timeouts;
	s.failed = c->failed;
	s.read_only = commit_is_read_only(c);
	s.waiting_for_log = c->sleepers > 0 && atomic_load(&c->checkpoint_wanted);
	pthread_mutex_unlock(&c->lock);
	*ret_stats = s;
}
