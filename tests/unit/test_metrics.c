/* SPDX-License-Identifier: Apache-2.0 */
/* The metric registry: counting from threads, histograms, snapshots, the text that Prometheus
 * reads. */
#include "common/metrics.h"
#include "common/metrics_text.h"
#include "common/thread.h"

#include "tests/unit/unit_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct metrics_def ops = {
	.name = "t_ops_total", .help = "Operations.", .kind = METRICS_COUNTER,
};
static const struct metrics_def depth = { .name = "t_depth",
					  .help = "Depth.",
					  .kind = METRICS_GAUGE };
static const struct metrics_def lat = {
	.name = "t_seconds", .help = "Latency.", .kind = METRICS_HISTOGRAM, .ns = true,
	.first_bits = METRICS_NS_FIRST_BITS, .sub_bits = 2,
};

static struct metrics *m;
static struct metrics_snapshot snap;

static void set_up(void)
{
	m = metrics_create();
	ck_assert_ptr_nonnull(m);
}

static void tear_down(void)
{
	metrics_snapshot_free(&snap);
	metrics_destroy(m);
}

static void take(void)
{
	metrics_snapshot_free(&snap);
	ck_assert_int_eq(metrics_snapshot(m, &snap), 0);
}

START_TEST(nothing_is_done_without_a_registry)
{
	struct metric *s = metrics_series(NULL, &ops, NULL);

	ck_assert_ptr_null(s);
	metric_add(s, 1);
	metric_set(s, 1);
	metric_observe(s, 1);
}
END_TEST

START_TEST(same_labels_are_the_same_series)
{
	struct metric *a = metrics_series(m, &ops, "op", "read", NULL);
	struct metric *b = metrics_series(m, &ops, "op", "write", NULL);

	ck_assert_ptr_ne(a, b);
	ck_assert_ptr_eq(a, metrics_series(m, &ops, "op", "read", NULL));
	metric_add(a, 3);
	metric_add(b, 4);
	take();
	ck_assert_uint_eq(snap.count, 2);
	ck_assert_uint_eq(metrics_value(&snap, "t_ops_total", "read"), 3);
	ck_assert_uint_eq(metrics_value(&snap, "t_ops_total", "write"), 4);
	ck_assert_ptr_null(metrics_find(&snap, "t_ops_total", "none"));
}
END_TEST

START_TEST(buckets_hold_what_their_bounds_say)
{
	unsigned n = metrics_bucket_count(&lat);

	for (unsigned i = 0; i + 1 < n; i++) {
		uint64_t top = metrics_bucket_max(&lat, i);

		ck_assert_uint_eq(metrics_bucket(&lat, top), i);
		ck_assert_uint_eq(metrics_bucket(&lat, top + 1), i + 1);
	}
	ck_assert_uint_eq(metrics_bucket(&lat, 0), 0);
	ck_assert_uint_eq(metrics_bucket(&lat, UINT64_MAX), n - 1);
}
END_TEST

START_TEST(quantiles_are_within_a_bucket)
{
	struct metric *s = metrics_series(m, &lat, NULL);
	const struct metrics_sample *got;

	for (uint64_t v = 1; v <= 1000; v++)
		metric_observe(s, v * 1000);
	take();
	got = metrics_find(&snap, "t_seconds", NULL);
	ck_assert_uint_eq(got->count, 1000);
	ck_assert_uint_eq(got->sum, 500500000);
	ck_assert_uint_ge(metrics_quantile(&lat, got->buckets, 0.5), 500000);
	ck_assert_uint_le(metrics_quantile(&lat, got->buckets, 0.5), 625000);
	ck_assert_uint_ge(metrics_quantile(&lat, got->buckets, 0.99), 990000);
	ck_assert_uint_le(metrics_quantile(&lat, got->buckets, 0.99), 1240000);
	ck_assert_uint_eq(metric_observed(s), 1000);
}
END_TEST

