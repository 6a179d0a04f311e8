/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit queue's timer thread "kv-commit": answers what is past its deadline with -EIO, and
 * turns the queue read-only while too few mirrors are in sync, where that is wanted.
 */
#include "replication/commit/commit_internal.h"

#include "common/clock.h"
#include "common/thread.h"

#include <errno.h>

/* Under the lock, which it gives up for the call. */
static void commit_turn_locked(struct commit *c, bool read_only)
{
	if (commit_is_read_only(c) == read_only)
		return;
	atomic_store_explicit(&c->read_only, read_only, memory_order_relaxed);
	commit_wake_locked(c);
	pthread_mutex_unlock(&c->lock);
	c->cfg.turned_read_only(c->cfg.ctx, read_only);
	pthread_mutex_lock(&c->lock);
}

/* Under the lock. Read-only: too few mirrors for as long as a change would wait for them. */
static void commit_watch_mirrors_locked(struct commit *c, uint64_t now_ns)
{
	unsigned in_sync = 0;

	if (!c->cfg.turned_read_only)
		return;
	for (unsigned i = 0; i < c->link_count; i++)
		in_sync += c->links[i]->in_sync;
	if (in_sync >= c->cfg.min_mirrors) {
		c->too_few_since_ns = 0;
		commit_turn_locked(c, false);
		return;
	}
	if (!c->too_few_since_ns)
		c->too_few_since_ns = now_ns;
	if (now_ns - c->too_few_since_ns >= c->cfg.timeout_ns)
		commit_turn_locked(c, true);
}

/* Under the lock: of list, those past their deadline that nobody answered. They stay where they are
 * (their records may yet commit) with one more reference each. */
static unsigned commit_expired_locked(struct commit *c, struct cds_list_head *list, uint64_t now,
				      struct op **expired, unsigned n, unsigned max)
{
	struct op *op;

	cds_list_for_each_entry(op, list, node) {
		if (n == max)
			break;
		if (op->completed || op->deadline_ns > now)
			continue;
		op->completed = true;
		op_get(op);
		expired[n++] = op;
		c->timeouts++;
	}
	return n;
}

void *commit_timer(void *arg)
{
	struct commit *c = arg;
	struct op *expired[256];

	pthread_mutex_lock(&c->lock);
	while (!c->stopping) {
		uint64_t now = clock_mono_ns();
		unsigned n;

		commit_watch_mirrors_locked(c, now);
		n = commit_expired_locked(c, &c->pending, now, expired, 0, 256);
		n = commit_expired_locked(c, &c->waiters, now, expired, n, 256);
		n = commit_expired_locked(c, &c->appending, now, expired, n, 256);
		n = commit_expired_locked(c, &c->incoming, now, expired, n, 256);
		if (n == 0) {
			thread_cond_wait_until(&c->ended, &c->lock, now + COMMIT_TICK_NS);
			continue;
		}
		pthread_mutex_unlock(&c->lock);
		for (unsigned i = 0; i < n; i++) {
			expired[i]->ops->complete(expired[i], -EIO);
			op_put(expired[i]);
		}
		pthread_mutex_lock(&c->lock);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}
