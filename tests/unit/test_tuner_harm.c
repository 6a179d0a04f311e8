/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must not harm, on the simulated NIC: settings stay in bounds whatever the rewards, the load,
 * the limits or the model do, and throughput is back within two windows.
 */
#include "tests/unit/unit_main.h"
#include "tests/unit/xgb_fault.h"
#include "tuner/policy_xgboost.h"
#include "tuner/rng.h"
#include "tuner/sim_work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct sim_trace *trace;
static struct tuner *tuner;
static struct tuner_bounds bounds;
static struct tuner_decision last;
static bool begin_forecast = true;
static double share; /* of the static settings' throughput, in the window that passed last */
#define AFTER 30     /* windows that are looked at when a lie has ended */
static unsigned bad_in_a_row, worst_in_a_row;

static int fault_policy_create(uint64_t seed, struct tuner_policy **ret_policy)
{
	return policy_xgboost_create(&xgb_fault_api, seed, ret_policy);
}

static void begin_seeded(const struct tuner_policy_ops *policy, enum sim_workload workload,
			 uint64_t trace_seed, uint64_t seed)
{
	struct tuner_config config;

	tuner_config_init(&config);
	config.policy = policy;
	config.seed = seed;
	config.forecast = begin_forecast;
	ck_assert_int_eq(sim_trace_create(workload, trace_seed, false, &trace), 0);
	ck_assert_int_eq(tuner_create(&config, &tuner), 0);
	tuner_bounds_all(&bounds);
	bad_in_a_row = worst_in_a_row = 0;
}

static void begin(const struct tuner_policy_ops *policy, enum sim_workload workload)
{
	begin_seeded(policy, workload, 3, 1);
}

static void end(void)
{
	tuner_destroy(tuner);
	sim_trace_destroy(trace);
}

/* One window; spoil, if not NULL, changes what the tuner sees. */
static struct tuner_settings pass(unsigned i, struct tuner_settings s,
				  void (*spoil)(struct tuner_window *w))
{
	struct tuner_settings shipped = tuner_settings_clamp(tuner_settings_shipped, &bounds);
	struct tuner_window w;

	share = sim_trace_throughput(trace, i, s) / sim_trace_throughput(trace, i, shipped);
	bad_in_a_row = share < 0.8 ? bad_in_a_row + 1 : 0;
	if (bad_in_a_row > worst_in_a_row)
		worst_in_a_row = bad_in_a_row;
	sim_trace_window(trace, i, s, &w);
	w.bounds = bounds;
	if (spoil)
		spoil(&w);
	s = tuner_step(tuner, &w, &last);
	ck_assert(tuner_settings_allowed(&s, &bounds));
	ck_assert_ptr_nonnull(last.why);
	return s;
}

static struct rng noise = { 99 };

static void wrong_reward(struct tuner_window *w)
{
	float *ops = &w->features.v[TUNER_F_OPS_PER_S];

	*ops = 1e12f / *ops; /* the faster, the worse it looks */
}

static void noisy_reward(struct tuner_window *w)
{
	float *v = w->features.v;

	v[TUNER_F_OPS_PER_S] *= (float)exp(2 * rng_normal(&noise));
	if (rng_unit(&noise) < 0.05)
		v[rng_below(&noise, TUNER_FEATURES)] = NAN;
	if (rng_unit(&noise) < 0.05)
		v[rng_below(&noise, TUNER_FEATURES)] = INFINITY;
	if (rng_unit(&noise) < 0.05)
		v[rng_below(&noise, TUNER_FEATURES)] = -1;
}

/* The lie ends, within a phase: two windows later throughput is back, but for a single look at
 * what was kept. */
static void run_spoilt(const struct tuner_policy_ops *policy, void (*spoil)(struct tuner_window *w))
{
	for (unsigned phase = 0; phase < 3; phase++) {
		struct tuner_settings s = tuner_settings_shipped;
		unsigned from, bad = 0;
		double sum = 0;

		begin(policy, SIM_MIX);
		from = trace->phase[phase].first + 100;
		for (unsigned i = 0; i < from; i++)
			s = pass(i, s, spoil);
		for (unsigned i = from; i < from + AFTER; i++) {
			s = pass(i, s, NULL);
			if (i < from + 2)
				continue;
			sum += fmin(share, 1) / (AFTER - 2);
			bad += share < 0.8;
			ck_assert_msg(bad_in_a_row <= 1, "%s, phase %u: bad %u windows after",
				      policy->name, phase, i - from);
		}
		ck_assert_msg(bad <= 2 && sum >= 0.8, "%s, phase %u: %u bad, share %.2f",
			      policy->name, phase, bad, sum);
		end();
	}
}

