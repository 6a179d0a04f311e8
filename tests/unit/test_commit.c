/* SPDX-License-Identifier: Apache-2.0 */
/* The commit queue over the real operation log on the model medium, with links that
 * the test acknowledges. */
#include "replication/commit.h"

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

static void setup(const struct logdev_ops *dev, enum commit_protocol protocol, unsigned min_mirrors)
{
	struct oplog_range range;
	const char *why = "";
	struct commit_config cfg = {
		.protocol = protocol,
		.min_mirrors = min_mirrors,
		.timeout_ns = TIMEOUT_NS,
		.epoch = 1,
		.next_lsn = 1,
		.early_answers = true,
		.want_checkpoint = on_want_checkpoint,
		.failed = on_failed,
	};

	util_mem_pools(POOL_BYTES);
	ck_assert_int_eq(oplog_open(dev, -1, &util_cfg, &oplog, &range, &why), 0);
	ck_assert_int_eq(oplog_start(oplog, 1, 1), 0);
	ck_assert_int_eq(commit_create(oplog, &cfg, &commit), 0);
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

static void wait_lsn(struct test_op *t, uint64_t lsn)
{
	t->op.ops = &test_ops;
	t->op.lsn = lsn;
	t->op.deadline_ns = clock_mono_ns() + TIMEOUT_NS;
	commit_wait(commit, &t->op);
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

START_TEST(alone_commits_at_once)
{
	static struct test_op a, b, w;

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_C, 0);
	run(&a, 100);
	ANSWERED(&a, 0);
	ck_assert_int_eq(atomic_load(&a.released), 1);
	submit(&b, 10, clock_mono_ns() + TIMEOUT_NS);
	wait_lsn(&w, 2);
	WAITING(&b);
	WAITING(&w);
	commit_drive(commit);
	ANSWERED(&b, 0);
	ANSWERED(&w, 0);
	ck_assert_uint_eq(commit_point(commit), 2);
	ck_assert_uint_eq(oplog_last_lsn(oplog), 2);
	teardown();
}
END_TEST

START_TEST(protocol_c_waits_for_every_mirror_in_sync)
{
	static struct test_op a, w;
	struct test_link l1 = { 0 }, l2 = { 0 };

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_C, 1);
	link_up(&l1);
	link_up(&l2);
	run(&a, 100);
	wait_lsn(&w, 1);
	ck_assert_uint_eq(l1.posted_lsn, 1);
	commit_link_ack(l1.link, 1, 1);
	WAITING(&a);
	commit_link_ack(l2.link, 1, 0); /* in memory only */
	WAITING(&a);
	WAITING(&w);
	commit_link_ack(l2.link, 1, 1);
	ANSWERED(&a, 0);
	ANSWERED(&w, 0);
	commit_link_remove(l1.link);
	commit_link_remove(l2.link);
	teardown();
}
END_TEST

START_TEST(protocol_b_counts_memory_and_a_nothing)
{
	static struct test_op a, b;
	struct test_link l = { 0 };

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_B, 1);
	link_up(&l);
	run(&a, 100);
	WAITING(&a);
	commit_link_ack(l.link, 1, 0);
	ANSWERED(&a, 0);
	commit_link_remove(l.link);
	teardown();

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_A, 0);
	link_up(&l);
	run(&b, 100);
	ANSWERED(&b, 0);
	commit_link_remove(l.link);
	teardown();
}
END_TEST

START_TEST(a_mirror_that_falls_out_no_longer_holds_writes)
{
	static struct test_op a, b;
	struct test_link l1 = { 0 }, l2 = { 0 };

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_C, 1);
	link_up(&l1);
	link_up(&l2);
	run(&a, 100);
	commit_link_ack(l1.link, 1, 1);
	WAITING(&a);
	ck_assert_int_eq(commit_link_set_sync(l2.link, false), 0);
	ANSWERED(&a, 0);
	ck_assert_int_eq(commit_link_set_sync(l2.link, true), -EAGAIN); /* it lacks record 1 */
	commit_link_ack(l2.link, 1, 1);
	ck_assert_int_eq(commit_link_set_sync(l2.link, true), 0);
	run(&b, 100);
	commit_link_ack(l1.link, 2, 2);
	WAITING(&b);
	commit_link_ack(l2.link, 2, 2);
	ANSWERED(&b, 0);
	commit_link_remove(l1.link);
	commit_link_remove(l2.link);
	teardown();
}
END_TEST

