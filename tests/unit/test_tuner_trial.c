/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of a trial, one load, windows by script: a step that is much worse goes back within one
 * window and is banned for a time, a gain of less than the margin is no reason to move, and no
 * window moves more than one knob by one step.
 */
#include "tests/unit/unit_main.h"
#include "tuner/sim_work.h"
#include "tuner/tuner.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define BAN 150 /* windows, the first time; twice as many each time after */

/* A policy that wants the settings `wish` whenever they may be tried. */
static struct tuner_settings wish;
static float predicted; /* of it */
static unsigned proposed;

struct tuner_policy {
	char unused;
};

static int wish_create(uint64_t seed, struct tuner_policy **ret_policy)
{
	*ret_policy = calloc(1, sizeof(**ret_policy));
	return *ret_policy ? 0 : -ENOMEM;
}

static void wish_propose(struct tuner_policy *p, const struct tuner_query *q,
			 struct tuner_proposal *ret_proposal)
{
	ret_proposal->prior = 0;
	ret_proposal->prior_error = TUNER_PRIOR_ERROR;
	ret_proposal->choice = 0;
	ret_proposal->predicted[0] = 0;
	for (int i = 1; i < q->n; i++)
		if (tuner_settings_equal(q->candidate[i], wish))
			ret_proposal->choice = i;
	if (ret_proposal->choice > 0)
		ret_proposal->predicted[ret_proposal->choice] = predicted;
	proposed += ret_proposal->choice > 0;
}

static void wish_learn(struct tuner_policy *p, const struct tuner_sample *sample)
{
}

static void wish_shifted(struct tuner_policy *p)
{
}

static void wish_destroy(struct tuner_policy *p)
{
	free(p);
}

static const struct tuner_policy_ops policy = {
	.name = "wish",
	.adapts = true,
	.create = wish_create,
	.propose = wish_propose,
	.learn = wish_learn,
	.shifted = wish_shifted,
	.destroy = wish_destroy,
};

static const struct tuner_settings start = { { 2, 1, 1, 0 } };
static struct tuner *tuner;
static struct tuner_settings now;
static struct tuner_decision last;
static uint64_t window;

/* As many windows as make the least noise that the tuner reckons with. */
#define QUIET 100

static struct tuner_settings step_from(struct tuner_settings s, enum tuner_knob knob)
{
	s.level[knob]++;
	return s;
}

static float bytes; /* of a record: what tells loads apart here */

/* One window in which what is in force is worth this gain over the static settings. */
static void pass(double gain)
{
	struct tuner_window w = { .index = window++, .in_force = now };

	tuner_bounds_all(&w.bounds);
	for (int i = 0; i < TUNER_FEATURES; i++)
		w.features.v[i] = NAN;
	w.features.v[TUNER_F_RECORD_MEAN] = w.features.v[TUNER_F_RECORD_P90] = bytes;
	w.features.v[TUNER_F_IN_FLIGHT] = 16;
	w.features.v[TUNER_F_OPS_PER_S] = (float)(1e5 * (1 + gain));
	now = tuner_step(tuner, &w, &last);
	ck_assert_uint_le(tuner_settings_distance(w.in_force, now), 1);
}

static void setup(void)
{
	struct tuner_config config;

	tuner_config_init(&config);
	config.policy = &policy;
	config.shipped = wish = now = start;
	config.forecast = false;
	window = proposed = 0;
	bytes = 1024;
	predicted = 0.01f;
	ck_assert_int_eq(tuner_create(&config, &tuner), 0);
	for (unsigned i = 0; i < QUIET; i++)
		pass(0);
	ck_assert(tuner_settings_equal(now, start));
	ck_assert_uint_eq(proposed, 0);
}

static void teardown(void)
{
	tuner_destroy(tuner);
}

/* Asks for a step of batch and lets the tuner begin with it. */
static void begin_step(void)
{
	wish = step_from(start, TUNER_KNOB_BATCH);
	pass(0);
	ck_assert_int_eq(last.action, TUNER_TRY);
	ck_assert(tuner_settings_equal(now, wish));
}

START_TEST(much_worse_goes_back_within_one_window)
{
	begin_step();
	pass(-0.5);
	ck_assert_int_eq(last.action, TUNER_ROLLBACK);
	ck_assert(tuner_settings_equal(now, start));
}
END_TEST

/* Windows until the wish is tried again, and what the trial says then. */
static unsigned until_tried_again(void)
{
	for (unsigned i = 1; i < 1000; i++) {
		pass(0);
		if (last.action == TUNER_TRY)
			return i;
		ck_assert(tuner_settings_equal(now, start));
	}
	ck_abort_msg("never tried again");
	return 0;
}

START_TEST(what_went_back_is_banned_for_a_time)
{
	begin_step();
	pass(-0.5);
	ck_assert_uint_eq(until_tried_again(), BAN);
	pass(-0.5);
	ck_assert_int_eq(last.action, TUNER_ROLLBACK);
	ck_assert_uint_eq(until_tried_again(), 2 * BAN);
}
END_TEST

/* Windows of a trial that is always worth this gain; it ends kept or not. */
static unsigned trial_of(double gain)
{
	unsigned n = 0;

	begin_step();
	do {
		pass(gain);
		n++;
	} while (last.action == TUNER_WAIT);
	ck_assert_uint_le(n, 6);
	return n;
}

