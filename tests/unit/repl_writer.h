/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_REPL_WRITER_H
#define KVFS_TESTS_REPL_WRITER_H
/*
 * Writers of the replication's tests: threads that give records to a primary's commit queue, and
 * how far they have come. What record lsn holds follows from lsn and the writer's seed.
 */
#include "tests/unit/repl_node.h"

#include <limits.h>
#include <stdlib.h>

static size_t rig_data_max = 6000; /* bytes of a large record, of which each seventh is one */

/* Writing: how far it has come. */
struct rig_progress {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* with lock: a count has come to where a waiter wants it */
	unsigned done, failed, freed;
	unsigned wake_done, wake_freed;
	bool ended;
};

static inline void rig_progress_init(struct rig_progress *g)
{
	memset(g, 0, sizeof(*g));
	g->wake_done = g->wake_freed = UINT_MAX;
	pthread_mutex_init(&g->lock, NULL);
	thread_cond_init(&g->changed);
}

static inline void rig_progress_count(struct rig_progress *g, unsigned done, unsigned failed,
				      unsigned freed)
{
	pthread_mutex_lock(&g->lock);
	g->done += done;
	g->failed += failed;
	g->freed += freed;
	if (g->done >= g->wake_done || g->freed >= g->wake_freed) {
		g->wake_done = g->wake_freed = UINT_MAX;
		pthread_cond_broadcast(&g->changed);
	}
	pthread_mutex_unlock(&g->lock);
}

/* Until done and freed have come so far. */
static inline void rig_progress_wait(struct rig_progress *g, unsigned done, unsigned freed)
{
	uint64_t deadline = clock_mono_ns() + 2 * RIG_WAIT_NS;
	int err = 0;

	pthread_mutex_lock(&g->lock);
	while (!err && (g->done < done || g->freed < freed)) {
		if (g->done < done && done < g->wake_done)
			g->wake_done = done;
		if (g->freed < freed && freed < g->wake_freed)
			g->wake_freed = freed;
		err = thread_cond_wait_until(&g->changed, &g->lock, deadline);
	}
	ck_assert_msg(!err, "writes hang: %u done, %u freed", g->done, g->freed);
	pthread_mutex_unlock(&g->lock);
}

static inline unsigned rig_progress_done(struct rig_progress *g)
{
	unsigned done;

	pthread_mutex_lock(&g->lock);
	done = g->done;
	pthread_mutex_unlock(&g->lock);
	return done;
}

/* Until one more is done than now, or rig_progress_end. */
static inline void rig_progress_more(struct rig_progress *g)
{
	uint64_t deadline = clock_mono_ns() + 2 * RIG_WAIT_NS;
	unsigned done;
	int err = 0;

	pthread_mutex_lock(&g->lock);
	done = g->done;
	while (!err && !g->ended && g->done == done) {
		if (done + 1 < g->wake_done)
			g->wake_done = done + 1;
		err = thread_cond_wait_until(&g->changed, &g->lock, deadline);
	}
	ck_assert_msg(!err, "writes hang: %u done", g->done);
	pthread_mutex_unlock(&g->lock);
}

/* The writer is to begin no more. */
static inline void rig_progress_end(struct rig_progress *g)
{
	pthread_mutex_lock(&g->lock);
	g->ended = true;
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
}

static inline bool rig_progress_ended(struct rig_progress *g)
{
	bool ended;

	pthread_mutex_lock(&g->lock);
	ended = g->ended;
	pthread_mutex_unlock(&g->lock);
	return ended;
}

struct rig_op {
	struct op op;
	uint8_t head[256];
	struct rig_progress *progress;
	uint8_t data[];
};

static inline void rig_op_complete(struct op *op, int err)
{
	rig_progress_count(caa_container_of(op, struct rig_op, op)->progress, 1, err != 0, 0);
}

static inline void rig_op_release(struct op *op)
{
	struct rig_op *r = caa_container_of(op, struct rig_op, op);
	struct rig_progress *progress = r->progress;

	free(r);
	rig_progress_count(progress, 0, 0, 1);
}

static const struct op_ops rig_op_ops = { .complete = rig_op_complete, .release = rig_op_release };

