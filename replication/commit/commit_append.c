/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The leader's group: taken from the queue, appended to the log at once, answered early where that
 * is allowed, handed to the links or left to go with the next one. The leader's thread.
 */
#include "replication/commit/commit_internal.h"

#include "common/clock.h"

#include <errno.h>
#include <string.h>

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

void commit_batch_take_locked(struct commit *c, struct commit_batch *b)
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
	atomic_fetch_add_explicit(&c->appended_records, b->count, memory_order_relaxed);
	atomic_fetch_add_explicit(&c->appended_bytes, b->bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&c->appends, 1, memory_order_relaxed);
	return 0;
}

static void commit_owed_clear(struct commit *c)
{
	c->owed_count = 0;
	atomic_store_explicit(&c->owed_since_ns, 0, memory_order_relaxed);
}

void commit_owed_forget(struct commit *c)
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

/* Under the lock, the group not yet among what is pending: whether the mirrors answer what came
 * before it, so that they will have what they are owed. */
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
	return oldest->pending_ns + COMMIT_EARLY_NS > clock_mono_ns();
}

/* Under the lock, as above: which ops of the group need no mirror to be answered. */
static void commit_batch_early_locked(struct commit *c, struct commit_batch *b)
{
	bool wanted = false;

	b->early_count = 0;
	for (unsigned i = 0; i < b->count; i++)
		wanted |= b->ops[i]->early;
	if (!wanted || c->failed || !c->cfg.early_answers || !commit_mirrors_answer_locked(c))
		return;
	for (unsigned i = 0; i < b->count; i++) {
		if (!b->ops[i]->early || b->ops[i]->completed)
			continue;
		b->ops[i]->completed = true;
		b->early[b->early_count++] = b->ops[i];
	}
}

bool commit_batch_run(struct commit *c, struct commit_batch *b, bool may_owe)
{
	CDS_LIST_HEAD(done);
	bool to_post;
	int err = b->count ? commit_batch_append(c, b) : 0;
	uint64_t now = clock_mono_ns();

	if (err) {
		commit_owed_forget(c);
		commit_fail_as(c, true, err);
		return false;
	}
	pthread_mutex_lock(&c->lock);
	commit_room_update_locked(c);
	atomic_fetch_sub_explicit(&c->admitted, b->admitted, memory_order_seq_cst);
	to_post = c->link_count > 0 || c->owed_count > 0;
	commit_batch_early_locked(c, b);
	for (unsigned i = 0; i < b->count; i++) {
		if (to_post)
			op_get(b->ops[i]);
		cds_list_del(&b->ops[i]->node);
		cds_list_add_tail(&b->ops[i]->node, &c->pending);
		b->ops[i]->pending_ns = now;
	}
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