START_TEST(a_clear_gain_is_kept)
{
	struct tuner_settings wanted = step_from(start, TUNER_KNOB_BATCH);

	trial_of(0.05);
	ck_assert_int_eq(last.action, TUNER_KEEP);
	ck_assert(tuner_settings_equal(now, wanted));
	for (unsigned i = 0; i < 20; i++)
		pass(0.05);
	ck_assert(tuner_settings_equal(now, wanted));
}
END_TEST

/* Four fifths of the margin, and clear of the noise. */
START_TEST(less_than_the_margin_is_not_worth_a_move)
{
	trial_of(0.004);
	ck_assert_int_eq(last.action, TUNER_ROLLBACK);
	ck_assert(tuner_settings_equal(now, start));
}
END_TEST

/* To a target two knobs away: one a window (pass() looks at each), judged when both are there. */
START_TEST(one_knob_at_a_time)
{
	wish = step_from(step_from(start, TUNER_KNOB_BATCH), TUNER_KNOB_LANES);
	pass(0);
	ck_assert_int_eq(last.action, TUNER_TRY);
	ck_assert_uint_eq(tuner_settings_distance(now, wish), 1);
	pass(0);
	ck_assert_int_eq(last.action, TUNER_WAIT);
	ck_assert(tuner_settings_equal(now, wish));
	do
		pass(0.05);
	while (last.action == TUNER_WAIT);
	ck_assert_int_eq(last.action, TUNER_KEEP);
	ck_assert(tuner_settings_equal(now, wish));
}
END_TEST

/* What is bad on the way is banned as a goal as well. */
START_TEST(worse_on_the_way_ends_it)
{
	struct tuner_settings way;

	wish = step_from(step_from(start, TUNER_KNOB_BATCH), TUNER_KNOB_LANES);
	pass(0);
	way = now;
	ck_assert_uint_eq(tuner_settings_distance(way, start), 1);
	pass(-0.5);
	ck_assert_int_eq(last.action, TUNER_ROLLBACK);
	ck_assert(tuner_settings_equal(now, start));
	proposed = 0;
	for (unsigned i = 0; i < BAN - 1; i++) {
		wish = i % 2 ? way
			     : step_from(step_from(start, TUNER_KNOB_BATCH), TUNER_KNOB_LANES);
		pass(0);
	}
	ck_assert_uint_eq(proposed, 0);
}
END_TEST

/* A load drifts to one where what was kept is far below the static settings: two windows. */
START_TEST(what_a_drift_inherits_is_compared_at_once)
{
	unsigned bad = 0;

	trial_of(0.05);
	ck_assert_int_eq(last.action, TUNER_KEEP);
	for (unsigned i = 0; i < 20; i++)
		pass(0.05);
	wish = start;
	bytes *= 1.6f;
	for (unsigned i = 0; i < 30; i++) {
		bool at_start = tuner_settings_equal(now, start);

		bad += !at_start;
		pass(at_start ? 0 : -0.4);
	}
	ck_assert_uint_le(bad, 2);
	ck_assert(tuner_settings_equal(now, start));
}
END_TEST

START_TEST(what_is_predicted_to_lose_is_an_exploration)
{
	begin_step();
	ck_assert(!last.proposal.explored);
	ck_assert_str_eq(last.why, "the step that promises most");
	pass(-0.5);
	predicted = -0.01f; /* to stay is 0 */
	wish = step_from(start, TUNER_KNOB_LANES);
	pass(0);
	ck_assert_int_eq(last.action, TUNER_TRY);
	ck_assert(last.proposal.explored);
	ck_assert_str_eq(last.why, "an exploration");
}
END_TEST

/* Policies that learn do both. */
START_TEST(policies_explore)
{
	static const struct tuner_policy_ops *const all[] = {
		&tuner_policy_bandit, &tuner_policy_xgboost, &tuner_policy_qlearning,
	};

	for (unsigned p = 0; p < 3; p++) {
		struct tuner_settings s = tuner_settings_shipped;
		struct tuner_decision d;
		struct tuner_config config;
		struct sim_trace *trace;
		unsigned tries[2] = { 0 };
		struct tuner *t;

		tuner_config_init(&config);
		config.policy = all[p];
		ck_assert_int_eq(tuner_create(&config, &t), 0);
		ck_assert_int_eq(sim_trace_create(SIM_MIX, 1, false, &trace), 0);
		for (unsigned i = 0; i < trace->windows; i++) {
			struct tuner_window w;

			sim_trace_window(trace, i, s, &w);
			s = tuner_step(t, &w, &d);
			if (d.action == TUNER_TRY)
				tries[d.proposal.explored]++;
		}
		ck_assert_msg(tries[0] > 3 && tries[1] > 3, "%s: %u, and %u explorations",
			      all[p]->name, tries[0], tries[1]);
		tuner_destroy(t);
		sim_trace_destroy(trace);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tuner_trial");
	TCase *c = tcase_create("all");

	tcase_set_timeout(c, 120); /* on a machine that others use */
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, much_worse_goes_back_within_one_window);
	tcase_add_test(c, what_went_back_is_banned_for_a_time);
	tcase_add_test(c, a_clear_gain_is_kept);
	tcase_add_test(c, less_than_the_margin_is_not_worth_a_move);
	tcase_add_test(c, one_knob_at_a_time);
	tcase_add_test(c, worse_on_the_way_ends_it);
	tcase_add_test(c, what_a_drift_inherits_is_compared_at_once);
	tcase_add_test(c, what_is_predicted_to_lose_is_an_exploration);
	tcase_add_test(c, policies_explore);
	suite_add_tcase(s, c);
	return unit_run(s);
}
