/* SPDX-License-Identifier: Apache-2.0 */
/* kvfs bench: choices of its clients, statistics over runs, and the figure. */
#include "fs/bench/bench_replication.h"
#include "tests/unit/unit_main.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct bench_keys keys;

START_TEST(zipf_prefers_few_keys)
{
	unsigned counts[1000] = { 0 }, most = 0;
	uint64_t random = bench_random_seed(1, 0);

	bench_keys_init(&keys, bench_load_find("a"), 1000, 1);
	for (unsigned i = 0; i < 100000; i++) {
		uint64_t key = bench_choose_key(&keys, &random);

		ck_assert_uint_lt(key, 1000);
		counts[key]++;
	}
	for (unsigned i = 0; i < 1000; i++)
		most = counts[i] > most ? counts[i] : most;
	/* 1 / zeta(1000, 0.99) is 0.129 */
	ck_assert_uint_gt(most, 11000);
	ck_assert_uint_lt(most, 15000);
}
END_TEST

START_TEST(shares_of_operations)
{
	unsigned counts[BENCH_OPS] = { 0 };
	uint64_t random = bench_random_seed(1, 0);

	bench_keys_init(&keys, bench_load_find("b"), 10, 1);
	for (unsigned i = 0; i < 100000; i++)
		counts[bench_choose_op(&keys, &random)]++;
	ck_assert_uint_eq(counts[BENCH_GET] + counts[BENCH_PUT], 100000);
	ck_assert_uint_gt(counts[BENCH_PUT], 4500);
	ck_assert_uint_lt(counts[BENCH_PUT], 5500);
}
END_TEST

START_TEST(seeds_differ_and_repeat)
{
	uint64_t a = bench_random_seed(7, 0), b = bench_random_seed(7, 0),
		 c = bench_random_seed(7, 1);

	ck_assert_uint_eq(bench_random(&a), bench_random(&b));
	ck_assert_uint_ne(bench_random(&a), bench_random(&c));
}
END_TEST

/* While one client makes key 10, another makes key 11, and then ever more. */
START_TEST(key_being_made_is_not_chosen)
{
	uint64_t random = bench_random_seed(1, 0);
	bool latest = false;

	bench_keys_init(&keys, bench_load_find("d"), 10, 2);
	ck_assert_uint_eq(bench_create_begin(&keys, 0), 10);
	ck_assert_uint_eq(bench_create_begin(&keys, 1), 11);
	bench_create_end(&keys, 1);
	for (unsigned i = 0; i < 10000; i++) {
		uint64_t key = bench_choose_key(&keys, &random);

		ck_assert(key < 10 || key == 11);
	}
	bench_create_end(&keys, 0);
	for (unsigned i = 0; i < 10000; i++) {
		uint64_t key = bench_choose_key(&keys, &random);

		ck_assert_uint_lt(key, 12);
		latest |= key == 11;
	}
	ck_assert(latest);
}
END_TEST

/* However long one client takes to make a key, those that others choose are there, and it is not
 * the one that gives way to another. */
START_TEST(key_being_made_holds_up_nobody)
{
	static const char *const loads[] = { "d", "create" };
	const struct bench_load *load = bench_load_find(loads[_i]);
	uint64_t random = bench_random_seed(1, 0), oldest;
	bool there[5000] = { false };

	bench_keys_init(&keys, load, 10, 2);
	memset(there, true, 10);
	ck_assert_uint_eq(bench_create_begin(&keys, 0), 10);
	for (unsigned i = 0; i < 4000; i++) {
		uint64_t key = bench_create_begin(&keys, 1);

		if (bench_key_replaces(&keys, key, &oldest)) {
			ck_assert(there[oldest]);
			there[oldest] = false;
		}
		ck_assert(there[bench_choose_key(&keys, &random)]);
		there[key] = true;
		bench_create_end(&keys, 1);
		ck_assert(there[bench_choose_key(&keys, &random)]);
	}
}
END_TEST

/* However long it runs: no more keys than that, and none that is chosen goes. */
START_TEST(keys_are_bounded)
{
	static const char *const loads[] = { "d", "e", "create" };
	const struct bench_load *load = bench_load_find(loads[_i]);
	uint64_t random = bench_random_seed(1, 0), there = 10, oldest;
	uint64_t first = load->keys == BENCH_LATEST ? 0 : 10, gone = first;

	bench_keys_init(&keys, load, 10, 1);
	for (unsigned i = 0; i < 10000; i++) {
		uint64_t key = bench_create_begin(&keys, 0), chosen;

		if (bench_key_replaces(&keys, key, &oldest))
			ck_assert_uint_eq(oldest, gone++);
		else
			there++;
		bench_create_end(&keys, 0);
		chosen = bench_choose_key(&keys, &random);
		ck_assert(chosen < first || chosen >= gone);
	}
	ck_assert_uint_gt(gone, first);
	ck_assert_uint_eq(there, bench_keys_most(load, 10));
}
END_TEST

/* Results of tcp, shm and an emulated verbs under one load; runs count up, shm four times tcp. */
static struct bench_replication config;
static struct bench_cell cells[3];
static struct bench_results results;

