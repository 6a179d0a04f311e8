/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit queue: enqueue, the leader's group append. See commit.h for the picture and
 * commit_internal.h for the locks. Errors: the log's, which end every operation with -EIO.
 */
#include "replication/commit_internal.h"

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

/* The leader's group: what it moved from incoming to appending. */
struct commit_batch {
	struct op *ops[COMMIT_BATCH_OPS];
	struct op *early[COMMIT_BATCH_OPS]; /* answered before the mirrors have them */
	unsigned early_count;
	int iov_end[COMMIT_BATCH_OPS]; /* of each op, in iov */
	struct iovec iov[COMMIT_BATCH_IOV];
	unsigned count;
	int iovcnt;
	uint64_t bytes;
	uint64_t admitted;
};

static uint64_t op_bytes(const struct op *op)
{
	return (uint64_t)op->head_len + op->data_len;
}

static bool commit_batch_add(struct commit_batch *b, struct op *op)
{
	if (b->count == COMMIT_BATCH_OPS || b->iovcnt + 1 + op->data_iovcnt > COMMIT_BATCH_IOV ||
	    (b->count && b->bytes + op_bytes(op) > COMMIT_BATCH_BYTES))
		return false;
	b->iov[b->iovcnt++] = (struct iovec){ op->head, op->head_len };
	for (unsigned i = 0; i < op->data_iovcnt; i++)
		b->iov[b->iovcnt++] = op->data[i];
	b->iov_end[b->count] = b->iovcnt;
	b->ops[b->count++] = op;
	b->bytes += op_bytes(op);
	b->admitted += op->admitted_bytes;
	return true;
}

static void commit_batch_take_locked(struct commit *c, struct commit_batch *b)
{
	struct op *op, *next;

	b->count = 0;
	b->iovcnt = 0;
	b->bytes = 0;
	b->admitted = 0;
	cds_list_for_each_entry_safe(op, next, &c->incoming, node) {
		if (!commit_batch_add(b, op))
			break;
		cds_list_del(&op->node);
		cds_list_add_tail(&op->node, &c->appending);
	}
}

static int commit_append_range(struct commit *c, struct commit_batch *b, unsigned from,
			       unsigned count)
{
	int iov_begin = from ? b->iov_end[from - 1] : 0;

	return oplog_append(c->log, b->iov + iov_begin, b->iov_end[from + count - 1] - iov_begin,
			    b->ops[from]->lsn, count, true);
}

/* How many records from `from` on fit into the rest of the active pool. */
static unsigned commit_batch_fits(struct commit *c, const struct commit_batch *b, unsigned from)
{
	struct oplog_usage u;
	uint64_t room, bytes = 0;
	unsigned n = 0;

	oplog_usage(c->log, &u);
	room = u.active_capacity_bytes - u.active_used_bytes;
	while (from + n < b->count && bytes + op_bytes(b->ops[from + n]) <= room)
		bytes += op_bytes(b->ops[from + n++]);
	return n;
}

/*
 * One durable append of the group. Where the active pool is too full for all of it, its rest is
 * filled and the other pool begun: no more than one record's room stays unused, which
 * commit_admit() reckons with.
 */
static int commit_batch_append(struct commit *c, struct commit_batch *b)
{
	unsigned done = 0;
	int err = commit_append_range(c, b, 0, b->count);

	if (!err)
		done = b->count;
	while (done < b->count && (!err || err == -ENOSPC)) {
		unsigned n = commit_batch_fits(c, b, done);

		err = n ? commit_append_range(c, b, done, n) : oplog_switch(c->log, c->cfg.epoch);
		if (!err)
			done += n;
	}
	if (err)
		return err;
	atomic_store_explicit(&c->durable_lsn, b->ops[b->count - 1]->lsn, memory_order_release);
	atomic_fetch_sub_explicit(&c->admitted, b->admitted, memory_order_relaxed);
	atomic_fetch_add_explicit(&c->appended_records, b->count, memory_order_relaxed);
	atomic_fetch_add_explicit(&c->appended_bytes, b->bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&c->appends, 1, memory_order_relaxed);
	return 0;
}

/* leads: the caller is the leader, whose group could not be appended; it stops being one. err 0:
 * the queue ends, which is nobody's failure. */
static void commit_fail_as(struct commit *c, bool leads, int err)
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

static void commit_owed_clear(struct commit *c)
{
	c->owed_count = 0;
	atomic_store_explicit(&c->owed_since_ns, 0, memory_order_relaxed);
}

/* Of a queue that failed: the links send it from the log. */
static void commit_owed_forget(struct commit *c)
{
	for (unsigned i = 0; i < c->owed_count; i++)
		op_put(c->owed[i]);
	commit_owed_clear(c);
}

