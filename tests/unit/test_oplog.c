/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operation log on the model medium: append, switch, read, replay, what it refuses, damage it
 * must see, and readers beside the appender. Crashes are in test_logdev_fault.c.
 */
#include "log/oplog.h"

#include "tests/unit/oplog_util.h"
#include "tests/unit/unit_main.h"

#include "common/byteorder.h"
#include "common/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define POOL_BYTES (1U << 20)
#define DATA_MAX 300
#define GENERATION_BYTES 88

static struct oplog *fresh(uint64_t pool_bytes, uint64_t next_lsn)
{
	struct oplog_range range;
	struct oplog *log;

	util_mem_pools(pool_bytes);
	log = util_open(&logdev_mem_ops, -1, &util_cfg, &range);
	ck_assert_uint_eq(range.first_lsn, 0);
	ck_assert_uint_eq(range.last_lsn, 0);
	ck_assert(!range.torn_tail);
	ck_assert_int_eq(oplog_start(log, next_lsn, 1), 0);
	return log;
}

static void append_to(struct oplog *log, uint64_t first, uint64_t last)
{
	for (; first <= last; first++)
		ck_assert_int_eq(util_append(log, first, 1, 1, DATA_MAX, false), 0);
}

/* A log with records 1..20 in pool 0 and 21..30 in pool 1, closed. */
static void two_pools(void)
{
	struct oplog *log = fresh(POOL_BYTES, 1);

	append_to(log, 1, 20);
	ck_assert_int_eq(oplog_switch(log, 1), 0);
	append_to(log, 21, 30);
	oplog_close(log);
}

static int open_fails(const struct oplog_config *cfg, const char **ret_why)
{
	struct oplog_range range;
	struct oplog *log;
	int rc = oplog_open(&logdev_mem_ops, -1, cfg, &log, &range, ret_why);

	if (rc == 0)
		oplog_close(log);
	return rc;
}

START_TEST(append_and_reopen)
{
	struct oplog_range range;
	struct oplog *log;

	two_pools();
	log = util_open(&logdev_mem_ops, -1, &util_cfg, &range);
	ck_assert_uint_eq(range.first_lsn, 1);
	ck_assert_uint_eq(range.last_lsn, 30);
	ck_assert_uint_eq(range.epoch, 1);
	ck_assert_uint_eq(util_replay_all(log, 0, DATA_MAX), 30);
	ck_assert_uint_eq(util_replay_all(log, 25, DATA_MAX), 30);
	ck_assert_uint_eq(util_replay_all(log, 30, DATA_MAX), 30);
	ck_assert_int_eq(oplog_start(log, 31, 2), 0);
	ck_assert_int_eq(util_append(log, 31, 3, 2, DATA_MAX, false), 0);
	ck_assert_uint_eq(oplog_first_lsn(log), 1);
	ck_assert_uint_eq(oplog_last_lsn(log), 33);
	oplog_close(log);
	log = util_open(&logdev_mem_ops, -1, &util_cfg, &range);
	ck_assert_uint_eq(range.last_lsn, 33);
	ck_assert_uint_eq(range.epoch, 2);
	oplog_close(log);
}
END_TEST

START_TEST(missing_records_are_named)
{
	struct oplog *log = fresh(POOL_BYTES, 100);
	struct util_replay u = { .next = 50, .max = DATA_MAX };
	uint64_t first = 0, last = 0;

	ck_assert_int_eq(oplog_replay(log, 49, util_apply, &u, &first, &last), -ENODATA);
	append_to(log, 100, 101);
	ck_assert_int_eq(oplog_replay(log, 49, util_apply, &u, &first, &last), -ENODATA);
	ck_assert_uint_eq(first, 50);
	ck_assert_uint_eq(last, 99);
	ck_assert_uint_eq(util_replay_all(log, 99, DATA_MAX), 101);
	oplog_close(log);
}
END_TEST

static int stop_at_3(void *ctx, const struct record *r)
{
	(void)ctx;
	return r->lsn == 3 ? -ECANCELED : 0;
}

