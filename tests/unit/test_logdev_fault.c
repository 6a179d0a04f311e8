/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fault injector itself, and with it the log's crash test: a run that appends groups,
 * checkpoints and switches is stopped at every n-th operation of the medium, in each way a medium
 * can stop. After each: the log opens, every acknowledged record is there, nothing but a part of
 * the group in flight besides, and the log goes on.
 */
#include "log/logdev_fault.h"

#include "tests/unit/oplog_util.h"
#include "tests/unit/unit_main.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define POOL_BYTES 2048
#define DATA_MAX 200
#define TARGET_LSN 180 /* about a dozen switches */

/* What the writer knows, and what is durable beside the log. */
struct run {
	uint64_t acked, tried, checkpoint, epoch;
};

/* Checkpoint, then switch, as the store does. */
static int run_switch(struct oplog *log, struct run *run)
{
	int rc = oplog_switch(log, run->epoch);

	if (rc != -EBUSY)
		return rc;
	run->checkpoint = run->acked;
	oplog_covered(log, run->checkpoint);
	return oplog_switch(log, run->epoch);
}

/* Appends groups of 1 to 4 records until TARGET_LSN or an error. */
static int run_log(struct oplog *log, struct run *run)
{
	int rc = 0;

	while (rc == 0 && run->acked < TARGET_LSN) {
		uint32_t count = 1 + (uint32_t)(run->acked % 4);

		run->tried = run->acked + count;
		rc = util_append(log, run->acked + 1, count, run->epoch, DATA_MAX, false);
		if (rc == -ENOSPC)
			rc = run_switch(log, run);
		else if (rc == 0)
			run->acked += count;
	}
	return rc;
}

/* Recovery as the store does it; returns a log that takes appends. */
static struct oplog *recover(struct run *run)
{
	struct oplog_range range;
	struct oplog *log = util_open(&logdev_fault_ops, -1, &util_cfg, &range);
	uint64_t last = util_replay_all(log, run->checkpoint, DATA_MAX);

	ck_assert_uint_ge(last, run->acked);
	ck_assert_uint_le(last, run->tried > run->acked ? run->tried : run->acked);
	ck_assert_uint_ge(run->epoch, range.epoch);
	if (range.torn_tail || last != range.last_lsn)
		run->checkpoint = last;
	run->acked = last;
	return log;
}

static int start(struct oplog *log, struct run *run)
{
	int rc = oplog_start(log, run->acked + 1, run->epoch);

	oplog_covered(log, run->checkpoint);
	return rc;
}

/* One run with the fault at operation n of the second life; false when it was not reached. */
static bool crash_once(struct logdev_fault fault)
{
	struct run run = { .epoch = 1 };
	struct oplog *log;
	bool struck;
	int rc;

	util_mem_pools(POOL_BYTES);
	logdev_fault_arm(&fault);
	log = recover(&run);
	rc = start(log, &run);
	if (rc == 0)
		rc = run_log(log, &run);
	oplog_close(log);
	struck = logdev_fault_struck();
	logdev_fault_disarm();
	ck_assert(struck ? rc != 0 : rc == 0);

	run.epoch++;
	log = recover(&run);
	ck_assert_int_eq(start(log, &run), 0);
	ck_assert_int_eq(run_log(log, &run), 0);
	oplog_close(log);

	log = recover(&run);
	ck_assert_uint_ge(run.acked, TARGET_LSN);
	oplog_close(log);
	logdev_mem_reset();
	return struck;
}

static void crash_at_every_operation(struct logdev_fault fault)
{
	bool struck = true;

	logdev_fault_wrap(&logdev_mem_ops);
	for (fault.at = 1; struck; fault.at++)
		struck = crash_once(fault);
	ck_assert_uint_gt(fault.at, 80);
}

START_TEST(crash_before)
{
	crash_at_every_operation((struct logdev_fault){ .kind = LOGDEV_FAULT_CRASH });
}
END_TEST

START_TEST(crash_after)
{
	crash_at_every_operation((struct logdev_fault){ .kind = LOGDEV_FAULT_CRASH_AFTER });
}
END_TEST

START_TEST(io_error)
{
	crash_at_every_operation(
		(struct logdev_fault){ .kind = LOGDEV_FAULT_ERROR, .error = -EIO });
}
END_TEST

static const uint64_t keeps[] = { 0, 40, 87, 88, 103, 333 };
#define KEEP_COUNT ((int)(sizeof(keeps) / sizeof(keeps[0])))

START_TEST(torn_prefix)
{
	crash_at_every_operation((struct logdev_fault){ .kind = LOGDEV_FAULT_TEAR_PREFIX,
							.keep_bytes = keeps[_i] });
}
END_TEST

START_TEST(torn_flip)
{
	crash_at_every_operation((struct logdev_fault){ .kind = LOGDEV_FAULT_TEAR_FLIP,
							.keep_bytes = keeps[_i] });
}
END_TEST