/* Hands what is owed and the group to every link. Its ops are on the pending list already: an
 * acknowledgement may be quicker than post's return, so the leader holds a reference to each. */
static void commit_post(struct commit *c, const struct commit_batch *b)
{
	struct commit_link *links[COMMIT_LINKS_MAX];
	unsigned n, count = c->owed_count + b->count;

	memcpy(c->owed + c->owed_count, b->ops, b->count * sizeof(b->ops[0]));
	commit_owed_clear(c);
	pthread_mutex_lock(&c->lock);
	n = c->link_count;
	for (unsigned i = 0; i < n; i++) {
		links[i] = c->links[i];
		links[i]->posting++;
	}
	pthread_mutex_unlock(&c->lock);
	for (unsigned i = 0; i < n; i++)
		links[i]->ops->post(links[i]->ctx, c->owed, count);
	pthread_mutex_lock(&c->lock);
	for (unsigned i = 0; i < n; i++)
		links[i]->posting--;
	commit_wake_locked(c);
	pthread_mutex_unlock(&c->lock);
	for (unsigned i = 0; i < count; i++)
		op_put(c->owed[i]);
}

/* A group of which nobody waits for a mirror's answer goes with the next one. */
static bool commit_owe(struct commit *c, const struct commit_batch *b)
{
	if (b->early_count < b->count || c->owed_count + b->count > COMMIT_BATCH_OPS)
		return false;
	if (!c->owed_count)
		atomic_store_explicit(&c->owed_since_ns, clock_mono_ns(), memory_order_relaxed);
	memcpy(c->owed + c->owed_count, b->ops, b->count * sizeof(b->ops[0]));
	c->owed_count += b->count;
	return true;
}

/* Under the lock: whether the mirrors answer what there is, so that they will have what they are
 * owed. */
static bool commit_mirrors_answer_locked(struct commit *c)
{
	const struct op *oldest;
	unsigned in_sync = 0;

	for (unsigned i = 0; i < c->link_count; i++)
		in_sync += c->links[i]->in_sync;
	if (in_sync < c->cfg.min_mirrors || in_sync == 0)
		return false;
	if (cds_list_empty(&c->pending))
		return true;
	oldest = cds_list_first_entry(&c->pending, struct op, node);
	return oldest->deadline_ns + COMMIT_EARLY_NS > clock_mono_ns() + c->cfg.timeout_ns;
}

/* Under the lock, with a reference to each op: which of them need no mirror to be answered. */
static void commit_batch_early_locked(struct commit *c, struct commit_batch *b)
{
	bool wanted = false;

	b->early_count = 0;
	for (unsigned i = 0; i < b->count; i++)
		wanted |= b->ops[i]->early;
	if (!wanted || !c->cfg.early_answers || !commit_mirrors_answer_locked(c))
		return;
	for (unsigned i = 0; i < b->count; i++) {
		if (!b->ops[i]->early || b->ops[i]->completed)
			continue;
		b->ops[i]->completed = true;
		b->early[b->early_count++] = b->ops[i];
	}
}

/* Leader: appends, posts and completes one group; may_owe: or leaves it to be posted with the next.
 * False: the log failed and leadership is gone. */
static bool commit_batch_run(struct commit *c, struct commit_batch *b, bool may_owe)
{
	CDS_LIST_HEAD(done);
	bool to_post;
	int err = b->count ? commit_batch_append(c, b) : 0;

	if (err) {
		commit_owed_forget(c);
		commit_fail_as(c, true, err);
		return false;
	}
	pthread_mutex_lock(&c->lock);
	commit_room_update_locked(c);
	to_post = c->link_count > 0 || c->owed_count > 0;
	for (unsigned i = 0; i < b->count; i++) {
		if (to_post)
			op_get(b->ops[i]);
		cds_list_del(&b->ops[i]->node);
		cds_list_add_tail(&b->ops[i]->node, &c->pending);
	}
	commit_batch_early_locked(c, b);
	commit_advance_locked(c, &done);
	commit_wake_locked(c);
	pthread_mutex_unlock(&c->lock);
	for (unsigned i = 0; i < b->early_count; i++)
		b->early[i]->ops->complete(b->early[i], 0);
	if (to_post && !(may_owe && commit_owe(c, b)))
		commit_post(c, b);
	commit_finish(&done, 0);
	return true;
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
		pthread_mutex_unlock(&c->lock);
		oplog_usage(c->log, &u);
		err = commit_heeds_hold(&u) ? -EBUSY : oplog_switch(c->log, c->cfg.epoch);
		pthread_mutex_lock(&c->lock);
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