START_TEST(replay_returns_what_apply_says)
{
	struct oplog *log = fresh(POOL_BYTES, 1);
	uint64_t a, b;

	append_to(log, 1, 5);
	ck_assert_int_eq(oplog_replay(log, 0, stop_at_3, NULL, &a, &b), -ECANCELED);
	oplog_close(log);
}
END_TEST

START_TEST(start_not_contiguous_begins_anew)
{
	struct oplog_range range;
	struct oplog *log;

	two_pools();
	log = util_open(&logdev_mem_ops, -1, &util_cfg, &range);
	ck_assert_int_eq(oplog_start(log, 41, 0), -EINVAL); /* epoch below the log's */
	ck_assert_int_eq(oplog_start(log, 0, 1), -EINVAL);
	ck_assert_int_eq(oplog_start(log, 41, 1), 0);
	ck_assert_uint_eq(oplog_first_lsn(log), 0);
	ck_assert_uint_eq(oplog_last_lsn(log), 40);
	append_to(log, 41, 42);
	oplog_close(log);
	log = util_open(&logdev_mem_ops, -1, &util_cfg, &range);
	ck_assert_uint_eq(range.first_lsn, 41);
	ck_assert_uint_eq(range.last_lsn, 42);
	oplog_close(log);
}
END_TEST

/* A snapshot that ends where the log does, of another history: the old records must go. */
START_TEST(restart_forgets_all)
{
	struct oplog_range range;
	struct oplog *log;

	two_pools();
	log = util_open(&logdev_mem_ops, -1, &util_cfg, &range);
	oplog_covered(log, 30);
	ck_assert_int_eq(oplog_restart(log, 0, 1), -EINVAL);
	ck_assert_int_eq(oplog_restart(log, 31, 2), 0);
	ck_assert_uint_eq(oplog_first_lsn(log), 0);
	ck_assert_uint_eq(oplog_last_lsn(log), 30);
	/* and back: lower LSNs of a lower epoch, which no checkpoint covers */
	ck_assert_int_eq(oplog_restart(log, 11, 1), 0);
	append_to(log, 11, 15);
	ck_assert_int_eq(oplog_switch(log, 1), 0);
	append_to(log, 16, 20);
	ck_assert_int_eq(oplog_switch(log, 1), -EBUSY);
	oplog_close(log);
	log = util_open(&logdev_mem_ops, -1, &util_cfg, &range);
	ck_assert_uint_eq(range.first_lsn, 11);
	ck_assert_uint_eq(range.last_lsn, 20);
	ck_assert_uint_eq(range.epoch, 1);
	oplog_close(log);
}
END_TEST

START_TEST(switch_waits_for_cover)
{
	struct oplog *log = fresh(POOL_BYTES, 1);
	struct oplog_usage usage;

	append_to(log, 1, 10);
	oplog_usage(log, &usage);
	ck_assert(usage.can_switch);
	ck_assert_uint_eq(usage.active_pool, 0);
	ck_assert_int_eq(oplog_switch(log, 0), -EINVAL);
	ck_assert_int_eq(oplog_switch(log, 1), 0);
	append_to(log, 11, 20);
	oplog_covered(log, 9);
	ck_assert_int_eq(oplog_switch(log, 1), -EBUSY);
	oplog_usage(log, &usage);
	ck_assert(!usage.can_switch);
	ck_assert_uint_eq(usage.active_pool, 1);
	ck_assert_uint_gt(usage.used_bytes, usage.active_used_bytes);
	ck_assert_uint_eq(usage.capacity_bytes, 2 * POOL_BYTES);
	oplog_covered(log, 10);
	oplog_covered(log, 5); /* never goes back */
	ck_assert_uint_eq(oplog_first_lsn(log), 1);
	ck_assert_int_eq(oplog_switch(log, 1), 0);
	ck_assert_uint_eq(oplog_first_lsn(log), 11);
	ck_assert_uint_eq(oplog_last_lsn(log), 20);
	oplog_close(log);
}
END_TEST