static void run_early(struct test_op *t)
{
	t->op.early = true;
	submit(t, 10, clock_mono_ns() + 2 * TIMEOUT_NS); /* it does not grow old soon */
	commit_drive_owing(commit);
}

/* Answered by the log alone; goes to the mirror before or with whatever anybody waits for. */
START_TEST(early_ops_are_owed_to_the_mirrors)
{
	static struct test_op a[4], b, w;
	struct test_link l = { 0 };

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_C, 1);
	link_up(&l);
	run_early(&a[0]);
	run_early(&a[1]);
	ANSWERED(&a[1], 0);
	ck_assert_uint_ne(commit_owed_since(commit), 0);
	ck_assert_uint_eq(l.posts, 0);
	ck_assert_uint_eq(commit_durable_lsn(commit), 2);
	ck_assert_uint_eq(commit_point(commit), 0);
	run(&b, 100);
	ck_assert_uint_eq(commit_owed_since(commit), 0);
	ck_assert_uint_eq(l.posts, 1);
	ck_assert_uint_eq(l.posted_lsn, 3);
	WAITING(&b);
	ck_assert_int_eq(atomic_load(&a[0].released), 0);
	commit_link_ack(l.link, 3, 3);
	ANSWERED(&b, 0);
	ANSWERED(&a[0], 0);
	ck_assert_int_eq(atomic_load(&a[0].released), 1);

	run_early(&a[2]);
	wait_lsn(&w, 4); /* as a reader of that key does */
	ck_assert_uint_eq(l.posted_lsn, 4);
	WAITING(&w);
	commit_link_ack(l.link, 4, 4);
	ANSWERED(&w, 0);

	run_early(&a[3]); /* its mirror goes, and the queue */
	commit_link_remove(l.link);
	teardown();
	ck_assert_int_eq(atomic_load(&a[3].released), 1);
}
END_TEST

/* The links send what is owed from the log then. */
START_TEST(a_failed_log_owes_nothing)
{
	static struct test_op a[2], b[2];
	struct test_link l = { 0 };

	for (int i = 0; i < 2; i++) {
		logdev_fault_wrap(&logdev_mem_ops);
		setup(&logdev_fault_ops, COMMIT_PROTOCOL_C, 1);
		link_up(&l);
		run_early(&a[i]);
		ANSWERED(&a[i], 0);
		commit_link_ack(l.link, 1, 1);
		ck_assert_int_eq(atomic_load(&a[i].released), 0);
		if (i == 0)
			logdev_fault_arm(&(struct logdev_fault){
				.kind = LOGDEV_FAULT_ERROR, .at = 1, .error = -EIO });
		else
			commit_fail(commit, -EIO);
		run(&b[i], 10);
		ANSWERED(&b[i], -EIO);
		ck_assert_uint_eq(commit_owed_since(commit), 0);
		ck_assert_int_eq(atomic_load(&a[i].released), 1);
		commit_link_remove(l.link);
		teardown();
	}
}
END_TEST

/* While the mirrors answer nothing, others wait already. */
START_TEST(early_ops_wait_behind_silent_mirrors)
{
	static struct test_op a, b, c;
	struct test_link l = { 0 };

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_C, 1);
	link_up(&l);
	submit(&a, 10, clock_mono_ns() + TIMEOUT_NS - 200 * NSEC_PER_MSEC); /* 200 ms ago */
	commit_drive(commit);
	run_early(&b);
	WAITING(&b);
	commit_link_ack(l.link, 2, 2);
	ANSWERED(&b, 0);
	run_early(&c);
	ANSWERED(&c, 0);
	commit_link_remove(l.link);
	teardown();
}
END_TEST

START_TEST(early_ops_wait_below_min_mirrors)
{
	struct test_link l1 = { 0 }, l2 = { 0 };
	static struct test_op a, b;

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_C, 2);
	link_up(&l1);
	run_early(&a);
	WAITING(&a);
	ck_assert_uint_eq(commit_owed_since(commit), 0);
	ck_assert_uint_eq(l1.posted_lsn, 1);
	link_up(&l2);
	commit_link_ack(l1.link, 1, 1);
	ANSWERED(&a, 0);
	run_early(&b);
	ANSWERED(&b, 0);
	commit_link_remove(l1.link);
	commit_link_remove(l2.link);
	teardown();
}
END_TEST

