/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit queue: enqueue, who leads, its end. See commit.h for the picture and
 * commit_internal.h for the locks. Errors: the log's, which end every operation with -EIO.
 */
#include "replication/commit/commit_internal.h"

#include "common/clock.h"
#include "common/thread.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void op_get(struct op *op)
{
	atomic_fetch_add_explicit(&op->refs, 1, memory_order_relaxed);
}

void op_put(struct op *op)
{
	/* release: our reads of the data are done; acquire: so are everyone's, before
	 * release() frees them */
	if (atomic_fetch_sub_explicit(&op->refs, 1, memory_order_acq_rel) == 1)
		op->ops->release(op);
}

void commit_wake_locked(struct commit *c)
{
	if (c->sleepers)
		pthread_cond_broadcast(&c->changed);
}

int commit_sleep_locked(struct commit *c, uint64_t deadline_ns)
{
	int err;

	c->sleepers++;
	err = thread_cond_wait_until(&c->changed, &c->lock, deadline_ns);
	c->sleepers--;
	return err;
}

void commit_finish(struct cds_list_head *done, int err)
{
	struct op *op, *next;

	cds_list_for_each_entry_safe(op, next, done, node) {
		if (!op->completed) {
			op->completed = true;
			op->ops->complete(op, err);
		}
		op_put(op);
	}
}

/* Under the lock: every op that no log will ever hold goes to done. */
static void commit_drain_locked(struct commit *c, struct cds_list_head *done)
{
	cds_list_splice(&c->waiters, done);
	CDS_INIT_LIST_HEAD(&c->waiters);
	cds_list_splice(&c->pending, done);
	CDS_INIT_LIST_HEAD(&c->pending);
	cds_list_splice(&c->incoming, done);
	CDS_INIT_LIST_HEAD(&c->incoming);
}

void commit_fail_as(struct commit *c, bool leads, int err)
{
	CDS_LIST_HEAD(done);
	bool first;

	pthread_mutex_lock(&c->lock);
	first = !c->failed;
	c->failed = true;
	atomic_store_explicit(&c->room, 0, memory_order_relaxed); /* nothing is admitted any more */
	commit_drain_locked(c, &done);
	if (leads) {
		cds_list_splice(&c->appending, &done);
		CDS_INIT_LIST_HEAD(&c->appending);
		c->leader = false;
	}
	commit_wake_locked(c);
	pthread_cond_broadcast(&c->moved);
	pthread_mutex_unlock(&c->lock);
	commit_finish(&done, -EIO);
	if (first && err && c->cfg.failed)
		c->cfg.failed(c->cfg.ctx, err);
}

void commit_fail(struct commit *c, int err)
{
	commit_fail_as(c, false, err);
	commit_drive(c); /* lets go of what is owed */
}

void commit_end(struct commit *c)
{
	commit_fail_as(c, false, 0);
	commit_drive(c);
}

/* Under the lock: whether a group may be owed. */
static bool commit_may_owe_locked(const struct commit *c)
{
	for (unsigned i = 0; i < c->link_count; i++) {
		if (!c->links[i]->ops->dear)
			return false;
	}
	return !c->pay_wanted;
}

/* Under the lock: whether the leader has something to do. */
static bool commit_busy_locked(struct commit *c, bool may_owe)
{
	return !cds_list_empty(&c->incoming) || (c->owed_count && (!may_owe || c->pay_wanted));
}

static void commit_drive_as(struct commit *c, bool may_owe)
{
	struct commit_batch batch;
	CDS_LIST_HEAD(done);

	pthread_mutex_lock(&c->lock);
	if (!may_owe)
		c->pay_wanted = true;
	if (c->leader) {
		pthread_mutex_unlock(&c->lock);
		return;
	}
	c->leader = true;
	while (commit_busy_locked(c, may_owe) && !c->leader_wanted && !c->failed) {
		bool owe = may_owe && commit_may_owe_locked(c);

		c->pay_wanted = false;
		commit_batch_take_locked(c, &batch);
		pthread_mutex_unlock(&c->lock);
		if (!commit_batch_run(c, &batch, owe))
			return;
		pthread_mutex_lock(&c->lock);
	}
	if (c->failed) {
		pthread_mutex_unlock(&c->lock);
		commit_owed_forget(c);
		pthread_mutex_lock(&c->lock);
		commit_drain_locked(c, &done);
	}
	if (!c->owed_count)
		c->pay_wanted = false;
	c->leader = false;
	commit_wake_locked(c);
	pthread_mutex_unlock(&c->lock);
	commit_finish(&done, -EIO);
}

void commit_drive(struct commit *c)
{
	commit_drive_as(c, false);
}

void commit_drive_owing(struct commit *c)
{
	commit_drive_as(c, true);
}

uint64_t commit_owed_since(const struct commit *c)
{
	return atomic_load_explicit(&c->owed_since_ns, memory_order_relaxed);
}

