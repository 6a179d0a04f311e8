/* SPDX-License-Identifier: Apache-2.0 */
/* The commit queue's admission: log room, checkpoints that make it, pace, too few mirrors. */
#include "tests/unit/commit_rig.h"

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

/* Or one checkpoint of nothing would ask for the next without end. */
START_TEST(a_log_that_a_checkpoint_covers_asks_for_no_other)
{
	static struct test_op t;

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_C, 0);
	while (!atomic_load(&checkpoints_wanted))
		ck_assert(admit_and_run(&t, false));
	atomic_store(&checkpoints_wanted, 0);
	oplog_covered(oplog, commit_durable_lsn(commit));
	commit_checkpoint_done(commit, 0); /* without a switch: the pool is as full as it was */
	ck_assert_uint_eq(atomic_load(&checkpoints_wanted), 0);
	ck_assert(admit_and_run(&t, false));
	ck_assert_uint_eq(atomic_load(&checkpoints_wanted), 1);
	teardown();
}
END_TEST

/* What has been admitted while both pools had room still fits after a checkpoint's switch, which
 * gives up the active one's rest: or there is no switch. */
START_TEST(a_switch_breaks_no_promise)
{
	static struct test_op t[1100];
	unsigned n = 0;

	setup(&logdev_mem_ops, COMMIT_PROTOCOL_C, 0);
	while (n < 1100 && commit_admit_now(commit, 1200, false))
		n++;
	ck_assert_uint_gt(n * 1200, POOL_BYTES);
	ck_assert_int_eq(commit_switch_log(commit), -EBUSY);
	for (unsigned i = 0; i < n; i++) {
		t[i].op.admitted_bytes = 1200;
		run(&t[i], 1024);
		ANSWERED(&t[i], 0);
	}
	ck_assert_int_eq(atomic_load(&failed_err), 0);
	oplog_covered(oplog, commit_durable_lsn(commit));
	commit_checkpoint_done(commit, 0);
	ck_assert_int_eq(commit_switch_log(commit), 0);
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

/* With too few mirrors for as long as a change would wait for them nothing is admitted; it is, when
 * enough are back. */
START_TEST(turns_read_only_below_min_mirrors)
{
	static struct test_op a;
	struct test_link l = { 0 };
	uint64_t began;

	atomic_store(&turned_read_only, 0);
	setup_for(&logdev_mem_ops, COMMIT_PROTOCOL_C, 1, NSEC_PER_SEC);
	link_up(&l);
	ck_assert_int_eq(admit_once(100, 0), 0);
	ck_assert_int_eq(commit_link_set_sync(l.link, false), 0);
	submit(&a, 100, clock_mono_ns() + NSEC_PER_SEC); /* waits for a mirror, as all did before */
	commit_drive(commit);
	wait_until(&turned_read_only, 1);
	wait_until(&a.completed, 1);
	ANSWERED(&a, -EIO);
	ck_assert_int_eq(admit_once(100, clock_mono_ns() + TIMEOUT_NS), -EROFS);
	commit_pace(commit, 1); /* also while a mirror is being caught up: no turn is waited for */
	began = clock_mono_ns();
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(admit_once(100, began + TIMEOUT_NS), -EROFS);
	ck_assert_uint_lt(clock_mono_ns() - began, TIMEOUT_NS / 2);
	commit_pace(commit, 0);
	ck_assert(!commit_admit_now(commit, 100, true));
	ck_assert(!commit_is_roomy(commit));
	commit_link_ack(l.link, 1, 1);
	ck_assert_int_eq(commit_link_set_sync(l.link, true), 0);
	wait_until(&turned_read_only, 2);
	ck_assert_int_eq(admit_once(100, 0), 0);
	commit_link_remove(l.link);
	teardown();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("commit_room");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_full_log_keeps_room_for_deletes_and_goes_on_after_a_checkpoint);
	tcase_add_test(t, a_log_that_a_checkpoint_covers_asks_for_no_other);
	tcase_add_test(t, a_switch_breaks_no_promise);
	tcase_add_test(t, a_checkpoint_from_before_the_disk_had_room_fails_no_writer);
	tcase_add_test(t, paces_admissions);
	tcase_add_test(t, a_hold_never_costs_room);
	tcase_add_test(t, turns_read_only_below_min_mirrors);
	suite_add_tcase(s, t);
	return unit_run(s);
}