static void wait_until_set(_Atomic int *flag)
{
	uint64_t end = clock_mono_ns() + 3 * NSEC_PER_SEC;

	while (!atomic_load(flag) && clock_mono_ns() < end)
		sched_yield();
}

START_TEST(too_few_mirrors_time_out_and_never_acknowledge_falsely)
{
	static struct test_op a, w;
	struct test_link l = { 0 };

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_C, 1);
	submit(&a, 100, clock_mono_ns() + 50 * NSEC_PER_MSEC);
	commit_drive(commit);
	WAITING(&a);
	wait_until_set(&a.completed);
	ANSWERED(&a, -EIO);
	ck_assert_int_eq(atomic_load(&a.released), 0); /* its record may still be sent */
	ck_assert_uint_eq(commit_point(commit), 0);
	wait_lsn(&w, 1);
	WAITING(&w);
	/* a mirror comes, has the record, and it is committed; the answer is not given twice */
	link_up(&l);
	ck_assert_uint_eq(commit_point(commit), 1);
	ANSWERED(&w, 0);
	ANSWERED(&a, -EIO);
	wait_until_set(&a.released); /* kv-commit, which answered, may have it still */
	ck_assert_int_eq(atomic_load(&a.released), 1);
	commit_link_remove(l.link);
	teardown();
}
END_TEST

START_TEST(a_failed_log_fails_everything)
{
	static struct test_op a, b, c, w;

	logdev_fault_wrap(&logdev_mem_ops);
	setup(&logdev_fault_ops, COMMIT_PROTOCOL_C, 0);
	run(&a, 10);
	ANSWERED(&a, 0);
	logdev_fault_arm(
		&(struct logdev_fault){ .kind = LOGDEV_FAULT_ERROR, .at = 1, .error = -EIO });
	submit(&b, 10, clock_mono_ns() + TIMEOUT_NS);
	wait_lsn(&w, 2);
	commit_drive(commit);
	ANSWERED(&b, -EIO);
	ANSWERED(&w, -EIO);
	ck_assert_int_eq(atomic_load(&failed_err), -EIO);
	run(&c, 10);
	ANSWERED(&c, -EIO);
	ck_assert_int_eq(commit_admit(commit, 100, true, clock_mono_ns() + TIMEOUT_NS), -EIO);
	ck_assert_int_eq(commit_wait_durable(commit, 3, NSEC_PER_SEC), -EIO);
	ck_assert_uint_eq(commit_point(commit), 1);
	teardown();
	logdev_fault_disarm();
}
END_TEST

static bool admit_and_run(struct test_op *t, bool urgent)
{
	int err = commit_admit(commit, 1200, urgent, clock_mono_ns());

	if (err) {
		ck_assert_int_eq(err, -EIO);
		return false;
	}
	memset(t, 0, sizeof(*t));
	t->op.admitted_bytes = 1200;
	run(t, 1024);
	ANSWERED(t, 0);
	return true;
}

static void *failing_checkpointer(void *arg)
{
	_Atomic bool *stop = arg;

	while (!atomic_load(stop)) {
		commit_checkpoint_begin(commit);
		sched_yield();
		commit_checkpoint_done(commit, -ENOSPC);
	}
	return NULL;
}

START_TEST(a_full_log_keeps_room_for_deletes_and_goes_on_after_a_checkpoint)
{
	static struct test_op t;
	unsigned plain = 0, urgent = 0;
	_Atomic bool stop;
	pthread_t failing;

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_C, 0);
	while (admit_and_run(&t, false))
		ck_assert_uint_lt(plain++, 10000);
	ck_assert_uint_gt(plain, 2 * POOL_BYTES / 1100 * 7 / 10);
	ck_assert_uint_ge(atomic_load(&checkpoints_wanted), 1);
	while (admit_and_run(&t, true) && urgent < 20)
		urgent++;
	ck_assert_uint_eq(urgent, 20);

	/* a writer waits for the checkpoint it asked for, and is told why it made no room */
	commit_checkpoint_done(commit, -EIO);
	atomic_store(&stop, false);
	ck_assert_int_eq(thread_start(&failing, "kv-test-ckpt", failing_checkpointer, &stop), 0);
	ck_assert_int_eq(commit_admit(commit, 1200, false, clock_mono_ns() + TIMEOUT_NS), -ENOSPC);
	atomic_store(&stop, true);
	pthread_join(failing, NULL);

	ck_assert_int_eq(commit_switch_log(commit), -EBUSY);
	oplog_covered(oplog, commit_durable_lsn(commit));
	commit_checkpoint_done(commit, 0);
	ck_assert(admit_and_run(&t, false));
	teardown();
}
END_TEST