START_TEST(reserve_is_for_urgent_appends)
{
	struct oplog_config cfg = util_cfg;
	struct oplog_range range;
	struct oplog_usage usage;
	struct oplog *log;
	uint64_t lsn = 1;

	cfg.reserve_bytes = 2000;
	util_mem_pools(8192);
	log = util_open(&logdev_mem_ops, -1, &cfg, &range);
	ck_assert_int_eq(oplog_start(log, 1, 1), 0);
	/* While the other pool is free there is no reserve. */
	while (util_append(log, lsn, 1, 1, 1, false) == 0)
		lsn++;
	oplog_usage(log, &usage);
	ck_assert_uint_gt(usage.active_used_bytes, 8192 - 73);
	ck_assert_int_eq(oplog_switch(log, 1), 0);
	while (util_append(log, lsn, 1, 1, 1, false) == 0)
		lsn++;
	oplog_usage(log, &usage);
	ck_assert_uint_le(usage.active_used_bytes, 8192 - 2000);
	ck_assert_int_eq(util_append(log, lsn, 1, 1, 1, false), -ENOSPC);
	while (util_append(log, lsn, 1, 1, 1, true) == 0)
		lsn++;
	oplog_usage(log, &usage);
	ck_assert_uint_gt(usage.active_used_bytes, 8192 - 73);
	ck_assert_int_eq(oplog_switch(log, 1), -EBUSY);
	oplog_close(log);
}
END_TEST

START_TEST(refuses_wrong_appends)
{
	struct oplog *log = fresh(POOL_BYTES, 5);

	ck_assert_int_eq(util_append(log, 6, 1, 1, DATA_MAX, false), -EINVAL);
	ck_assert_int_eq(util_append(log, 5, 1, 0, DATA_MAX, false), -EINVAL);
	ck_assert_int_eq(util_append(log, 5, 1, 1, DATA_MAX, false), 0);
	ck_assert_int_eq(util_append(log, 5, 1, 1, DATA_MAX, false), -EINVAL);
	oplog_close(log);
}
END_TEST

START_TEST(failed_append_kills_the_log)
{
	struct oplog_range range;
	struct oplog *log;

	util_mem_pools(POOL_BYTES);
	logdev_fault_wrap(&logdev_mem_ops);
	log = util_open(&logdev_fault_ops, -1, &util_cfg, &range);
	ck_assert_int_eq(oplog_start(log, 1, 1), 0);
	logdev_fault_arm(
		&(struct logdev_fault){ .kind = LOGDEV_FAULT_ERROR, .at = 1, .error = -EIO });
	ck_assert_int_eq(oplog_check(log), -EIO);
	ck_assert_int_eq(util_append(log, 1, 1, 1, DATA_MAX, false), -EIO);
	ck_assert_int_eq(oplog_switch(log, 1), -EIO);
	ck_assert_uint_eq(oplog_last_lsn(log), 0);
	oplog_close(log);
}
END_TEST

START_TEST(damage_and_strangers)
{
	struct oplog_config cfg = util_cfg;
	const char *why = "";

	two_pools();
	cfg.uuid[3] = 1;
	ck_assert_int_eq(open_fails(&cfg, &why), -EBADMSG);
	ck_assert_str_eq(why, "a log pool belongs to another volume");
	cfg = util_cfg;
	cfg.node_id++;
	ck_assert_int_eq(open_fails(&cfg, &why), -EBADMSG);
	cfg = util_cfg;
	cfg.format_version++;
	ck_assert_int_eq(open_fails(&cfg, &why), -EBADMSG);
	/* A generation record that records follow. */
	logdev_mem_bytes(-1, "log.1")[20] ^= 1;
	ck_assert_int_eq(open_fails(&util_cfg, &why), -EBADMSG);
	ck_assert_str_eq(why, "the generation record of a log pool is damaged");
	logdev_mem_bytes(-1, "log.1")[20] ^= 1;
	/* A hole: the older pool's first record, then a lost end. */
	logdev_mem_bytes(-1, "log.0")[GENERATION_BYTES + 50] ^= 1;
	ck_assert_int_eq(open_fails(&util_cfg, &why), -EBADMSG);
	ck_assert_str_eq(why, "the older log pool has damaged records before the newer begins");
	logdev_mem_bytes(-1, "log.0")[GENERATION_BYTES + 50] ^= 1;
	ck_assert_int_eq(open_fails(&util_cfg, &why), 0);
	logdev_mem_set_used(-1, "log.0", GENERATION_BYTES + 400);
	ck_assert_int_eq(open_fails(&util_cfg, &why), -EBADMSG);
}
END_TEST

