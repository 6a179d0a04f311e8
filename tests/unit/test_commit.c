/* SPDX-License-Identifier: Apache-2.0 */
/* The commit queue: order, acknowledgements, early answers, deadlines, a log that fails. */
#include "tests/unit/commit_rig.h"

static void wait_lsn(struct test_op *t, uint64_t lsn)
{
	t->op.ops = &test_ops;
	t->op.lsn = lsn;
	t->op.deadline_ns = clock_mono_ns() + TIMEOUT_NS;
	commit_wait(commit, &t->op);
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

/* The node stops while one of two mirrors is silent, which stays in sync on record. */
START_TEST(a_queue_that_ends_answers_nothing_for_links_that_go)
{
	static struct test_op a, b;
	struct test_link l1 = { 0 }, l2 = { 0 };

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_C, 1);
	link_up(&l1);
	link_up(&l2);
	run(&a, 100);
	commit_link_ack(l1.link, 1, 1);
	WAITING(&a);
	ck_assert_int_eq(commit_wait_committed(commit, 0, 0), 0);
	ck_assert_int_eq(commit_wait_committed(commit, 1, NSEC_PER_MSEC), -ETIMEDOUT);
	commit_end(commit);
	ANSWERED(&a, -EIO);
	ck_assert_int_eq(commit_wait_committed(commit, 1, NSEC_PER_SEC), -EIO);
	ck_assert_int_eq(atomic_load(&failed_err), 0); /* that is no failure of the log */
	commit_link_remove(l2.link);
	commit_link_ack(l1.link, 1, 1);
	ANSWERED(&a, -EIO);
	run(&b, 100);
	ANSWERED(&b, -EIO);
	commit_link_remove(l1.link);
	teardown();
	ck_assert_int_eq(atomic_load(&a.released), 1);
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
	run(&a, 10);
	a.op.pending_ns -= 200 * NSEC_PER_MSEC; /* it has waited so long */
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

/* What a busy machine or the log took of the op's own time says nothing of the mirrors. */
START_TEST(early_ops_are_answered_late_in_their_own_time)
{
	static struct test_op a[4];
	struct test_link l = { 0 };

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_C, 1);
	link_up(&l);
	for (int i = 0; i < 4; i++) {
		a[i].op.early = true;
		submit(&a[i], 10, clock_mono_ns() + TIMEOUT_NS - 200 * NSEC_PER_MSEC);
		if (i % 2)
			commit_drive_owing(commit); /* two groups */
	}
	for (int i = 0; i < 4; i++)
		ANSWERED(&a[i], 0);
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

START_TEST(too_few_mirrors_time_out_and_never_acknowledge_falsely)
{
	static struct test_op a, w;
	struct test_link l = { 0 };

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_C, 1);
	submit(&a, 100, clock_mono_ns() + 50 * NSEC_PER_MSEC);
	commit_drive(commit);
	WAITING(&a);
	wait_until(&a.completed, 1);
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
	wait_until(&a.released, 1); /* kv-commit, which answered, may have it still */
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

int main(void)
{
	Suite *s = suite_create("commit");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, alone_commits_at_once);
	tcase_add_test(t, protocol_c_waits_for_every_mirror_in_sync);
	tcase_add_test(t, protocol_b_counts_memory_and_a_nothing);
	tcase_add_test(t, a_mirror_that_falls_out_no_longer_holds_writes);
	tcase_add_test(t, a_queue_that_ends_answers_nothing_for_links_that_go);
	tcase_add_test(t, early_ops_are_owed_to_the_mirrors);
	tcase_add_test(t, a_failed_log_owes_nothing);
	tcase_add_test(t, early_ops_wait_behind_silent_mirrors);
	tcase_add_test(t, early_ops_are_answered_late_in_their_own_time);
	tcase_add_test(t, early_ops_wait_below_min_mirrors);
	tcase_add_test(t, too_few_mirrors_time_out_and_never_acknowledge_falsely);
	tcase_add_test(t, a_failed_log_fails_everything);
	tcase_add_test(t, threads_share_appends_and_every_operation_is_answered_once);
	suite_add_tcase(s, t);
	return unit_run(s);
}