struct asker {
	pthread_t thread;
	int err;
};

static void *asker_main(void *arg)
{
	struct asker *a = arg;

	a->err = commit_admit(commit, 1200, false, clock_mono_ns() + TIMEOUT_NS);
	return NULL;
}

START_TEST(a_checkpoint_from_before_the_disk_had_room_fails_no_writer)
{
	static struct test_op t;
	struct asker a;
	struct commit_stats stats;

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_C, 0);
	while (admit_and_run(&t, false))
		continue;
	commit_checkpoint_begin(commit);
	ck_assert_int_eq(thread_start(&a.thread, "kv-test", asker_main, &a), 0);
	do {
		sched_yield();
		commit_stats(commit, &stats);
	} while (!stats.waiting_for_log);
	atomic_store(&checkpoints_wanted, 0);
	commit_checkpoint_done(commit, -ENOSPC);
	/* it asks for one of its own, which makes room */
	for (uint64_t end = clock_mono_ns() + TIMEOUT_NS;
	     atomic_load(&checkpoints_wanted) == 0 && clock_mono_ns() < end;)
		sched_yield();
	ck_assert_uint_eq(atomic_load(&checkpoints_wanted), 1);
	commit_checkpoint_begin(commit);
	oplog_covered(oplog, commit_durable_lsn(commit));
	commit_checkpoint_done(commit, 0);
	pthread_join(a.thread, NULL);
	ck_assert_int_eq(a.err, 0);
	commit_unadmit(commit, 1200);
	teardown();
}
END_TEST

#define CROWD 4
#define CROWD_OPS 2000

struct crowd {
	struct test_op *ops;
	pthread_t thread;
};

static void *crowd_main(void *arg)
{
	struct crowd *c = arg;

	for (unsigned i = 0; i < CROWD_OPS; i++) {
		ck_assert_int_eq(commit_admit(commit, 200, false, clock_mono_ns() + TIMEOUT_NS), 0);
		c->ops[i].op.admitted_bytes = 200;
		run(&c->ops[i], 16);
	}
	return NULL;
}

static void *crowd_checkpointer(void *arg)
{
	_Atomic bool *stop = arg;

	while (!atomic_load(stop)) {
		uint64_t lsn;

		commit_switch_log(commit);
		lsn = commit_durable_lsn(commit);
		oplog_covered(oplog, lsn);
		commit_checkpoint_done(commit, 0);
	}
	return NULL;
}

START_TEST(threads_share_appends_and_every_operation_is_answered_once)
{
	struct crowd crowd[CROWD];
	struct test_link l = { 0 };
	_Atomic bool stop = false;
	pthread_t checkpointer;
	struct commit_stats stats;

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_A, 0);
	link_up(&l);
	ck_assert_int_eq(thread_start(&checkpointer, "kv-test-ckpt", crowd_checkpointer, &stop), 0);
	for (unsigned i = 0; i < CROWD; i++) {
		crowd[i].ops = calloc(CROWD_OPS, sizeof(struct test_op));
		ck_assert_int_eq(thread_start(&crowd[i].thread, "kv-test", crowd_main, &crowd[i]),
				 0);
	}
	for (unsigned i = 0; i < CROWD; i++)
		pthread_join(crowd[i].thread, NULL);
	atomic_store(&stop, true);
	pthread_join(checkpointer, NULL);
	commit_drive(commit);
	commit_stats(commit, &stats);
	ck_assert_uint_eq(stats.commit_point, CROWD * CROWD_OPS);
	ck_assert_uint_eq(stats.appended_records, CROWD * CROWD_OPS);
	ck_assert_uint_eq(l.posted_lsn, CROWD * CROWD_OPS);
	commit_link_remove(l.link);
	for (unsigned i = 0; i < CROWD; i++) {
		for (unsigned j = 0; j < CROWD_OPS; j++) {
			ANSWERED(&crowd[i].ops[j], 0);
			ck_assert_int_eq(atomic_load(&crowd[i].ops[j].released), 1);
		}
		free(crowd[i].ops);
	}
	teardown();
}
END_TEST