START_TEST(same_pool_twice)
{
	const char *why = "";

	two_pools();
	memcpy(logdev_mem_bytes(-1, "log.1"), logdev_mem_bytes(-1, "log.0"), POOL_BYTES);
	ck_assert_int_eq(open_fails(&util_cfg, &why), -EBADMSG);
	ck_assert_str_eq(why, "both log pools have the same generation");
}
END_TEST

START_TEST(torn_generation_counts_as_empty)
{
	struct oplog_range range;
	struct oplog *log;

	two_pools();
	logdev_mem_set_used(-1, "log.1", (uint64_t)_i);
	if (_i == GENERATION_BYTES)
		logdev_mem_bytes(-1, "log.1")[60] ^= 4;
	log = util_open(&logdev_mem_ops, -1, &util_cfg, &range);
	ck_assert_uint_eq(range.first_lsn, 1);
	ck_assert_uint_eq(range.last_lsn, 20);
	ck_assert(!range.torn_tail);
	ck_assert_int_eq(oplog_start(log, 21, 1), 0);
	ck_assert_int_eq(oplog_switch(log, 1), 0);
	append_to(log, 21, 22);
	oplog_close(log);
	log = util_open(&logdev_mem_ops, -1, &util_cfg, &range);
	ck_assert_uint_eq(range.last_lsn, 22);
	oplog_close(log);
}
END_TEST

START_TEST(torn_tail_is_cut)
{
	struct oplog_range range;
	struct oplog *log;

	two_pools();
	logdev_mem_set_used(-1, "log.1", GENERATION_BYTES + 500 + (uint64_t)_i * 37);
	log = util_open(&logdev_mem_ops, -1, &util_cfg, &range);
	ck_assert(range.torn_tail);
	ck_assert_uint_ge(range.last_lsn, 20);
	ck_assert_uint_lt(range.last_lsn, 30);
	ck_assert_uint_eq(util_replay_all(log, 0, DATA_MAX), range.last_lsn);
	ck_assert_int_eq(oplog_start(log, range.last_lsn + 1, 1), 0);
	append_to(log, range.last_lsn + 1, range.last_lsn + 1);
	ck_assert_uint_eq(oplog_first_lsn(log), range.last_lsn + 1);
	oplog_close(log);
}
END_TEST

/* The end that a pool names is a number without a checksum: records behind it are not lost. */
START_TEST(records_behind_the_end_are_taken_in)
{
	struct oplog_range range;
	struct oplog *log;

	util_timestamp_ns = clock_real_ns();
	two_pools();
	logdev_mem_set_used(-1, "log.1", GENERATION_BYTES + (uint64_t)_i * 137);
	log = util_open(&logdev_mem_ops, -1, &util_cfg, &range);
	ck_assert(!range.torn_tail);
	ck_assert_uint_eq(range.last_lsn, 30);
	ck_assert_uint_gt(range.taken_in_bytes, 0);
	ck_assert_uint_eq(util_replay_all(log, 0, DATA_MAX), 30);
	ck_assert_int_eq(oplog_start(log, 31, 1), 0);
	append_to(log, 31, 31);
	ck_assert_uint_eq(oplog_first_lsn(log), 1);
	oplog_close(log);
	log = util_open(&logdev_mem_ops, -1, &util_cfg, &range);
	ck_assert_uint_eq(range.taken_in_bytes, 0);
	ck_assert_uint_eq(util_replay_all(log, 0, DATA_MAX), 31);
	oplog_close(log);
}
END_TEST