START_TEST(torn_stale)
{
	crash_at_every_operation((struct logdev_fault){ .kind = LOGDEV_FAULT_TEAR_STALE,
							.keep_bytes = keeps[_i] });
}
END_TEST

/* Crashes during recovery from a crash: the restart's own operations are hit too. */
START_TEST(crash_in_recovery)
{
	static const enum logdev_fault_kind kinds[] = {
		LOGDEV_FAULT_CRASH, LOGDEV_FAULT_CRASH_AFTER, LOGDEV_FAULT_TEAR_PREFIX,
		LOGDEV_FAULT_TEAR_FLIP, LOGDEV_FAULT_TEAR_STALE,
	};
	uint64_t first, second;

	logdev_fault_wrap(&logdev_mem_ops);
	for (first = 3; first < 90; first += 11) {
		for (second = 1; second < 8; second++) {
			struct run run = { .epoch = 1 };
			struct oplog *log;

			util_mem_pools(POOL_BYTES);
			logdev_fault_arm(&(struct logdev_fault){ .kind = LOGDEV_FAULT_TEAR_FLIP,
								 .at = first, .keep_bytes = 60 });
			log = recover(&run);
			ck_assert_int_eq(start(log, &run), 0);
			(void)run_log(log, &run);
			oplog_close(log);
			logdev_fault_arm(&(struct logdev_fault){ .kind = kinds[_i], .at = second,
								 .keep_bytes = 60 });
			log = recover(&run);
			if (start(log, &run) == 0)
				(void)run_log(log, &run);
			oplog_close(log);
			logdev_fault_disarm();
			run.epoch++;
			log = recover(&run);
			ck_assert_int_eq(start(log, &run), 0);
			ck_assert_int_eq(run_log(log, &run), 0);
			oplog_close(log);
		}
	}
	logdev_mem_reset();
}
END_TEST

START_TEST(injector_behaviour)
{
	char text[] = "0123456789";
	struct iovec iov[2] = { { text, 4 }, { text + 4, 6 } };
	struct logdev *dev;

	util_mem_pools(100);
	logdev_fault_wrap(&logdev_mem_ops);
	ck_assert_int_eq(logdev_fault_ops.open(-1, "log.0", &dev), 0);
	ck_assert_int_eq(logdev_mem_ops.open(-1, "log.0", &dev), -EBUSY);
	logdev_fault_arm(&(struct logdev_fault){ .kind = LOGDEV_FAULT_TEAR_FLIP, .at = 2,
						 .keep_bytes = 5, .silent = true });
	ck_assert_int_eq(logdev_fault_ops.append(dev, iov, 2), 0);
	ck_assert_int_eq(logdev_fault_ops.append(dev, iov, 2), 0);
	ck_assert(logdev_fault_struck());
	ck_assert_mem_eq(logdev_fault_ops.base(dev), "012345678901234\xca\xc9\xc8\xc7\xc6", 20);
	logdev_fault_arm(
		&(struct logdev_fault){ .kind = LOGDEV_FAULT_ERROR, .at = 1, .error = -EIO });
	ck_assert_int_eq(logdev_fault_ops.check(dev), -EIO);
	ck_assert_int_eq(logdev_fault_ops.check(dev), 0);
	ck_assert_uint_eq(logdev_fault_count(), 2);
	ck_assert_int_eq(logdev_fault_ops.rewind(dev), 0);
	ck_assert_uint_eq(logdev_fault_ops.used(dev), 0);
	logdev_fault_arm(&(struct logdev_fault){ .kind = LOGDEV_FAULT_CRASH, .at = 1 });
	ck_assert_int_eq(logdev_fault_ops.append(dev, iov, 1), -EIO);
	ck_assert_int_eq(logdev_fault_ops.rewind(dev), -EIO);
	ck_assert_int_eq(logdev_fault_ops.check(dev), -EIO);
	logdev_fault_disarm();
	ck_assert_int_eq(logdev_fault_ops.append(dev, iov, 1), -EIO); /* dead until opened again */
	logdev_fault_ops.close(dev);
	ck_assert_int_eq(logdev_fault_ops.open(-1, "log.0", &dev), 0);
	ck_assert_int_eq(logdev_fault_ops.append(dev, iov, 1), 0);
	logdev_fault_ops.close(dev);
	logdev_mem_reset();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("logdev_fault");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, injector_behaviour);
	tcase_add_test(t, crash_before);
	tcase_add_test(t, crash_after);
	tcase_add_test(t, io_error);
	tcase_add_loop_test(t, torn_prefix, 0, KEEP_COUNT);
	tcase_add_loop_test(t, torn_flip, 0, KEEP_COUNT);
	tcase_add_loop_test(t, torn_stale, 0, KEEP_COUNT);
	tcase_add_loop_test(t, crash_in_recovery, 0, 5);
	suite_add_tcase(s, t);
	return unit_run(s);
}