int commit_switch_log(struct commit *c)
{
	uint64_t deadline = clock_mono_ns() + c->cfg.timeout_ns;
	struct oplog_usage u;
	int err = 0;

	pthread_mutex_lock(&c->lock);
	c->leader_wanted = true;
	while (c->leader && !c->failed && !err)
		err = commit_sleep_locked(c, deadline);
	c->leader_wanted = false;
	if (!c->leader && !c->failed) {
		c->leader = true;
		oplog_usage(c->log, &u);
		err = commit_heeds_hold(&u) || !commit_room_give_up_rest_locked(c) ? -EBUSY : 0;
		c->switching = !err;
		pthread_mutex_unlock(&c->lock);
		if (!err)
			err = oplog_switch(c->log, c->cfg.epoch);
		pthread_mutex_lock(&c->lock);
		c->switching = false;
		commit_room_update_locked(c);
		c->leader = false;
	} else {
		err = c->failed ? -EIO : -ETIMEDOUT;
	}
	commit_wake_locked(c);
	pthread_mutex_unlock(&c->lock);
	commit_drive(c);
	return err;
}

uint64_t commit_next_lsn(const struct commit *c)
{
	return atomic_load_explicit(&c->next_lsn, memory_order_relaxed);
}

uint64_t commit_epoch(const struct commit *c)
{
	return c->cfg.epoch;
}

void commit_enqueue(struct commit *c, struct op *op)
{
	assert(op->head_len && op->lsn == commit_next_lsn(c));
	op->completed = false;
	atomic_store_explicit(&op->refs, 1, memory_order_relaxed);
	pthread_mutex_lock(&c->lock);
	cds_list_add_tail(&op->node, &c->incoming);
	atomic_store_explicit(&c->next_lsn, op->lsn + 1, memory_order_relaxed);
	pthread_mutex_unlock(&c->lock);
}

void commit_wait(struct commit *c, struct op *op)
{
	struct op *pos;
	bool owed;
	int err = 0;

	assert(op->head_len == 0);
	op->completed = false;
	atomic_store_explicit(&op->refs, 1, memory_order_relaxed);
	pthread_mutex_lock(&c->lock);
	if (op->lsn > commit_point(c) && !c->failed) {
		/* by LSN, new ones mostly last */
		cds_list_for_each_entry_reverse(pos, &c->waiters, node)
			if (pos->lsn <= op->lsn)
				break;
		cds_list_add(&op->node, &pos->node);
		/* a leader may be about to owe what is waited for */
		owed = c->leader || commit_owed_since(c);
		pthread_mutex_unlock(&c->lock);
		if (owed)
			commit_drive(c);
		return;
	}
	if (op->lsn > commit_point(c))
		err = -EIO;
	op->completed = true;
	pthread_mutex_unlock(&c->lock);
	op->ops->complete(op, err);
	op_put(op);
}

int commit_create(struct oplog *log, const struct commit_config *cfg, struct commit **ret_c)
{
	struct commit *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return -ENOMEM;
	c->log = log;
	c->cfg = *cfg;
	atomic_store(&c->next_lsn, cfg->next_lsn);
	atomic_store(&c->durable_lsn, cfg->next_lsn - 1);
	atomic_store(&c->point, cfg->next_lsn - 1);
	CDS_INIT_LIST_HEAD(&c->incoming);
	CDS_INIT_LIST_HEAD(&c->appending);
	CDS_INIT_LIST_HEAD(&c->pending);
	CDS_INIT_LIST_HEAD(&c->waiters);
	thread_mutex_init_adaptive(&c->lock);
	thread_cond_init(&c->changed);
	thread_cond_init(&c->moved);
	thread_cond_init(&c->ended);
	commit_room_init(c);
	err = thread_start(&c->timer, "kv-commit", commit_timer, c);
	if (err) {
		commit_destroy(c);
		return err;
	}
	c->timer_started = true;
	*ret_c = c;
	return 0;
}

void commit_destroy(struct commit *c)
{
	CDS_LIST_HEAD(done);

	if (!c)
		return;
	assert(c->link_count == 0);
	pthread_mutex_lock(&c->lock);
	c->stopping = true;
	c->failed = true;
	commit_drain_locked(c, &done);
	pthread_cond_broadcast(&c->changed);
	pthread_cond_broadcast(&c->ended);
	pthread_mutex_unlock(&c->lock);
	if (c->timer_started)
		pthread_join(c->timer, NULL);
	commit_finish(&done, -EIO);
	commit_owed_forget(c);
	pthread_cond_destroy(&c->ended);
	pthread_cond_destroy(&c->moved);
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

int commit_wait_durable(struct commit *c, uint64_t lsn, uint64_t timeout_ns)
{
	uint64_t deadline = clock_mono_ns() + timeout_ns;
	int err = 0;

	commit_drive(c);
	pthread_mutex_lock(&c->lock);
	while (commit_durable_lsn(c) < lsn && !c->failed && !err)
		err = commit_sleep_locked(c, deadline);
	if (commit_durable_lsn(c) >= lsn)
		err = 0;
	else if (c->failed)
		err = -EIO;
	pthread_mutex_unlock(&c->lock);
	return err;
}

int commit_wait_committed(struct commit *c, uint64_t lsn, uint64_t timeout_ns)
{
	uint64_t deadline = clock_mono_ns() + timeout_ns;
	int err = 0;

	commit_drive(c);
	pthread_mutex_lock(&c->lock);
	c->point_waiters++;
	while (commit_point(c) < lsn && !c->failed && !err)
		err = thread_cond_wait_until(&c->moved, &c->lock, deadline);
	c->point_waiters--;
	if (commit_point(c) >= lsn)
		err = 0;
	else if (c->failed)
		err = -EIO;
	pthread_mutex_unlock(&c->lock);
	return err;
}