#define COUNTERS 4
#define ROUNDS 20000

static void *count_thread(void *arg)
{
	struct metric **s = arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		metric_add(s[0], 1);
		metric_add(s[1], i % 2 ? 1 : (uint64_t)-1);
		metric_observe(s[2], 1000);
	}
	return NULL;
}

/* More threads in turn than there are slots, some of them together, all counts kept. */
START_TEST(threads_lose_nothing)
{
	struct metric *s[3] = {
		metrics_series(m, &ops, NULL),
		metrics_series(m, &depth, NULL),
		metrics_series(m, &lat, NULL),
	};
	pthread_t threads[COUNTERS];
	unsigned rounds = 2 * METRICS_THREADS / COUNTERS;

	for (unsigned r = 0; r < rounds; r++) {
		for (unsigned i = 0; i < COUNTERS; i++)
			ck_assert_int_eq(thread_start(&threads[i], "kv-test", count_thread, s), 0);
		take(); /* while they count */
		for (unsigned i = 0; i < COUNTERS; i++)
			pthread_join(threads[i], NULL);
	}
	take();
	ck_assert_uint_eq(metrics_value(&snap, "t_ops_total", NULL),
			  (uint64_t)rounds * COUNTERS * ROUNDS);
	ck_assert_uint_eq(metrics_value(&snap, "t_depth", NULL), 0);
	ck_assert_uint_eq(metrics_find(&snap, "t_seconds", NULL)->count,
			  (uint64_t)rounds * COUNTERS * ROUNDS);
}
END_TEST

static pthread_barrier_t together;

static void *crowd_thread(void *arg)
{
	metric_add(arg, 1); /* takes a slot, or finds none */
	pthread_barrier_wait(&together);
	metric_add(arg, 1);
	return NULL;
}

/* All alive at once: some share the block with atomic additions. */
START_TEST(more_threads_than_slots)
{
	struct metric *s = metrics_series(m, &ops, NULL);
	pthread_t threads[METRICS_THREADS + 20];
	unsigned n = sizeof(threads) / sizeof(threads[0]);

	pthread_barrier_init(&together, NULL, n);
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(thread_start(&threads[i], "kv-test", crowd_thread, s), 0);
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&together);
	take();
	ck_assert_uint_eq(metrics_value(&snap, "t_ops_total", NULL), 2 * n);
}
END_TEST

static void collect_depth(void *ctx)
{
	metric_set(ctx, 7);
}

START_TEST(collectors_run_before_a_snapshot)
{
	struct metric *s = metrics_series(m, &depth, NULL);

	ck_assert_int_eq(metrics_add_collector(m, collect_depth, s), 0);
	take();
	ck_assert_uint_eq(metrics_value(&snap, "t_depth", NULL), 7);
	metrics_remove_collector(m, s);
	metric_set(s, 1);
	take();
	ck_assert_uint_eq(metrics_value(&snap, "t_depth", NULL), 1);
}
END_TEST

START_TEST(a_sum_of_a_family)
{
	static const struct metrics_def all = {
		.name = "t_all_seconds", .help = "All.", .kind = METRICS_HISTOGRAM, .ns = true,
		.first_bits = METRICS_NS_FIRST_BITS, .sub_bits = 2,
	};

	metric_sum_of(metrics_series(m, &all, NULL), "t_seconds");
	metric_observe(metrics_series(m, &lat, "op", "a", NULL), 1000);
	metric_observe(metrics_series(m, &lat, "op", "b", NULL), 3000);
	take();
	ck_assert_uint_eq(metrics_find(&snap, "t_all_seconds", NULL)->count, 2);
	ck_assert_uint_eq(metrics_find(&snap, "t_all_seconds", NULL)->sum, 4000);
}
END_TEST

