/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_REPL_RIG_H
#define KVFS_TESTS_REPL_RIG_H
/*
 * A primary and mirrors in one process: real logs and checkpoint files in a temporary directory,
 * and for a store a table of one checksum a record. What record lsn holds follows from lsn and the
 * rig's seed.
 */
#include "common/clock.h"
#include "common/crc32c.h"
#include "common/thread.h"
#include "log/ckpt.h"
#include "log/oplog.h"
#include "replication/mirror.h"
#include "replication/primary.h"
#include "replication/transport.h"
#include "replication/transport_fault.h"

#include <check.h>
#include <errno.h>
#include <sched.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RIG_RECORDS_MAX 250000 /* their sums are one item of a checkpoint: at most 1 MiB */
#define RIG_CKPT_RECORDS 500 /* at least, from one checkpoint to the next */
#define RIG_LOG_BYTES (16ULL << 20)
#define RIG_TIMEOUT_NS (4 * NSEC_PER_SEC)
#define RIG_WAIT_NS (20 * NSEC_PER_SEC)

static size_t rig_data_max = 6000; /* bytes of a large record, of which each seventh is one */

static uint64_t rig_log_bytes = RIG_LOG_BYTES; /* before rig_open */
static bool rig_admits; /* writers ask for log room first, as fs/ does */

static const uint8_t rig_uuid[16] = "volume of test 1";
static const uint8_t rig_key[32] = "the key of volume of test number";

/* One node's log, checkpoints and store. */
struct rig_node {
	char path[300];
	int dirfd;
	struct oplog *log;
	struct ckpt *ckpt;
	pthread_mutex_t lock;              /* ckpt writing, sums */
	pthread_cond_t changed;            /* with lock: last_lsn at wake_lsn; sync_epoch */
	uint64_t wake_lsn;                 /* lock; 0: nobody waits */
	uint32_t sums[RIG_RECORDS_MAX];    /* lock; of lsn: 0 never written */
	uint64_t last_lsn;                 /* lock */
	uint64_t epoch;
	uint64_t promised;                 /* kv-mirror's */
	uint32_t promised_node;
	struct epochs epochs;              /* kv-mirror's, or the primary's */
	_Atomic uint64_t sync_epoch;       /* a mirror's */
	_Atomic unsigned told_out;         /* a mirror's: how often it noted to be out of sync */
	_Atomic unsigned noted_in, noted_out; /* a primary's */
	_Atomic uint64_t ckpt_lsn;
	_Atomic unsigned checkpoints, resyncs, keeps;
	uint64_t kept_after, kept_last, kept_epoch; /* of the last keep */
	atomic_bool want_checkpoint;
	atomic_bool no_checkpoints;        /* want_checkpoint is not heard */
	const struct mirror_ops *mirror_ops; /* NULL: the rig's */
	struct mirror *mirror;
	struct commit *commit;
	struct primary *primary;
	struct addr listen;
	uint32_t node_id;
};