START_TEST(an_older_pool_ends_with_its_records)
{
	struct oplog_range range;
	struct oplog *log;

	util_timestamp_ns = clock_real_ns();
	two_pools();
	logdev_mem_set_used(-1, "log.0", GENERATION_BYTES + 700);
	log = util_open(&logdev_mem_ops, -1, &util_cfg, &range);
	ck_assert_uint_eq(range.taken_in_bytes, 0);
	ck_assert_uint_eq(util_replay_all(log, 0, DATA_MAX), 30);
	oplog_close(log);
}
END_TEST

/* What is older than the pool is of a former life of its bytes. */
START_TEST(a_former_life_is_not_taken_in)
{
	struct oplog_range range;
	struct oplog *log;

	util_timestamp_ns = clock_real_ns() - 5 * NSEC_PER_SEC;
	two_pools();
	logdev_mem_set_used(-1, "log.1", GENERATION_BYTES);
	log = util_open(&logdev_mem_ops, -1, &util_cfg, &range);
	ck_assert_uint_eq(range.last_lsn, 20);
	ck_assert_uint_eq(range.taken_in_bytes, 0);
	oplog_close(log);
}
END_TEST

/* What follows a damaged record may have been acknowledged: it is not taken for a torn tail. */
START_TEST(damage_in_the_middle_is_refused)
{
	struct oplog_range range;
	struct oplog *log;
	const char *why = "";
	uint8_t *bytes;

	two_pools();
	bytes = logdev_mem_bytes(-1, "log.1");
	bytes[GENERATION_BYTES + 60] ^= 1;
	ck_assert_int_eq(open_fails(&util_cfg, &why), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(why, "log.1 is damaged at offset"));
	ck_assert_ptr_nonnull(strstr(why, "records after LSN 20 are there"));
	bytes[GENERATION_BYTES + 60] ^= 1;
	log = util_open(&logdev_mem_ops, -1, &util_cfg, &range);
	ck_assert_uint_eq(range.last_lsn, 30);
	oplog_close(log);
}
END_TEST

/* Reads all from from_lsn in pieces of cap bytes, checking each record. */
static void read_all(struct oplog *log, uint64_t from_lsn, uint64_t last_lsn, size_t cap)
{
	uint8_t *buf = malloc(cap);
	uint64_t next = from_lsn;

	while (next <= last_lsn) {
		uint64_t got_last = 0;
		size_t len = 0, at = 0, bytes;
		struct record r;

		ck_assert_int_eq(oplog_read(log, next, buf, cap, &len, &got_last), 0);
		for (; at < len; at += bytes, next++) {
			ck_assert_int_eq(record_decode(buf + at, len - at, &r, &bytes), 0);
			util_check_record(&r, next, DATA_MAX);
		}
		ck_assert_uint_eq(next - 1, got_last);
	}
	free(buf);
}

START_TEST(read_by_lsn)
{
	struct oplog *log = fresh(POOL_BYTES, 1);
	uint8_t buf[4096];
	uint64_t last = 0, lsn;
	size_t len = 0;

	append_to(log, 1, 3000);
	ck_assert_int_eq(oplog_switch(log, 1), 0);
	ck_assert_int_eq(oplog_read(log, 3001, buf, sizeof(buf), &len, &last), -EAGAIN);
	append_to(log, 3001, 4000);
	for (lsn = 1; lsn <= 4000; lsn += 97)
		read_all(log, lsn, lsn + 20 < 4000 ? lsn + 20 : 4000, 2000);
	read_all(log, 1, 4000, 500);
	read_all(log, 1, 4000, 1U << 20);
	ck_assert_int_eq(oplog_read(log, 4001, buf, sizeof(buf), &len, &last), -EAGAIN);
	ck_assert_int_eq(oplog_read(log, 0, buf, sizeof(buf), &len, &last), -ESTALE);
	ck_assert_int_eq(oplog_read(log, 5, buf, 60, &len, &last), -EMSGSIZE);
	ck_assert_uint_eq(len, 0);
	oplog_covered(log, 3000);
	ck_assert_int_eq(oplog_switch(log, 1), 0);
	ck_assert_int_eq(oplog_read(log, 3000, buf, sizeof(buf), &len, &last), -ESTALE);
	read_all(log, 3001, 4000, 4096);
	oplog_close(log);
}
END_TEST