static int admit_once(uint32_t bytes, uint64_t deadline_ns)
{
	int err = commit_admit(commit, bytes, false, deadline_ns);

	if (!err)
		commit_unadmit(commit, bytes);
	return err;
}

/* Paced, admissions have their turns; urgent ones and those past their deadline don't
 * wait for them. */
START_TEST(paces_admissions)
{
	uint64_t began;

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_C, 0);
	commit_pace(commit, 100000); /* 1000 bytes: 10 ms */
	ck_assert(!commit_admit_now(commit, 1000, false));
	ck_assert(commit_admit_now(commit, 1000, true));
	commit_unadmit(commit, 1000);
	began = clock_mono_ns();
	for (int i = 0; i < 21; i++)
		ck_assert_int_eq(admit_once(1000, began + 10 * NSEC_PER_SEC), 0);
	ck_assert_uint_ge(clock_mono_ns() - began, 195 * NSEC_PER_MSEC);
	commit_pace(commit, 1); /* the turn after the next is in 1000 s */
	ck_assert_int_eq(admit_once(1000, clock_mono_ns() + NSEC_PER_MSEC), 0);
	ck_assert_int_eq(admit_once(1000, clock_mono_ns() + NSEC_PER_MSEC), 0);
	commit_pace(commit, 0);
	ck_assert(commit_admit_now(commit, 1000, false));
	commit_unadmit(commit, 1000);
	teardown();
}
END_TEST

/* A pool held for a mirror is left alone by who switches as he likes, and taken when
 * records need room. */
START_TEST(a_hold_never_costs_room)
{
	static struct test_op t;
	struct oplog_usage u;

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_C, 0);
	for (int i = 0; i < 3; i++)
		ck_assert(admit_and_run(&t, false));
	ck_assert_int_eq(commit_switch_log(commit), 0);
	oplog_covered(oplog, 3);
	oplog_hold(oplog, 3);
	oplog_usage(oplog, &u);
	ck_assert(u.covered && u.held && !u.can_switch && u.active_base_lsn == 4);
	ck_assert_int_eq(commit_switch_log(commit), -EBUSY);
	oplog_hold(oplog, 4);
	oplog_usage(oplog, &u);
	ck_assert(u.can_switch && !u.held);
	oplog_hold(oplog, 1);
	for (unsigned n = 0; n < 10 * POOL_BYTES / 1100; n++) {
		ck_assert(admit_and_run(&t, false));
		if (atomic_exchange(&checkpoints_wanted, 0)) {
			commit_switch_log(commit);
			oplog_covered(oplog, commit_durable_lsn(commit));
			commit_checkpoint_done(commit, 0);
		}
	}
	ck_assert_uint_gt(oplog_first_lsn(oplog), 3);
	teardown();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("commit");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, alone_commits_at_once);
	tcase_add_test(t, protocol_c_waits_for_every_mirror_in_sync);
	tcase_add_test(t, protocol_b_counts_memory_and_a_nothing);
	tcase_add_test(t, a_mirror_that_falls_out_no_longer_holds_writes);
	tcase_add_test(t, early_ops_are_owed_to_the_mirrors);
	tcase_add_test(t, a_failed_log_owes_nothing);
	tcase_add_test(t, early_ops_wait_behind_silent_mirrors);
	tcase_add_test(t, early_ops_wait_below_min_mirrors);
	tcase_add_test(t, too_few_mirrors_time_out_and_never_acknowledge_falsely);
	tcase_add_test(t, a_failed_log_fails_everything);
	tcase_add_test(t, a_full_log_keeps_room_for_deletes_and_goes_on_after_a_checkpoint);
	tcase_add_test(t, a_checkpoint_from_before_the_disk_had_room_fails_no_writer);
	tcase_add_test(t, paces_admissions);
	tcase_add_test(t, a_hold_never_costs_room);
	tcase_add_test(t, threads_share_appends_and_every_operation_is_answered_once);
	suite_add_tcase(s, t);
	return unit_run(s);
}
