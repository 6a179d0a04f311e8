/* SPDX-License-Identifier: Apache-2.0 */
/* Post to acknowledgement: what is noted, what is not, and retries. */
#include "replication/primary/link_metrics.h"

#include "tests/unit/unit_main.h"

static struct metrics *m;
static struct metrics_snapshot snap;
static struct link_metrics t;

static void set_up(void)
{
	m = metrics_create();
	ck_assert_ptr_nonnull(m);
	link_metrics_init(&t, m, "tcp:h:1");
	link_metrics_begin(&t, "tcp");
}

static void tear_down(void)
{
	metrics_snapshot_free(&snap);
	metrics_destroy(m);
}

static const struct metrics_sample *latency(void)
{
	metrics_snapshot_free(&snap);
	ck_assert_int_eq(metrics_snapshot(m, &snap), 0);
	return metrics_find(&snap, "rdma_write_latency", "tcp:h:1");
}

static void post(uint64_t last_lsn, unsigned records, unsigned taken, uint64_t now_ns)
{
	link_metrics_post(&t, last_lsn, records, now_ns);
	link_metrics_posted(&t, last_lsn, records, taken);
}

START_TEST(each_record_counts_when_its_batch_is_acknowledged)
{
	post(10, 10, 10, 1000);
	post(12, 2, 2, 2000);
	link_metrics_acked(&t, 9, 5000);
	ck_assert_uint_eq(latency()->count, 0);
	link_metrics_acked(&t, 11, 6000);
	ck_assert_uint_eq(latency()->count, 10);
	ck_assert_uint_eq(latency()->sum, 10 * 5000);
	link_metrics_acked(&t, 12, 7000);
	ck_assert_uint_eq(latency()->count, 12);
	ck_assert_uint_eq(latency()->sum, 10 * 5000 + 2 * 5000);
	ck_assert_str_eq(latency()->values[1], "tcp");
	ck_assert_uint_eq(metrics_find(&snap, "kvfs_stage_duration_seconds", "wire")->count, 2);
	ck_assert_uint_eq(metrics_value(&snap, "qp_retry_count", "tcp:h:1"), 0);
}
END_TEST

START_TEST(an_acknowledgement_may_come_before_the_post_returns)
{
	link_metrics_post(&t, 3, 3, 1000);
	link_metrics_acked(&t, 3, 900); /* its clock was read earlier */
	link_metrics_posted(&t, 3, 3, 3);
	ck_assert_uint_eq(latency()->count, 3);
	ck_assert_uint_eq(latency()->sum, 0);
}
END_TEST

START_TEST(what_was_not_taken_does_not_count)
{
	post(10, 10, 4, 1000); /* LSN 1 to 4 went */
	post(4 + 3, 3, 0, 2000);
	post(7, 3, 3, 3000);
	link_metrics_acked(&t, 4, 4000);
	ck_assert_uint_eq(latency()->count, 4);
	link_metrics_acked(&t, 7, 5000);
	ck_assert_uint_eq(latency()->count, 7);
	ck_assert_uint_eq(latency()->sum, 4 * 3000 + 3 * 2000);
	ck_assert_uint_eq(metrics_value(&snap, "qp_retry_count", "tcp:h:1"), 2);
	ck_assert_uint_eq(metrics_find(&snap, "kvfs_mirror_retries_total", "tcp:h:1")->label_count,
			  2);
}
END_TEST

START_TEST(more_batches_than_there_is_room_for)
{
	for (uint64_t lsn = 1; lsn <= 2 * LINK_TIMES; lsn++)
		post(lsn, 1, 1, lsn);
	link_metrics_acked(&t, 2 * LINK_TIMES, 10000);
	ck_assert_uint_eq(latency()->count, LINK_TIMES);
	post(2 * LINK_TIMES + 1, 1, 1, 10000);
	link_metrics_acked(&t, 2 * LINK_TIMES + 1, 20000);
	ck_assert_uint_eq(latency()->count, LINK_TIMES + 1);
}
END_TEST

START_TEST(a_transports_retries_are_of_its_session)
{
	link_metrics_transport(&t, 3);
	link_metrics_transport(&t, 5);
	link_metrics_begin(&t, "shm");
	link_metrics_transport(&t, 1);
	link_metrics_connect_failed(&t);
	latency();
	ck_assert_uint_eq(metrics_value(&snap, "qp_retry_count", "tcp:h:1"), 6);
}
END_TEST

START_TEST(nothing_without_a_registry)
{
	static struct link_metrics none;

	link_metrics_init(&none, NULL, "a");
	link_metrics_begin(&none, "tcp");
	link_metrics_post(&none, 1, 1, 1);
	link_metrics_posted(&none, 1, 1, 0);
	link_metrics_acked(&none, 1, 2);
	link_metrics_transport(&none, 1);
	link_metrics_connect_failed(&none);
	ck_assert_uint_eq(none.head, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("link_metrics");
	TCase *tc = tcase_create("all");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, each_record_counts_when_its_batch_is_acknowledged);
	tcase_add_test(tc, an_acknowledgement_may_come_before_the_post_returns);
	tcase_add_test(tc, what_was_not_taken_does_not_count);
	tcase_add_test(tc, more_batches_than_there_is_room_for);
	tcase_add_test(tc, a_transports_retries_are_of_its_session);
	tcase_add_test(tc, nothing_without_a_registry);
	suite_add_tcase(s, tc);
	return unit_run(s);
}