START_TEST(rewards_may_be_wrong_or_noisy)
{
	run_spoilt(&tuner_policy_bandit, wrong_reward);
	run_spoilt(&tuner_policy_xgboost, wrong_reward);
	run_spoilt(&tuner_policy_xgboost, noisy_reward);
	run_spoilt(&tuner_policy_qlearning, noisy_reward);
}
END_TEST

/* Another load each window: nothing can be learnt, so nothing may move. */
START_TEST(load_may_flip_each_window)
{
	struct tuner_settings s = tuner_settings_shipped;
	unsigned moved = 0;

	begin(&tuner_policy_xgboost, SIM_SWITCH);
	for (unsigned i = 0; i < 300; i++)
		trace->load_of[i] = i % 2;
	for (unsigned i = 0; i < 300; i++) {
		s = pass(i, s, NULL);
		moved += i > 20 && !tuner_settings_equal(s, tuner_settings_shipped);
	}
	ck_assert_uint_eq(moved, 0);
	ck_assert_uint_le(worst_in_a_row, 2);
	end();
}
END_TEST

/* What is best for one load is wrong for another that passes for it: seen in two windows. In seed 9
 * it was three. */
START_TEST(a_load_may_pass_for_a_known_one)
{
	for (uint64_t seed = 8; seed <= 10; seed++) {
		struct tuner_settings s = tuner_settings_shipped;

		begin_seeded(&tuner_policy_xgboost, SIM_TENANTS, seed, seed);
		for (unsigned i = 0; i < trace->windows; i++)
			s = pass(i, s, NULL);
		end();
		ck_assert_uint_le(worst_in_a_row, 2);
	}
}
END_TEST

/* While a load that flips has made it give up for a time, an operator sets something else. */
START_TEST(frozen_beats_a_load_that_flips)
{
	struct tuner_settings s = tuner_settings_shipped, mine = tuner_settings_shipped;
	struct tuner_decision d;
	struct tuner_window w;
	bool gave_up = false;

	begin(&tuner_policy_bandit, SIM_SWITCH);
	mine.level[TUNER_KNOB_LANES]--;
	for (unsigned i = 0; i < 100; i++) {
		trace->load_of[i] = i % 2;
		sim_trace_window(trace, i, s, &w);
		if (gave_up) {
			w.flags = TUNER_WINDOW_FROZEN;
			w.in_force = mine;
		}
		s = tuner_step(tuner, &w, &d);
		ck_assert(!gave_up || tuner_settings_equal(s, mine));
		gave_up |= d.why && strstr(d.why, "changes too often");
	}
	ck_assert(gave_up);
	end();
}
END_TEST

/* The limits tighten while it runs, to less than what is in force. */
START_TEST(limits_may_tighten)
{
	struct tuner_settings s = tuner_settings_shipped;

	begin(&tuner_policy_bandit, SIM_BURST);
	for (unsigned i = 0; i < trace->windows; i++) {
		if (i == 200)
			bounds.hi[TUNER_KNOB_RESERVE] = 0;
		if (i == 300)
			bounds.hi[TUNER_KNOB_LANES] = bounds.lo[TUNER_KNOB_LANES] = 2;
		if (i == 400)
			tuner_bounds_all(&bounds);
		s = pass(i, s, NULL);
	}
	ck_assert_uint_le(worst_in_a_row, 2); /* of the static settings within the same limits */
	end();
}
END_TEST

/* No lane above the fifth level opens, whatever the bounds said; memory above the second isn't
 * given. */
START_TEST(what_is_asked_may_not_be_given)
{
	struct tuner_settings s = tuner_settings_shipped;
	unsigned asked_again = 0;

	begin(&tuner_policy_xgboost, SIM_TENANTS);
	for (unsigned i = 0; i < trace->windows; i++) {
		struct tuner_settings wanted = pass(i, s, NULL);

		s = wanted;
		if (s.level[TUNER_KNOB_LANES] > 4)
			s.level[TUNER_KNOB_LANES] = 4;
		if (s.level[TUNER_KNOB_RESERVE] > 1)
			s.level[TUNER_KNOB_RESERVE] = 1;
		asked_again += !tuner_settings_equal(s, wanted);
	}
	ck_assert_uint_le(worst_in_a_row, 2);
	ck_assert_uint_lt(asked_again, trace->windows / 20);
	end();
}
END_TEST