static inline size_t rig_data(uint64_t lsn, uint64_t seed, uint8_t *out)
{
	uint64_t x = (lsn + seed * 1000003) * 0x9E3779B97F4A7C15ULL;
	size_t len = lsn % 7 == 0 ? x % rig_data_max : x % 200;

	for (size_t i = 0; i < len; i++)
		out[i] = (uint8_t)(x >> (i % 8 * 8)) ^ (uint8_t)i;
	return len;
}

static inline void rig_write(struct rig_node *n, uint64_t seed, struct rig_progress *progress)
{
	struct rig_op *r = calloc(1, sizeof(*r) + rig_data_max);
	struct record rec = { .opcode = RECORD_WRITE, .ino = 2, .gen = 1 };
	uint32_t crc;

	if (rig_admits) { /* about what a record takes */
		r->op.admitted_bytes = (uint32_t)(200 + rig_data_max / 14);
		ck_assert_int_eq(commit_admit(n->commit, r->op.admitted_bytes, false,
					      clock_mono_ns() + RIG_WAIT_NS),
				 0);
	}
	r->progress = progress;
	r->op.ops = &rig_op_ops;
	r->op.head = r->head;
	r->op.deadline_ns = clock_mono_ns() + RIG_TIMEOUT_NS;
	pthread_mutex_lock(&n->lock);
	r->op.lsn = commit_next_lsn(n->commit);
	r->op.early = rig_early_every && r->op.lsn % rig_early_every == 0;
	ck_assert_uint_lt(r->op.lsn, RIG_RECORDS_MAX);
	rec.data = r->data;
	rec.data_len = (uint32_t)rig_data(r->op.lsn, seed, r->data);
	crc = crc32c(0, r->data, rec.data_len);
	r->op.head_len = (uint32_t)record_head_bytes(&rec);
	record_encode_head(&rec, r->head);
	record_seal(r->head, r->op.head_len, r->op.lsn, commit_epoch(n->commit), crc, rec.data_len);
	r->op.data_len = rec.data_len;
	r->op.data_iovcnt = rec.data_len ? 1 : 0;
	r->op.data[0] = (struct iovec){ r->data, rec.data_len };
	n->sums[r->op.lsn] = crc32c(1, r->data, rec.data_len);
	n->last_lsn = r->op.lsn;
	commit_enqueue(n->commit, &r->op);
	pthread_mutex_unlock(&n->lock);
	if (rig_early_every)
		commit_drive_owing(n->commit);
	else
		commit_drive(n->commit);
}

struct rig_writer {
	struct rig_node *n;
	unsigned count, depth;
	uint64_t seed;
	pthread_t thread;
	struct rig_progress progress;
};

static inline void *rig_writer_main(void *arg)
{
	struct rig_writer *w = arg;
	unsigned i;

	for (i = 0; i < w->count && !rig_progress_ended(&w->progress); i++) {
		/* once it is full, until half of it is done: not a wake-up for each */
		if (i - rig_progress_done(&w->progress) >= w->depth)
			rig_progress_wait(&w->progress, i - w->depth / 2, 0);
		/* where writers don't switch the log it is wanted with each record */
		if (oplog_last_lsn(w->n->log) >= w->n->ckpt_lsn + RIG_CKPT_RECORDS &&
		    atomic_exchange(&w->n->want_checkpoint, false))
			ck_assert_int_eq(rig_checkpoint(w->n), 0);
		rig_write(w->n, w->seed, &w->progress);
	}
	commit_drive(w->n->commit); /* what is owed is not freed before */
	rig_progress_wait(&w->progress, i, i);
	return NULL;
}

/* Writes count records from each of two threads, each with up to depth outstanding. Returns how
 * many failed. */
static inline unsigned rig_write_many(struct rig_node *n, unsigned count, unsigned depth,
				      uint64_t seed)
{
	struct rig_writer w[2] = { 0 };

	for (int i = 0; i < 2; i++) {
		w[i].n = n;
		w[i].count = count;
		w[i].depth = depth;
		w[i].seed = seed;
		rig_progress_init(&w[i].progress);
		ck_assert_int_eq(thread_start(&w[i].thread, "writer", rig_writer_main, &w[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(w[i].thread, NULL);
	return w[0].progress.failed + w[1].progress.failed;
}

#endif