static void results_make(const char *load, unsigned runs)
{
	static const enum addr_kind kinds[] = { ADDR_TCP, ADDR_SHM, ADDR_VERBS };

	bench_replication_defaults(&config);
	config.runs = runs;
	ck_assert_int_eq(bench_replication_set_list(&config, "--load", load), 0);
	ck_assert_int_eq(bench_replication_set_list(&config, "--value", "4K"), 0);
	memset(cells, 0, sizeof(cells));
	memset(&results, 0, sizeof(results));
	for (unsigned i = 0; i < 3; i++) {
		cells[i].kind = kinds[i];
		cells[i].emulated = kinds[i] == ADDR_VERBS;
		cells[i].load = config.loads[0];
		cells[i].value_bytes = 4096;
		for (unsigned r = 0; r < runs; r++) {
			/* not in order */
			double ops = 1000.0 * ((r + 1) % runs + 1) * (kinds[i] == ADDR_SHM ? 4 : 1);

			cells[i].done[BENCH_STATIC] = cells[i].done[BENCH_TUNED] = true;
			cells[i].runs[BENCH_STATIC][r].ops = ops;
			cells[i].runs[BENCH_TUNED][r].ops = 2 * ops;
		}
	}
	results.cfg = &config;
	results.cells = cells;
	results.cell_count = 3;
	snprintf(results.device, sizeof(results.device), "rxe<0>&");
}

START_TEST(median_and_spread)
{
	struct bench_spread s;

	results_make("a", 5);
	s = BENCH_SPREAD(&results, &cells[0], BENCH_STATIC, ops);
	ck_assert_double_eq(s.low, 1000);
	ck_assert_double_eq(s.median, 3000);
	ck_assert_double_eq(s.high, 5000);
	results_make("a", 4);
	s = BENCH_SPREAD(&results, &cells[0], BENCH_TUNED, ops);
	ck_assert_double_eq(s.median, 5000);
	results_make("a", 1);
	s = BENCH_SPREAD(&results, &cells[0], BENCH_STATIC, ops);
	ck_assert_double_eq(s.low, 1000);
	ck_assert_double_eq(s.high, 1000);
}
END_TEST

START_TEST(ratio_has_a_bar_where_one_is_asked)
{
	double ratio = 0, bar = -1;

	results_make("closed", 3);
	ck_assert(bench_ratio(&results, cells[0].load, 4096, &ratio, &bar));
	ck_assert_double_eq(ratio, 4);
	ck_assert_double_eq(bar, 4);
	config.mirrors = 2;
	ck_assert(bench_ratio(&results, cells[0].load, 4096, &ratio, &bar));
	ck_assert_double_eq(bar, 0);
	ck_assert(!bench_ratio(&results, cells[0].load, 1024, &ratio, &bar));
	cells[0].done[BENCH_STATIC] = false;
	ck_assert(!bench_ratio(&results, cells[0].load, 4096, &ratio, &bar));
	ck_assert(BENCH_SPREAD(&results, &cells[0], BENCH_STATIC, ops).high == 0);
	cells[0].done[BENCH_STATIC] = true;
	config.settings = 1U << BENCH_TUNED;
	ck_assert(!bench_ratio(&results, cells[0].load, 4096, &ratio, &bar));
}
END_TEST

/* The device's name is escaped, each cell has its bars, and function is not called speed. */
START_TEST(figure_of_an_emulated_device)
{
	char path[] = "/tmp/kvfs-test-XXXXXX", *text = calloc(1, 1 << 16), *at;
	int fd = mkstemp(path);
	unsigned bars = 0;

	ck_assert_int_ge(fd, 0);
	results_make("a", 3);
	ck_assert_int_eq(bench_plot_write(&results, path), 0);
	ck_assert_int_gt(read(fd, text, (1 << 16) - 1), 0);
	ck_assert_ptr_nonnull(strstr(text, "rxe&#60;0&#62;&#38; is an emulated RDMA device"));
	ck_assert_ptr_nonnull(strstr(text, "verbs (emulated), tuned"));
	ck_assert_ptr_null(strstr(text, "rxe<"));
	ck_assert_str_eq(text + strlen(text) - 7, "</svg>\n");
	for (at = text; (at = strstr(at, "<rect")); at++)
		bars++;
	ck_assert_uint_eq(bars, 1 + 6 + 6); /* ground, legend, bars */
	ck_assert_int_eq(bench_plot_write(&results, "/nonexistent/figure.svg"), -ENOENT);
	free(text);
	close(fd);
	unlink(path);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench");
	TCase *t = tcase_create("all");

	tcase_add_test(t, zipf_prefers_few_keys);
	tcase_add_test(t, shares_of_operations);
	tcase_add_test(t, seeds_differ_and_repeat);
	tcase_add_test(t, key_being_made_is_not_chosen);
	tcase_add_loop_test(t, key_being_made_holds_up_nobody, 0, 2);
	tcase_add_loop_test(t, keys_are_bounded, 0, 3);
	tcase_add_test(t, median_and_spread);
	tcase_add_test(t, ratio_has_a_bar_where_one_is_asked);
	tcase_add_test(t, figure_of_an_emulated_device);
	suite_add_tcase(s, t);
	return unit_run(s);
}