START_TEST(frozen_means_still)
{
	static const uint32_t flags[] = { TUNER_WINDOW_FROZEN, TUNER_WINDOW_RESYNC,
					  TUNER_WINDOW_FAILOVER };
	struct tuner_settings s = tuner_settings_shipped, at;
	struct tuner_decision d;
	struct tuner_window w;

	begin(&tuner_policy_bandit, SIM_MIX);
	for (unsigned i = 0; i < 140; i++) {
		sim_trace_window(trace, i, s, &w);
		if (i >= 41) {
			w.flags = flags[i % 3];
			if (i == 42)
				at = s;
			if (i > 42)
				ck_assert(tuner_settings_equal(s, at));
		}
		s = tuner_step(tuner, &w, &d);
		ck_assert(i < 41 || d.action == TUNER_FREEZE);
	}
	/* Too little to judge by is as good as frozen. */
	sim_trace_window(trace, 140, s, &w);
	w.features.v[TUNER_F_OPS_PER_S] = 1;
	tuner_step(tuner, &w, &d);
	ck_assert_int_eq(d.action, TUNER_FREEZE);
	end();
}
END_TEST

/* Calls fail from the n-th on: for good, or some in a row. */
START_TEST(library_may_fail)
{
	static const unsigned at[] = { 1, 3, 20, 200, 500 }, times[] = { 1, 3, 40, 1000000 };
	struct tuner_policy_ops ops = tuner_policy_xgboost;

	ops.create = fault_policy_create;
	for (unsigned a = 0; a < 5; a++) {
		for (unsigned n = 0; n < 4; n++) {
			struct tuner_settings s = tuner_settings_shipped;

			begin(&ops, SIM_MIX);
			xgb_fault_set(at[a], times[n]);
			for (unsigned i = 0; i < trace->windows; i++)
				s = pass(i, s, NULL);
			ck_assert_uint_le(worst_in_a_row, 2);
			if (times[n] == 1000000 && at[a] <= 20) {
				ck_assert_ptr_nonnull(tuner_failure(tuner));
				ck_assert(tuner_settings_equal(s, tuner_settings_shipped));
			}
			xgb_fault_set(0, 0);
			end();
		}
	}
}
END_TEST

/* The same seed and windows, the same settings. */
START_TEST(decisions_repeat)
{
	static uint32_t first[600];

	for (int round = 0; round < 2; round++) {
		struct tuner_settings s = tuner_settings_shipped;

		begin(&tuner_policy_xgboost, SIM_SMALL);
		for (unsigned i = 0; i < 600; i++) {
			s = pass(i, s, NULL);
			if (round == 0)
				first[i] = tuner_settings_pack(s);
			else
				ck_assert_uint_eq(first[i], tuner_settings_pack(s));
		}
		end();
	}
}
END_TEST

static void lie(struct tuner_policy *p, const struct tuner_query *q, struct tuner_proposal *r)
{
	memset(r, 0, sizeof(*r));
	r->choice = q->n > 1 ? 1 + (int)(q->window % (unsigned)(q->n - 1)) : 0;
	r->prior = 10;
	r->prior_error = 0.001f;
}

/* A policy that is sure of each step, good or bad. */
START_TEST(a_policy_may_lie)
{
	struct tuner_policy_ops ops = tuner_policy_bandit;

	ops.propose = lie;
	for (int wl = 0; wl < SIM_WORKLOADS; wl++) {
		struct tuner_settings s = tuner_settings_shipped;

		begin(&ops, (enum sim_workload)wl);
		for (unsigned i = 0; i < trace->windows; i++)
			s = pass(i, s, NULL);
		ck_assert_msg(worst_in_a_row <= 2, "%s: %u",
			      sim_workload_name((enum sim_workload)wl), worst_in_a_row);
		end();
	}
}
END_TEST

/* Clients and mirrors on this machine: their CPU follows our throughput, and is no other load. */
START_TEST(own_steps_are_no_other_load)
{
	unsigned moved = 0, tried = 0, shifts = 0, phases = 0;

	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct tuner_settings s = tuner_settings_shipped;

		begin_seeded(&tuner_policy_xgboost, SIM_LOCAL, seed, seed);
		phases += trace->nphases;
		for (unsigned i = 0; i < trace->windows; i++) {
			s = pass(i, s, NULL);
			tried += last.action == TUNER_TRY;
			moved += strcmp(last.why, "the load moved meanwhile") == 0;
			shifts += strcmp(last.why, "a new load") == 0 ||
				  strcmp(last.why, "the load drifted") == 0 ||
				  strcmp(last.why, "a known load") == 0;
		}
		end();
		ck_assert_uint_le(worst_in_a_row, 2);
	}
	ck_assert_uint_gt(tried, 20);
	ck_assert_msg(moved <= tried / 20, "%u of %u trials dropped", moved, tried);
	ck_assert_msg(shifts <= phases + 4, "%u loads in %u phases", shifts, phases);
}
END_TEST

