/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_UNIT_COMMIT_RIG_H
#define KVFS_TESTS_UNIT_COMMIT_RIG_H
/*
 * A commit queue over the real operation log on the model medium, with links that the test
 * acknowledges. One a process: the cases run one after another.
 */
#include "replication/commit/commit.h"

#include "common/clock.h"
#include "common/crc32c.h"
#include "common/thread.h"
#include "tests/unit/oplog_util.h"
#include "tests/unit/unit_main.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#define POOL_BYTES (1U << 20)
#define TIMEOUT_NS (5 * NSEC_PER_SEC)

struct test_op {
	struct op op;
	uint8_t head[128];
	uint8_t data[1024];
	_Atomic int completed; /* times */
	_Atomic int err;
	_Atomic int released;
};

static struct oplog *oplog;
static struct commit *commit;
static pthread_mutex_t store = PTHREAD_MUTEX_INITIALIZER; /* plays the store's lock */
static _Atomic unsigned checkpoints_wanted;
static _Atomic int failed_err;
static _Atomic int turned_read_only; /* 1: it did, 2: and back */

static void on_complete(struct op *op, int err)
{
	struct test_op *t = caa_container_of(op, struct test_op, op);

	atomic_store(&t->err, err);
	atomic_fetch_add(&t->completed, 1);
}

static void on_release(struct op *op)
{
	struct test_op *t = caa_container_of(op, struct test_op, op);

	atomic_fetch_add(&t->released, 1);
}

static const struct op_ops test_ops = { on_complete, on_release };

static void on_want_checkpoint(void *ctx)
{
	atomic_fetch_add(&checkpoints_wanted, 1);
}

static void on_failed(void *ctx, int err)
{
	atomic_store(&failed_err, err);
}

static void on_turned_read_only(void *ctx, bool read_only)
{
	atomic_store(&turned_read_only, read_only ? 1 : 2);
}

/* timeout_ns other than TIMEOUT_NS: the queue turns read-only after it. */
static void setup_for(const struct logdev_ops *dev, enum commit_protocol protocol,
		      unsigned min_mirrors, uint64_t timeout_ns)
{
	struct oplog_range range;
	const char *why = "";
	struct commit_config cfg = {
		.protocol = protocol,
		.min_mirrors = min_mirrors,
		.timeout_ns = timeout_ns,
		.epoch = 1,
		.next_lsn = 1,
		.early_answers = true,
		.want_checkpoint = on_want_checkpoint,
		.failed = on_failed,
		.turned_read_only = timeout_ns == TIMEOUT_NS ? NULL : on_turned_read_only,
	};

	util_mem_pools(POOL_BYTES);
	ck_assert_int_eq(oplog_open(dev, -1, &util_cfg, &oplog, &range, &why), 0);
	ck_assert_int_eq(oplog_start(oplog, 1, 1), 0);
	ck_assert_int_eq(commit_create(oplog, &cfg, &commit), 0);
}

static void setup(const struct logdev_ops *dev, enum commit_protocol protocol, unsigned min_mirrors)
{
	setup_for(dev, protocol, min_mirrors, TIMEOUT_NS);
}

static void teardown(void)
{
	commit_destroy(commit);
	oplog_close(oplog);
}

/* Seals t as the next operation and queues it; drive is the caller's. */
static void submit(struct test_op *t, uint32_t data_len, uint64_t deadline_ns)
{
	struct record r = {
		.opcode = RECORD_WRITE, .ino = 7, .data = t->data, .data_len = data_len
	};

	t->op.ops = &test_ops;
	t->op.head = t->head;
	t->op.head_len = (uint32_t)record_head_bytes(&r);
	t->op.data_len = data_len;
	t->op.data[0] = (struct iovec){ t->data, data_len };
	t->op.data_iovcnt = 1;
	t->op.deadline_ns = deadline_ns;
	record_encode_head(&r, t->head);
	pthread_mutex_lock(&store);
	t->op.lsn = commit_next_lsn(commit);
	record_seal(t->head, t->op.head_len, t->op.lsn, 1, crc32c(0, t->data, data_len), data_len);
	commit_enqueue(commit, &t->op);
	pthread_mutex_unlock(&store);
}

static void run(struct test_op *t, uint32_t data_len)
{
	submit(t, data_len, clock_mono_ns() + TIMEOUT_NS);
	commit_drive(commit);
}

#define ANSWERED(t, e)                                                                             \
	do {                                                                                       \
		ck_assert_int_eq(atomic_load(&(t)->completed), 1);                                 \
		ck_assert_int_eq(atomic_load(&(t)->err), (e));                                     \
	} while (0)
#define WAITING(t) ck_assert_int_eq(atomic_load(&(t)->completed), 0)

/* A link that notes what it was given. */
struct test_link {
	struct commit_link *link;
	_Atomic uint64_t posted_lsn;
	_Atomic unsigned posts;
};

static void on_post(void *ctx, struct op *const *ops, unsigned n)
{
	struct test_link *l = ctx;

	for (unsigned i = 0; i < n; i++) {
		ck_assert_uint_eq(ops[i]->lsn, l->posted_lsn + 1);
		ck_assert_uint_le(ops[i]->lsn, commit_durable_lsn(commit)); /* log before wire */
		l->posted_lsn = ops[i]->lsn;
	}
	l->posts++;
}

static const struct commit_link_ops link_ops = { .post = on_post, .dear = true };

static void link_up(struct test_link *l)
{
	l->posted_lsn = commit_durable_lsn(commit);
	ck_assert_int_eq(commit_link_add(commit, &link_ops, l, &l->link), 0);
	commit_link_ack(l->link, l->posted_lsn, l->posted_lsn);
	ck_assert_int_eq(commit_link_set_sync(l->link, true), 0);
}

static inline void wait_until(_Atomic int *what, int value)
{
	uint64_t end = clock_mono_ns() + 3 * NSEC_PER_SEC;

	while (atomic_load(what) != value && clock_mono_ns() < end)
		sched_yield();
}

#endif
