/* SPDX-License-Identifier: Apache-2.0 */
#include "common/histogram.h"

#include "tests/unit/unit_main.h"

static struct histogram h;

START_TEST(buckets_tile_the_range)
{
	for (unsigned i = 1; i < HISTOGRAM_BUCKETS; i++)
		ck_assert_uint_gt(histogram_bucket_max(i), histogram_bucket_max(i - 1));
	ck_assert_uint_eq(histogram_bucket_max(HISTOGRAM_BUCKETS - 1), UINT64_MAX);
}
END_TEST

START_TEST(quantiles_are_close)
{
	h = (struct histogram){ 0 };
	for (uint64_t v = 1; v <= 100000; v++)
		histogram_add(&h, v);
	ck_assert_uint_eq(histogram_count(&h), 100000);
	ck_assert_double_eq_tol(histogram_mean(&h), 50000.5, 0.01);
	ck_assert_double_eq_tol((double)histogram_quantile(&h, 0.5), 50000, 50000 * 0.07);
	ck_assert_double_eq_tol((double)histogram_quantile(&h, 0.99), 99000, 99000 * 0.07);
	ck_assert_uint_eq(histogram_quantile(&h, 1.0), 100000);
}
END_TEST

START_TEST(extremes_fit)
{
	h = (struct histogram){ 0 }; /* valgrind runs all cases in one process */
	histogram_add(&h, 0);
	histogram_add(&h, UINT64_MAX);
	ck_assert_uint_eq(histogram_count(&h), 2);
	ck_assert_uint_eq(histogram_quantile(&h, 0.1), 0);
	ck_assert_uint_eq(histogram_quantile(&h, 1.0), UINT64_MAX);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("histogram");
	TCase *t = tcase_create("all");

	tcase_add_test(t, buckets_tile_the_range);
	tcase_add_test(t, quantiles_are_close);
	tcase_add_test(t, extremes_fit);
	suite_add_tcase(s, t);
	return unit_run(s);
}
