/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_REPL_NODE_H
#define KVFS_TESTS_REPL_NODE_H
/*
 * A node of the replication's tests, as a mirror or as the primary: a real log and real checkpoint
 * files, and for a store a table of one checksum a record. What goes between nodes is in
 * repl_rig.h, who writes in repl_writer.h.
 */
#include "common/clock.h"
#include "common/crc32c.h"
#include "common/thread.h"
#include "log/ckpt.h"
#include "log/oplog.h"
#include "replication/mirror/mirror.h"
#include "replication/primary/primary.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RIG_RECORDS_MAX 250000 /* their sums are one item of a checkpoint: at most 1 MiB */
#define RIG_CKPT_RECORDS 500 /* at least, from one checkpoint to the next */
#define RIG_LOG_BYTES (16ULL << 20)
#define RIG_TIMEOUT_NS (4 * NSEC_PER_SEC)
#define RIG_WAIT_NS (20 * NSEC_PER_SEC)

static uint64_t rig_log_bytes = RIG_LOG_BYTES; /* before rig_open */
/* each so many-th record needs no mirror to be answered, and may be owed to them; 0: none */
static unsigned rig_early_every;
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
	uint32_t promised_node, promised_life;
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
	uint32_t life;                     /* of epoch */
};

/* Each differs, as if drawn by chance. */
static inline uint32_t rig_new_life(void)
{
	static uint32_t lives;

	return ++lives;
}

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
	n->life = rig_new_life();
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

static inline int rig_resync_install(void *ctx, const struct mirror_progress *p,
				     uint64_t *ret_lsn)
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

static inline int rig_promise(void *ctx, const struct mirror_promise *p)
{
	struct rig_node *n = ctx;

	ck_assert_uint_ge(p->epoch, n->promised);
	n->promised = p->epoch;
	n->promised_node = p->node_id;
	n->promised_life = p->life;
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
		.promised = { .epoch = n->promised,
			      .node_id = n->promised_node,
			      .life = n->promised_life },
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
		.life = n->life,
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
		.early_answers = true,
		.epoch = n->epoch,
		.next_lsn = n->last_lsn + 1,
		.want_checkpoint = rig_want,
		.ctx = n,
	};

	n->life = rig_new_life();
	ck_assert_int_eq(epochs_begin(&n->epochs, n->epoch, cfg.next_lsn, n->node_id, n->life), 0);
	ck_assert_int_eq(commit_create(n->log, &cfg, &n->commit), 0);
}

static inline void rig_primary_stop(struct rig_node *n)
{
	primary_destroy(n->primary);
	commit_destroy(n->commit);
	n->primary = NULL;
	n->commit = NULL;
}

#endif