START_TEST(a_full_registry_gives_no_series)
{
	char name[16];
	unsigned made = 0;

	for (unsigned i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "%u", i);
		made += metrics_series(m, &lat, "i", name, NULL) != NULL;
	}
	ck_assert_uint_gt(made, 100);
	ck_assert_uint_lt(made, 1000);
	take();
	ck_assert_uint_eq(snap.count, made);
}
END_TEST

START_TEST(text_is_what_prometheus_reads)
{
	static const char *const wanted[] = {
		"# HELP t_ops_total Operations.\n# TYPE t_ops_total counter\n",
		"t_ops_total{path=\"a\\\"b\\\\c\\nd\",op=\"x\"} 5\n",
		"# TYPE t_seconds histogram\n",
		"t_seconds_bucket{le=\"5.12e-07\"} 0\n",
		"t_seconds_bucket{le=\"1.024e-06\"} 1\n",
		"t_seconds_bucket{le=\"+Inf\"} 2\n",
		"t_seconds_sum 20.000001\n",
		"t_seconds_count 2\n",
		"t_depth 0.5\n",
	};
	struct metric *s = metrics_series(m, &lat, NULL);
	char *text = NULL;
	size_t len = 0;

	metric_add(metrics_series(m, &ops, "path", "a\"b\\c\nd", "op", "x", NULL), 5);
	metric_observe(s, 1000);
	metric_observe(s, 20000000000);
	metric_set_real(metrics_series(m, &depth, NULL), 0.5);
	take();
	ck_assert_int_eq(metrics_text(&snap, &text, &len), 0);
	ck_assert_uint_eq(strlen(text), len);
	for (unsigned i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		ck_assert_msg(strstr(text, wanted[i]), "'%s' is not in:\n%s", wanted[i], text);
	free(text);
}
END_TEST

START_TEST(series_are_read_without_a_snapshot)
{
	struct metric *a = metrics_series(m, &ops, "op", "read", NULL), *found[3];
	struct metric *b = metrics_series(m, &ops, "op", "write", NULL);
	struct metric *h = metrics_series(m, &lat, NULL);
	uint64_t counts[METRICS_BUCKETS_MAX];

	metric_add(a, 3);
	metric_set(b, 5);
	metric_observe_n(h, 1000, 7);
	ck_assert_uint_eq(metrics_list(m, "t_ops_total", NULL, found, 3), 2);
	ck_assert_ptr_eq(found[1], b);
	ck_assert_uint_eq(metrics_list(m, "t_ops_total", NULL, found, 1), 1);
	ck_assert_uint_eq(metrics_list(m, "t_ops_total", "write", found, 3), 1);
	ck_assert_ptr_eq(found[0], b);
	ck_assert_uint_eq(metrics_list(m, "t_none", NULL, found, 3), 0);
	ck_assert_uint_eq(metrics_list(NULL, "t_ops_total", NULL, found, 3), 0);
	ck_assert_uint_eq(metric_value(a), 3);
	ck_assert_uint_eq(metric_value(b), 5);
	ck_assert_uint_eq(metric_counts(h, counts), 7000);
	ck_assert_uint_eq(counts[metrics_bucket(&lat, 1000)], 7);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("metrics");
	TCase *t = tcase_create("all");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, nothing_is_done_without_a_registry);
	tcase_add_test(t, same_labels_are_the_same_series);
	tcase_add_test(t, buckets_hold_what_their_bounds_say);
	tcase_add_test(t, quantiles_are_within_a_bucket);
	tcase_add_test(t, threads_lose_nothing);
	tcase_add_test(t, more_threads_than_slots);
	tcase_add_test(t, collectors_run_before_a_snapshot);
	tcase_add_test(t, a_sum_of_a_family);
	tcase_add_test(t, a_full_registry_gives_no_series);
	tcase_add_test(t, text_is_what_prometheus_reads);
	tcase_add_test(t, series_are_read_without_a_snapshot);
	suite_add_tcase(s, t);
	return unit_run(s);
}
