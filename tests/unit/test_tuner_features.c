/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner/window_features.h"

#include "tests/unit/unit_main.h"
#include "tuner/settings.h"

#include <math.h>
#include <string.h>

static struct tuner_snapshot a, b;

static void add(struct tuner_snapshot *s, enum tuner_hist which, uint64_t value, unsigned times)
{
	static struct histogram h;

	memset(&h, 0, sizeof(h));
	for (unsigned i = 0; i < times; i++)
		histogram_add(&h, value);
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		s->hist[which][i] += h.counts[i];
	s->hist_sum[which] += value * times;
}

START_TEST(nothing_known_is_nan)
{
	struct tuner_features f;

	b.time_ns = 1000000000;
	tuner_features_compute(&a, &b, &f);
	for (int i = 0; i < TUNER_FEATURES; i++)
		if (i != TUNER_F_LINK_ESTIMATED)
			ck_assert_msg(isnan(f.v[i]), "%s is %f",
				      tuner_feature_name((enum tuner_feature)i), (double)f.v[i]);
	ck_assert_float_eq(f.v[TUNER_F_LINK_ESTIMATED], 1);
	b.queue_known = true; /* an empty one is known */
	tuner_features_compute(&a, &b, &f);
	ck_assert_float_eq(f.v[TUNER_F_QUEUE_DEPTH], 0);
}
END_TEST

START_TEST(growth_not_totals)
{
	struct tuner_features f;

	a.have = b.have = 1U << TUNER_OPS | 1U << TUNER_BYTES | 1U << TUNER_REGION_HITS |
			  1U << TUNER_REGION_MISSES;
	a.counter[TUNER_OPS] = 1000;
	b.counter[TUNER_OPS] = 5000;
	a.counter[TUNER_BYTES] = 0;
	b.counter[TUNER_BYTES] = 4096 * 4000;
	b.counter[TUNER_REGION_HITS] = 3;
	b.counter[TUNER_REGION_MISSES] = 1;
	b.time_ns = 2000000000;
	add(&a, TUNER_COMMIT_NS, 500000000, 900); /* before the window: must not count */
	b.hist_sum[TUNER_COMMIT_NS] = a.hist_sum[TUNER_COMMIT_NS];
	memcpy(b.hist, a.hist, sizeof(a.hist));
	add(&b, TUNER_COMMIT_NS, 2000000, 100);
	tuner_features_compute(&a, &b, &f);
	ck_assert_float_eq(f.v[TUNER_F_OPS_PER_S], 2000);
	ck_assert_float_eq(f.v[TUNER_F_REGION_HIT_RATE], 0.75f);
	ck_assert_float_eq_tol(f.v[TUNER_F_COMMIT_P99_US], 2000, 150);
	ck_assert_float_eq_tol(f.v[TUNER_F_IN_FLIGHT], 4, 0.01f);
	ck_assert(isnan(f.v[TUNER_F_RTT_P50_US]));
	ck_assert(isnan(f.v[TUNER_F_CPU_OWN]));
}
END_TEST

START_TEST(link_estimated_without_counter)
{
	struct tuner_features f;

	a.have = b.have = 1U << TUNER_BYTES;
	b.counter[TUNER_BYTES] = 1000000;
	b.time_ns = 1000000000;
	b.gauge[TUNER_COPIES] = 2;
	b.gauge[TUNER_LINK_CAPACITY] = 10e6;
	tuner_features_compute(&a, &b, &f);
	ck_assert_float_eq_tol(f.v[TUNER_F_LINK_SHARE], 0.2f, 1e-6f);
	ck_assert(isnan(f.v[TUNER_F_LINK_OTHER]));
	ck_assert_float_eq(f.v[TUNER_F_LINK_ESTIMATED], 1);
	a.have = b.have |= 1U << TUNER_LINK_BYTES;
	b.counter[TUNER_LINK_BYTES] = 5000000;
	tuner_features_compute(&a, &b, &f);
	ck_assert_float_eq_tol(f.v[TUNER_F_LINK_SHARE], 0.5f, 1e-6f);
	ck_assert_float_eq_tol(f.v[TUNER_F_LINK_OTHER], 0.3f, 1e-6f);
	ck_assert_float_eq(f.v[TUNER_F_LINK_ESTIMATED], 0);
}
END_TEST