static inline void rig_node_open(struct rig_node *n, const char *dir, const char *name,
				 uint32_t node_id)
{
	struct oplog_config cfg = { .node_id = node_id, .format_version = 1 };
	struct oplog_range range;
	const char *why = "";

	memset(n, 0, sizeof(*n));
	snprintf(n->path, sizeof(n->path), "%s/%s", dir, name);
	ck_assert_int_eq(mkdir(n->path, 0700), 0);
	n->dirfd = open(n->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	n->node_id = node_id;
	n->epoch = epoch_make(1, 1);
	pthread_mutex_init(&n->lock, NULL);
	thread_cond_init(&n->changed);
	memcpy(cfg.uuid, rig_uuid, 16);
	ck_assert_int_eq(oplog_create(&logdev_pmemlog_ops, n->dirfd, rig_log_bytes), 0);
	ck_assert_int_eq(oplog_open(&logdev_pmemlog_ops, n->dirfd, &cfg, &n->log, &range, &why), 0);
	ck_assert_int_eq(oplog_start(n->log, 1, 1), 0);
	ck_assert_int_eq(ckpt_open(n->dirfd, true, rig_uuid, &n->ckpt), 0);
}

static inline void rig_node_close(struct rig_node *n)
{
	primary_destroy(n->primary);
	commit_destroy(n->commit);
	mirror_destroy(n->mirror);
	oplog_close(n->log);
	ckpt_close(n->ckpt);
	close(n->dirfd);
	pthread_cond_destroy(&n->changed);
	pthread_mutex_destroy(&n->lock);
}

/* Writes the sums up to last_lsn as a checkpoint and lets the log go that far. */
static inline int rig_checkpoint(void *ctx)
{
	struct rig_node *n = ctx;
	struct iovec iov = { n->sums, sizeof(n->sums) };
	struct ckpt_writer *w;
	struct ckpt_info info;
	uint64_t seg, lsn;
	uint32_t bytes;
	int err;

	if (n->commit)
		commit_checkpoint_begin(n->commit);
	if (rig_admits && n->commit)
		(void)commit_switch_log(n->commit); /* as fs/ does; -EBUSY is fine */
	pthread_mutex_lock(&n->lock);
	lsn = n->last_lsn;
	/* the primary's store runs ahead of its log */
	err = n->commit ? commit_wait_durable(n->commit, lsn, RIG_WAIT_NS) : 0;
	if (!err)
		err = ckpt_begin(n->ckpt, lsn, n->epoch, &w);
	if (!err) {
		err = ckpt_writer_add(w, 1, &iov, 1, &seg, &bytes);
		if (err)
			ckpt_abort(w);
		else
			err = ckpt_commit(w, seg, lsn, &info); /* it holds all there is */
	}
	pthread_mutex_unlock(&n->lock);
	if (!err) {
		oplog_covered(n->log, lsn);
		n->ckpt_lsn = lsn;
	}
	if (n->commit)
		commit_checkpoint_done(n->commit, err);
	n->checkpoints++;
	return err;
}

static inline int rig_apply(void *ctx, const struct record *r)
{
	struct rig_node *n = ctx;
	int err = 0;

	pthread_mutex_lock(&n->lock);
	if (r->lsn != n->last_lsn + 1 || r->lsn >= RIG_RECORDS_MAX)
		err = -EINVAL;
	else
		n->sums[r->lsn] = crc32c(1, r->data, r->data_len);
	n->last_lsn = r->lsn;
	n->epoch = r->epoch;
	if (n->wake_lsn && n->last_lsn >= n->wake_lsn)
		pthread_cond_broadcast(&n->changed);
	pthread_mutex_unlock(&n->lock);
	return err;
}

static inline void rig_mirror_want(void *ctx, uint64_t epoch)
{
	struct rig_node *n = ctx;

	(void)epoch;
	if (!n->no_checkpoints)
		ck_assert_int_eq(rig_checkpoint(n), 0);
}

static inline int rig_resync_keep(void *ctx, uint64_t after_lsn, uint64_t last_lsn, uint64_t epoch)
{
	struct rig_node *n = ctx;

	ck_assert_uint_eq(oplog_last_lsn(n->log), last_lsn);
	n->keeps++;
	n->kept_after = after_lsn;
	n->kept_last = last_lsn;
	n->kept_epoch = epoch;
	return 0;
}

static inline int rig_resync_begin(void *ctx)
{
	struct rig_node *n = ctx;
	int err;

	n->resyncs++;
	pthread_mutex_lock(&n->lock);
	memset(n->sums, 0, sizeof(n->sums));
	n->last_lsn = 0;
	pthread_mutex_unlock(&n->lock);
	err = ckpt_wipe(n->ckpt);
	return err ? err : oplog_restart(n->log, 1, 1);
}

static inline int rig_image_item(void *ctx, uint64_t seg, uint8_t type, const void *data,
				 size_t len)
{
	struct rig_node *n = ctx;

	(void)seg;
	(void)type;
	if (len != sizeof(n->sums))
		return -EBADMSG;
	memcpy(n->sums, data, len);
	return 0;
}

static inline int rig_resync_install(void *ctx, uint64_t *ret_lsn)
{
	static const struct ckpt_read_ops ops = { .item = rig_image_item };
	struct rig_node *n = ctx;
	struct ckpt_info infos[2];
	int err = ckpt_list(n->ckpt, infos) == 1 ? 0 : -ENOENT;

	pthread_mutex_lock(&n->lock);
	if (!err)
		err = ckpt_read(n->ckpt, &infos[0], &ops, n, NULL);
	if (!err)
		n->last_lsn = infos[0].lsn;
	pthread_cond_broadcast(&n->changed);
	pthread_mutex_unlock(&n->lock);
	if (!err)
		err = oplog_restart(n->log, infos[0].lsn + 1, infos[0].epoch);
	if (!err)
		*ret_lsn = infos[0].lsn;
	return err;
}

static inline int rig_promise(void *ctx, uint64_t epoch, uint32_t node)
{
	struct rig_node *n = ctx;

	ck_assert_uint_ge(epoch, n->promised);
	n->promised = epoch;
	n->promised_node = node;
	return 0;
}

static inline int rig_note_state(void *ctx, const struct epochs *epochs, uint64_t sync_epoch)
{
	struct rig_node *n = ctx;

	pthread_mutex_lock(&n->lock);
	n->epochs = *epochs;
	n->sync_epoch = sync_epoch;
	n->told_out += sync_epoch == 0;
	pthread_cond_broadcast(&n->changed);
	pthread_mutex_unlock(&n->lock);
	return 0;
}

static const struct mirror_ops rig_mirror_ops = {
	.apply = rig_apply,
	.want_checkpoint = rig_mirror_want,
	.resync_keep = rig_resync_keep,
	.resync_begin = rig_resync_begin,
	.resync_install = rig_resync_install,
	.promise_epoch = rig_promise,
	.note_state = rig_note_state,
};

static inline struct mirror_config rig_mirror_config(struct rig_node *n)
{
	struct mirror_config cfg = {
		.node_id = n->node_id,
		.promised_epoch = n->promised,
		.promised_node = n->promised_node,
		.sync_epoch = n->sync_epoch,
		.epochs = &n->epochs,
		.last_lsn = n->last_lsn,
		.arena_bytes = 1 << 30,
		.ring_bytes = 4 << 20,
		.lanes_max = 4,
		.listen = &n->listen,
		.listen_count = 1,
	};

	memcpy(cfg.uuid, rig_uuid, 16);
	memcpy(cfg.key, rig_key, 32);
	return cfg;
}

static inline void rig_mirror_start_with(struct rig_node *n, const struct mirror_config *cfg)
{
	struct mirror_stats s;
	const char *why = "";
	const struct mirror_ops *ops = n->mirror_ops ? n->mirror_ops : &rig_mirror_ops;
	int err = mirror_create(n->log, n->ckpt, cfg, ops, n, &n->mirror, &why);

	ck_assert_msg(err == 0, "mirror: %s: %s", strerror(-err), why);
	mirror_stats(n->mirror, &s);
	if (n->listen.kind != ADDR_SHM)
		n->listen.port = s.listen_port; /* the same again after a restart */
}

static inline void rig_mirror_start(struct rig_node *n, const struct transport_ops *transport)
{
	struct mirror_config cfg = rig_mirror_config(n);

	cfg.transport = transport;
	rig_mirror_start_with(n, &cfg);
}

static inline void rig_mirror_stop(struct rig_node *n)
{
	mirror_destroy(n->mirror);
	n->mirror = NULL;
}

/* The primary. */
static inline void rig_want(void *ctx)
{
	struct rig_node *n = ctx;

	n->want_checkpoint = true;
}

static inline int rig_note_sync(void *ctx, uint32_t node_id, bool in)
{
	struct rig_node *n = ctx;

	(void)node_id;
	(*(in ? &n->noted_in : &n->noted_out))++;
	return 0;
}

static inline struct primary_config rig_primary_config(struct rig_node *n,
						       const struct addr *mirrors, unsigned count,
						       unsigned lanes)
{
	struct primary_config cfg = {
		.node_id = n->node_id,
		.epoch = n->epoch,
		.epochs = &n->epochs,
		.arena_bytes = 1 << 30,
		.lanes = lanes,
		.timeout_ns = RIG_TIMEOUT_NS,
		.mirrors = mirrors,
		.mirror_count = count,
		.checkpoint = rig_checkpoint,
		.note_sync = rig_note_sync,
		.ctx = n,
	};

	memcpy(cfg.uuid, rig_uuid, 16);
	memcpy(cfg.key, rig_key, 32);
	return cfg;
}

static inline void rig_commit_start(struct rig_node *n, enum commit_protocol protocol,
				    unsigned min_mirrors, uint64_t timeout_ns)
{
	struct commit_config cfg = {
		.protocol = protocol,
		.min_mirrors = min_mirrors,
		.timeout_ns = timeout_ns,
		.epoch = n->epoch,
		.next_lsn = n->last_lsn + 1,
		.want_checkpoint = rig_want,
		.ctx = n,
	};

	ck_assert_int_eq(epochs_begin(&n->epochs, n->epoch, cfg.next_lsn, n->node_id), 0);
	ck_assert_int_eq(commit_create(n->log, &cfg, &n->commit), 0);
}

static inline void rig_primary_stop(struct rig_node *n)
{
	primary_destroy(n->primary);
	commit_destroy(n->commit);
	n->primary = NULL;
	n->commit = NULL;
}

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

/* Waits until mirror m has applied all that p wrote, and compares. */
static inline void rig_expect_same(struct rig_node *p, struct rig_node *m)
{
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS;
	struct mirror_stats s;
	int err = 0;

	pthread_mutex_lock(&m->lock);
	m->wake_lsn = p->last_lsn;
	while (!err && m->last_lsn < p->last_lsn)
		err = thread_cond_wait_until(&m->changed, &m->lock, deadline);
	m->wake_lsn = 0;
	mirror_stats(m->mirror, &s);
	ck_assert_msg(!err, "mirror is at %lu (%s), primary at %lu", m->last_lsn, s.last_error,
		      p->last_lsn);
	ck_assert(!s.failed);
	ck_assert_uint_eq(m->last_lsn, p->last_lsn);
	ck_assert_uint_eq(oplog_last_lsn(m->log), p->last_lsn);
	ck_assert_int_eq(memcmp(m->sums, p->sums, sizeof(m->sums)), 0);
	pthread_mutex_unlock(&m->lock);
}

/* The rig: one primary, up to two mirrors. */
struct rig {
	char dir[200];
	struct rig_node p, m[2];
};

/* The transport of the tests that go over a network: tcp, or verbs where KVFS_TEST_TRANSPORT=verbs
 * says so (in the virtual-machine rig: tests/vm/verbs_contract.sh). */
static inline enum addr_kind rig_net(void)
{
	const char *name = getenv("KVFS_TEST_TRANSPORT");

	return name && strcmp(name, "verbs") == 0 ? ADDR_VERBS : ADDR_TCP;
}

static inline const struct transport_ops *rig_net_ops(void)
{
	return transport_for(rig_net());
}

static inline void rig_open(struct rig *r, enum addr_kind kind)
{
	const char *tmp = getenv("TMPDIR");

	/* In memory where there is such a place: three logs on one disk would be all
	 * that is measured. */
	if (access("/dev/shm", W_OK) == 0)
		tmp = "/dev/shm";
	snprintf(r->dir, sizeof(r->dir), "%s/kvfs-repl-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(r->dir));
	rig_node_open(&r->p, r->dir, "p", 1);
	for (int i = 0; i < 2; i++) {
		struct rig_node *m = &r->m[i];

		rig_node_open(m, r->dir, i ? "m1" : "m0", 2 + (uint32_t)i);
		m->listen.kind = kind;
		if (kind == ADDR_SHM)
			snprintf(m->listen.host, sizeof(m->listen.host), "%s/m%d.sock", r->dir, i);
		else
			snprintf(m->listen.host, sizeof(m->listen.host), "127.0.0.1");
	}
}

static inline int rig_remove(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static inline void rig_close(struct rig *r)
{
	rig_node_close(&r->p);
	rig_node_close(&r->m[0]);
	rig_node_close(&r->m[1]);
	nftw(r->dir, rig_remove, 8, FTW_DEPTH | FTW_PHYS);
}

static inline void rig_primary_start_with(struct rig *r, const struct primary_config *cfg)
{
	ck_assert_int_eq(primary_create(r->p.commit, r->p.log, r->p.ckpt, cfg, &r->p.primary), 0);
}

static inline void rig_primary_start(struct rig *r, unsigned mirrors, unsigned lanes,
				     const struct transport_ops *transport)
{
	struct addr addrs[2] = { r->m[0].listen, r->m[1].listen };
	struct primary_config cfg = rig_primary_config(&r->p, addrs, mirrors, lanes);

	cfg.transport = transport;
	rig_primary_start_with(r, &cfg);
}

/* The primary may be live a moment before the mirror says so. */
static inline void rig_wait_connected(struct rig_node *n, struct mirror_stats *ret_stats)
{
	uint64_t end = clock_mono_ns() + RIG_WAIT_NS;

	do
		mirror_stats(n->mirror, ret_stats);
	while (!ret_stats->connected && clock_mono_ns() < end && sched_yield() == 0);
	ck_assert(ret_stats->connected);
}

static inline void rig_wait_live(struct rig *r, unsigned n)
{
	const char *why = "";
	int err = primary_wait_live(r->p.primary, n, RIG_WAIT_NS, &why);

	ck_assert_msg(err == 0, "not live: %s: %s", strerror(-err), why);
}

/* A live mirror that stops answering after a while, for longer than the primary waits for it. */
static inline void rig_open_stalling(struct rig *r, enum addr_kind kind,
				     const struct transport_ops *net)
{
	static const struct transport_fault_plan plan = { .seed = 1, .stall_at = 200,
							  .stall_ns = 1200 * NSEC_PER_MSEC };
	struct primary_config cfg;

	transport_fault_use(net, &plan);
	rig_open(r, kind);
	rig_commit_start(&r->p, COMMIT_PROTOCOL_C, 0, NSEC_PER_SEC);
	rig_mirror_start(&r->m[0], &transport_fault_ops);
	cfg = rig_primary_config(&r->p, &r->m[0].listen, 1, 2);
	cfg.timeout_ns = NSEC_PER_SEC;
	rig_primary_start_with(r, &cfg);
	rig_wait_live(r, 1);
}

#endif