struct reader {
	struct oplog *log;
	atomic_bool stop;
	uint64_t stale, records;
};

/* Follows the log; starts again at the first record when it was overtaken by a rewind. */
static void *reader_main(void *arg)
{
	struct reader *rd = arg;
	uint8_t *buf = malloc(8192);
	uint64_t next = 1;

	while (!atomic_load(&rd->stop)) {
		uint64_t last = 0;
		size_t len = 0, at = 0, bytes;
		struct record r;
		int rc = oplog_read(rd->log, next, buf, 8192, &len, &last);

		if (rc == -ESTALE) {
			uint64_t first = oplog_first_lsn(rd->log);

			rd->stale++;
			next = first > 0 ? first : oplog_last_lsn(rd->log) + 1;
			continue;
		}
		if (rc != 0 && rc != -EAGAIN)
			abort();
		for (; at < len; at += bytes, next++, rd->records++)
			if (record_decode(buf + at, len - at, &r, &bytes) != 0 || r.lsn != next)
				abort();
		if (rc == -EAGAIN && next > 1000) /* now and then look at the oldest */
			next -= 900;
	}
	free(buf);
	return NULL;
}

START_TEST(readers_beside_the_appender)
{
	struct oplog *log = fresh(16384, 1);
	struct reader readers[2] = { { .log = log }, { .log = log } };
	pthread_t threads[2];
	uint64_t lsn = 1;
	int i, rc;

	for (i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, reader_main, &readers[i]), 0);
	while (lsn < 40000) {
		uint32_t count = 1 + (uint32_t)(lsn % 5);

		rc = util_append(log, lsn, count, 1, DATA_MAX, false);
		if (rc == -ENOSPC) {
			oplog_covered(log, lsn - 1);
			rc = oplog_switch(log, 1);
			ck_assert_int_eq(rc, 0);
			continue;
		}
		ck_assert_int_eq(rc, 0);
		lsn += count;
	}
	for (i = 0; i < 2; i++) {
		atomic_store(&readers[i].stop, true);
		pthread_join(threads[i], NULL);
		ck_assert_uint_gt(readers[i].records, 0);
	}
	oplog_close(log);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("oplog");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, append_and_reopen);
	tcase_add_test(t, missing_records_are_named);
	tcase_add_test(t, replay_returns_what_apply_says);
	tcase_add_test(t, start_not_contiguous_begins_anew);
	tcase_add_test(t, switch_waits_for_cover);
	tcase_add_test(t, reserve_is_for_urgent_appends);
	tcase_add_test(t, refuses_wrong_appends);
	tcase_add_test(t, failed_append_kills_the_log);
	tcase_add_test(t, damage_and_strangers);
	tcase_add_test(t, same_pool_twice);
	tcase_add_loop_test(t, torn_generation_counts_as_empty, 0, GENERATION_BYTES + 1);
	tcase_add_test(t, restart_forgets_all);
	tcase_add_loop_test(t, torn_tail_is_cut, 0, 16);
	tcase_add_loop_test(t, records_behind_the_end_are_taken_in, 0, 8);
	tcase_add_test(t, an_older_pool_ends_with_its_records);
	tcase_add_test(t, a_former_life_is_not_taken_in);
	tcase_add_test(t, damage_in_the_middle_is_refused);
	tcase_add_test(t, read_by_lsn);
	tcase_add_test(t, readers_beside_the_appender);
	suite_add_tcase(s, t);
	return unit_run(s);
}