/* A counter that is an estimate says so; of it nobody knows what others sent. */
START_TEST(estimates_are_marked)
{
	struct tuner_features f;

	a.have = b.have = 1U << TUNER_MEM_BYTES | 1U << TUNER_LINK_BYTES | 1U << TUNER_BYTES;
	b.counter[TUNER_MEM_BYTES] = 1000000;
	b.counter[TUNER_LINK_BYTES] = 3000000;
	b.counter[TUNER_BYTES] = 1000000;
	b.gauge[TUNER_COPIES] = 1;
	b.gauge[TUNER_MEM_CAPACITY] = 4e6;
	b.gauge[TUNER_LINK_CAPACITY] = 10e6;
	b.time_ns = 1000000000;
	tuner_features_compute(&a, &b, &f);
	ck_assert_float_eq(f.v[TUNER_F_MEM_SHARE], 0.25f);
	ck_assert_float_eq(f.v[TUNER_F_MEM_ESTIMATED], 0);
	ck_assert(!tuner_feature_estimated(&f, TUNER_F_MEM_SHARE));
	ck_assert_float_eq_tol(f.v[TUNER_F_LINK_OTHER], 0.2f, 1e-6f);
	b.estimated = 1U << TUNER_MEM_BYTES | 1U << TUNER_LINK_BYTES;
	tuner_features_compute(&a, &b, &f);
	ck_assert_float_eq(f.v[TUNER_F_MEM_ESTIMATED], 1);
	ck_assert(tuner_feature_estimated(&f, TUNER_F_MEM_SHARE));
	ck_assert(tuner_feature_estimated(&f, TUNER_F_LINK_SHARE));
	ck_assert(!tuner_feature_estimated(&f, TUNER_F_PCIE_SHARE)); /* it isn't there */
	ck_assert(!tuner_feature_estimated(&f, TUNER_F_OPS_PER_S));
	ck_assert_float_eq_tol(f.v[TUNER_F_LINK_SHARE], 0.3f, 1e-6f);
	ck_assert(isnan(f.v[TUNER_F_LINK_OTHER]));
	b.gauge[TUNER_MEM_CAPACITY] = 0;
	tuner_features_compute(&a, &b, &f);
	ck_assert(isnan(f.v[TUNER_F_MEM_SHARE]) && isnan(f.v[TUNER_F_MEM_ESTIMATED]));
}
END_TEST

START_TEST(mirrors_tell_their_load)
{
	struct tuner_features f;

	b.time_ns = 1000000000;
	b.gauge[TUNER_MIRROR_CPU] = 0.5;
	tuner_features_compute(&a, &b, &f);
	ck_assert(isnan(f.v[TUNER_F_MIRROR_CPU]));
	b.mirrors_known = true;
	b.gauge[TUNER_MIRROR_LAG] = 12;
	tuner_features_compute(&a, &b, &f);
	ck_assert_float_eq(f.v[TUNER_F_MIRROR_CPU], 0.5f);
	ck_assert_float_eq(f.v[TUNER_F_MIRROR_RING], 0); /* idle is not unknown */
	ck_assert_float_eq(f.v[TUNER_F_MIRROR_LAG], 12);
	ck_assert_str_eq(tuner_feature_name(TUNER_F_MIRROR_LAG), "mirror_lag_records");
	ck_assert_str_eq(tuner_feature_name(TUNER_F_FORECAST), "forecast");
}
END_TEST

START_TEST(a_restart_is_nan)
{
	struct tuner_features f;

	a.have = b.have = 1U << TUNER_OPS;
	a.counter[TUNER_OPS] = 10;
	b.counter[TUNER_OPS] = 3;
	b.time_ns = 1000000000;
	tuner_features_compute(&a, &b, &f);
	ck_assert(isnan(f.v[TUNER_F_OPS_PER_S]));
	b.counter[TUNER_OPS] = 30;
	b.time_ns = 0;
	tuner_features_compute(&a, &b, &f);
	ck_assert(isnan(f.v[TUNER_F_OPS_PER_S]));
}
END_TEST

START_TEST(settings_step_within_bounds)
{
	struct tuner_bounds bounds;
	struct tuner_settings s = { { 2, 1, 1, 0 } }, to;

	tuner_bounds_all(&bounds);
	bounds.hi[TUNER_KNOB_LANES] = tuner_knob_level(TUNER_KNOB_LANES, 5);
	ck_assert_uint_eq(bounds.hi[TUNER_KNOB_LANES], 2);
	ck_assert(!tuner_settings_move(s, 2 * TUNER_KNOB_LANES, &bounds, &to));
	ck_assert(tuner_settings_move(s, 2 * TUNER_KNOB_LANES + 1, &bounds, &to));
	ck_assert_int_eq(tuner_settings_move_of(s, to), 2 * TUNER_KNOB_LANES + 1);
	ck_assert(!tuner_settings_move(s, 2 * TUNER_KNOB_RESERVE + 1, &bounds, &to));
	ck_assert_int_eq(tuner_settings_move_of(s, s), -1);
	s.level[TUNER_KNOB_LANES] = 6;
	ck_assert(!tuner_settings_allowed(&s, &bounds));
	s = tuner_settings_clamp(s, &bounds);
	ck_assert(tuner_settings_allowed(&s, &bounds));
	ck_assert(tuner_settings_equal(tuner_settings_unpack(tuner_settings_pack(s)), s));
	s = tuner_settings_unpack(0xFFFFFFFF);
	tuner_bounds_all(&bounds);
	ck_assert(tuner_settings_allowed(&s, &bounds));
	bounds.lo[0] = 200;
	bounds.hi[0] = 100;
	tuner_bounds_sane(&bounds);
	s = tuner_settings_clamp(s, &bounds);
	ck_assert(tuner_settings_allowed(&s, &bounds));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tuner features");
	TCase *t = tcase_create("all");

	tcase_add_test(t, nothing_known_is_nan);
	tcase_add_test(t, growth_not_totals);
	tcase_add_test(t, link_estimated_without_counter);
	tcase_add_test(t, estimates_are_marked);
	tcase_add_test(t, mirrors_tell_their_load);
	tcase_add_test(t, a_restart_is_nan);
	tcase_add_test(t, settings_step_within_bounds);
	suite_add_tcase(s, t);
	return unit_run(s);
}