/* One load, in which one window of a hundred is spoilt by something else, beside the card's own
 * accidents: what was learnt stays, but where two of them look like a change. */
START_TEST(false_alarms_fade)
{
	struct tuner_settings s = tuner_settings_shipped, best;
	unsigned alarms = 0, forgotten = 0;
	struct tuner_window w;

	begin(&tuner_policy_xgboost, SIM_MIX);
	for (unsigned i = 0; i < 2000; i++) {
		sim_trace_window(trace, i % trace->phase[0].windows, s, &w);
		w.index = i;
		if (i % 97 == 96)
			w.features.v[TUNER_F_OPS_PER_S] *= 0.6f;
		s = tuner_step(tuner, &w, &last);
		alarms += strcmp(last.why, "much worse than expected") == 0;
		forgotten += strstr(last.why, "no longer holds") != NULL;
		best = s;
	}
	end();
	ck_assert_uint_gt(alarms, 6);
	ck_assert_msg(forgotten <= 1, "forgotten after %u of %u alarms", forgotten, alarms);
	ck_assert(!tuner_settings_equal(best, tuner_settings_shipped));
}
END_TEST

/* A trial that is rolled back has cost something; static settings give nothing away. Not an audit
 * in a load that was just met: nothing is known of that. */
START_TEST(what_is_given_away_is_counted)
{
	static const struct tuner_policy_ops *const policies[] = { &tuner_policy_static,
								   &tuner_policy_xgboost };
	double sum[2] = { 0 }, of_trials = 0, trial = 0;
	bool tries = false;

	for (int p = 0; p < 2; p++) {
		struct tuner_settings s = tuner_settings_shipped;

		begin(policies[p], SIM_MIX);
		for (unsigned i = 0; i < trace->windows; i++) {
			s = pass(i, s, NULL);
			ck_assert_double_ge(last.regret, 0);
			sum[p] += last.regret;
			if (last.action == TUNER_TRY || last.action == TUNER_AUDIT) {
				trial = 0;
				tries = last.action == TUNER_TRY;
			} else {
				trial += last.regret;
			}
			if (tries && last.action == TUNER_ROLLBACK && last.gain < -0.05) {
				ck_assert_double_gt(trial, 0.03);
				of_trials += trial;
			}
		}
		end();
	}
	ck_assert_double_eq(sum[0], 0);
	ck_assert_double_gt(of_trials, 0.1);
}
END_TEST

/* A burst that is forecast finds lanes and memory ready; unless nothing is to be forecast. */
START_TEST(bursts_are_prepared_for)
{
	unsigned grown[2] = { 0 };

	for (int forecast = 0; forecast < 2; forecast++) {
		for (uint64_t seed = 1; seed <= 6; seed++) {
			struct tuner_settings s = tuner_settings_shipped;

			begin_forecast = forecast;
			begin_seeded(&tuner_policy_xgboost, SIM_BURST, seed, seed);
			for (unsigned i = 0; i < trace->windows; i++) {
				uint8_t was[TUNER_KNOBS];

				memcpy(was, s.level, sizeof(was));
				s = pass(i, s, NULL);
				if (last.action != TUNER_GROW)
					continue;
				grown[forecast]++;
				ck_assert(s.level[TUNER_KNOB_LANES] > was[TUNER_KNOB_LANES] ||
					  s.level[TUNER_KNOB_RESERVE] > was[TUNER_KNOB_RESERVE]);
				ck_assert_uint_eq(s.level[TUNER_KNOB_BATCH], was[TUNER_KNOB_BATCH]);
			}
			end();
			ck_assert_uint_le(worst_in_a_row, 2);
		}
	}
	begin_forecast = true;
	ck_assert_uint_eq(grown[0], 0);
	ck_assert_uint_gt(grown[1], 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tuner harm");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, rewards_may_be_wrong_or_noisy);
	tcase_add_test(t, load_may_flip_each_window);
	tcase_add_test(t, a_load_may_pass_for_a_known_one);
	tcase_add_test(t, limits_may_tighten);
	tcase_add_test(t, what_is_asked_may_not_be_given);
	tcase_add_test(t, frozen_means_still);
	tcase_add_test(t, frozen_beats_a_load_that_flips);
	tcase_add_test(t, library_may_fail);
	tcase_add_test(t, a_policy_may_lie);
	tcase_add_test(t, decisions_repeat);
	tcase_add_test(t, own_steps_are_no_other_load);
	tcase_add_test(t, false_alarms_fade);
	tcase_add_test(t, what_is_given_away_is_counted);
	tcase_add_test(t, bursts_are_prepared_for);
	suite_add_tcase(s, t);
	return unit_run(s);
}
