/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must not harm, on the real data path (harm_rig.h): lies about the reward, loads that flip,
 * memory and lanes that can't be had, models and libraries that fail. In each, settings stay within
 * bounds, no put fails, the mirror stays, the stores are equal at the end, and throughput is back
 * two windows after the disturbance ended: HARM_BACK of the static settings', in at least half of
 * the rounds. KVFS_TEST_LONG=1: each case over each transport.
 */
#include "tests/unit/harm_rig.h"
#include "tests/unit/xgb_fault.h"
#include "tuner/model_file.h"
#include "tuner/policy_xgboost.h"

#include <errno.h>
#include <fcntl.h>

/* A device whose doorbell is dear: what a batch of one costs shows over any noise. */
static const struct transport_fault_plan dear = { .seed = 1, .post_ns = 200 * NSEC_PER_USEC };
static const struct node_media faulty = { .transport = &transport_fault_ops };

/* Of two variants over two transports, the first two show each of them once. */
static const enum addr_kind kinds[] = { ADDR_TCP, ADDR_SHM };

static unsigned variant_of(int i)
{
	return (unsigned)(i + i / 2) % 2;
}

static void open_faulty(enum addr_kind kind, const struct transport_fault_plan *plan)
{
	transport_fault_use(transport_for(kind), plan);
	harm_open(kind, &faulty);
}

/* A policy that is sure of one step, always. */
static unsigned eager_move;

static void eager_propose(struct tuner_policy *p, const struct tuner_query *q,
			  struct tuner_proposal *r)
{
	struct tuner_bounds all;
	struct tuner_settings to;

	(void)p;
	memset(r, 0, sizeof(*r));
	r->prior = 10;
	r->prior_error = 0.001f;
	tuner_bounds_all(&all);
	if (!tuner_settings_move(q->now, eager_move, &all, &to))
		return;
	for (int i = 1; i < q->n; i++)
		if (tuner_settings_equal(q->candidate[i], to))
			r->choice = i;
}

static struct tuner_policy_ops eager_ops(unsigned move)
{
	struct tuner_policy_ops ops = tuner_policy_bandit;

	ops.name = "eager";
	ops.propose = eager_propose;
	eager_move = move;
	return ops;
}

#define RAISE(knob) (2U * (knob))
#define LOWER(knob) (2U * (knob) + 1)

static double lie_rate;

/* The smaller the batch, the better it looks: each half by 0.3 of lie_rate. */
static double wrong(double rate, const struct primary_knobs *knobs, uint64_t reserve_bytes)
{
	(void)rate;
	(void)reserve_bytes;
	return lie_rate * (1 + 0.3 * log2((double)PRIMARY_BATCH_MAX / knobs->batch));
}

static double noisy(double rate, const struct primary_knobs *knobs, uint64_t reserve_bytes)
{
	(void)knobs;
	(void)reserve_bytes;
	return rate * exp(4 * (harm_unit() - 0.5) + 4 * (harm_unit() - 0.5));
}

static unsigned batch_of(unsigned window)
{
	unsigned batch;

	pthread_mutex_lock(&harm.lock);
	batch = harm.window[window].knobs.batch;
	pthread_mutex_unlock(&harm.lock);
	return batch;
}

/* The bar of this file can be missed: by the settings that lies lead to. */
START_TEST(the_bar_tells_harm)
{
	struct tuner_settings worst;
	unsigned round = 0, missed = 0;

	open_faulty(kinds[_i], &dear);
	harm_tuner_start(&tuner_policy_static, false);
	worst = node_tuner_static(harm.node);
	worst.level[TUNER_KNOB_BATCH] = 0;
	do {
		ck_assert_uint_lt(round, HARM_ROUNDS * unit_patience());
		tuner_loop_set(node_tuner_loop(harm.node), worst);
		missed += harm_share() < HARM_BACK;
		round++;
	} while (2 * missed <= round); /* more often than not */
	harm_close();
}
END_TEST

/* Wrong rewards lead a policy that is sure of itself to the worst it can reach. Then they are right
 * again, and look much worse than what was learnt, or much better. */
START_TEST(wrong_rewards)
{
	static const double looks[] = { 10, 0.05 };
	struct tuner_policy_ops ops = eager_ops(LOWER(TUNER_KNOB_BATCH));
	struct harm_rounds rounds = { 0 };
	double share;

	open_faulty(kinds[_i % 2], &dear);
	harm.lies = wrong;
	harm_tuner_start(&ops, false);
	do {
		unsigned tries = 0;

		lie_rate = looks[variant_of(_i)] * harm_static_rate();
		atomic_store(&harm.lie, true);
		while (batch_of(harm_wait(1)) > 4) /* else nothing is shown */
			ck_assert_uint_lt(tries++, 200 * unit_patience());
		atomic_store(&harm.lie, false);
		share = harm_share();
	} while (!harm_is_back(&rounds, share));
	harm_close();
}
END_TEST

/* Rewards of pure noise, and now and then none, or nonsense, of anything else. */
START_TEST(noisy_rewards)
{
	static const struct tuner_policy_ops *const policies[] = {
		&tuner_policy_xgboost, &tuner_policy_bandit, &tuner_policy_qlearning,
	};

	harm_open(kinds[!_i], NULL);
	harm.lies = noisy;
	harm.garbage = true;
	for (unsigned p = 0; p < 3; p++) {
		struct harm_rounds rounds = { 0 };

		harm_tuner_start(policies[p], false);
		do {
			atomic_store(&harm.lie, true);
			harm_wait(40);
			atomic_store(&harm.lie, false);
		} while (!harm_is_back(&rounds, harm_share()));
		node_tuner_stop(harm.node);
	}
	harm_close();
}
END_TEST

/* Another load each window. Both have their share of what they get with static settings. */
START_TEST(load_flips_each_window)
{
	static const unsigned windows = 2 * HARM_MEASURED;
	struct harm_rounds rounds[2] = { 0 };
	double share[2];
	bool back;

	harm_open(kinds[_i], NULL);
	harm_tuner_start(&tuner_policy_xgboost, false);
	do {
		unsigned tuned, at_static;

		atomic_store(&harm.flip, true);
		harm_wait(20);
		tuned = harm_wait(windows);
		tuner_loop_set(node_tuner_loop(harm.node), node_tuner_static(harm.node));
		harm_wait(2);
		at_static = harm_wait(windows);
		at_static += (at_static - tuned) % 2; /* of the same load */
		harm_wait(1);
		tuner_loop_freeze(node_tuner_loop(harm.node), false);
		for (unsigned i = 0; i < 2; i++)
			share[i] = harm_median(tuned + i, HARM_MEASURED, 2) /
				   harm_median(at_static + i, HARM_MEASURED, 2);
		if (getenv("KVFS_TEST_VERBOSE"))
			fprintf(stderr, "shares %.2f %.2f\n", share[0], share[1]);
		back = harm_is_back(&rounds[0], share[0]);
		back &= harm_is_back(&rounds[1], share[1]);
	} while (!back);
	atomic_store(&harm.flip, false);
	harm_set_load(HARM_CLIENTS, 256);
	harm_close();
}
END_TEST

/* Memory of the machine that ends. */
static _Atomic uint64_t given_bytes, given_most;
static _Atomic unsigned refusals;

static int limited_commit(void *be, uint64_t off, uint64_t len)
{
	int err;

	if (atomic_load(&given_bytes) + len > atomic_load(&given_most)) {
		atomic_fetch_add(&refusals, 1);
		return -ENOMEM;
	}
	err = region_memfd_ops.commit(be, off, len);
	if (!err)
		atomic_fetch_add(&given_bytes, len);
	return err;
}

static void limited_decommit(void *be, uint64_t off, uint64_t len)
{
	region_memfd_ops.decommit(be, off, len);
	atomic_fetch_sub(&given_bytes, len);
}

/* More memory looks better, so the reserve is raised to where there is none. */
static double memory_is_good(double rate, const struct primary_knobs *knobs, uint64_t reserve_bytes)
{
	(void)rate;
	(void)knobs;
	return 1000 * (1 + 0.5 * (double)(reserve_bytes >> 26));
}

static unsigned reserve_top(void)
{
	struct tuner_bounds b;

	node_tuner_bounds(harm.node, &b);
	return b.hi[TUNER_KNOB_RESERVE];
}

/* The raise has been tried and taken back; from then on none is allowed for a minute. */
static void wait_for_refusal(void)
{
	unsigned own = node_tuner_static(harm.node).level[TUNER_KNOB_RESERVE], tries = 0;

	atomic_store(&harm.lie, true);
	while (atomic_load(&refusals) == 0) {
		harm_wait(1);
		ck_assert_msg(++tries < 300 * unit_patience(), "the reserve was never raised");
	}
	harm_wait(2);
	ck_assert_uint_eq(reserve_top(), own);
	atomic_store(&harm.lie, false);
}

START_TEST(memory_ends_while_the_reserve_is_raised)
{
	struct region_backend_ops limited = region_memfd_ops;
	struct node_media media = { .memory = &limited };
	struct tuner_policy_ops ops = eager_ops(RAISE(TUNER_KNOB_RESERVE));
	struct harm_rounds rounds = { 0 };
	uint64_t own;

	limited.name = "limited";
	limited.commit = limited_commit;
	limited.decommit = limited_decommit;
	atomic_store(&given_bytes, 0);
	atomic_store(&given_most, UINT64_MAX);
	atomic_store(&refusals, 0);
	harm_open(kinds[!_i], &media);
	own = harm.popt.mr_cache_bytes;
	harm.lies = memory_is_good;
	/* Room for the reserve of now, and what two loads of the largest values take. */
	atomic_store(&given_most, own + 2 * HARM_CLIENTS * HARM_KEYS * HARM_BYTES_MAX);
	harm_tuner_start(&ops, false);
	do {
		wait_for_refusal();
		harm_set_load(HARM_CLIENTS, HARM_BYTES_MAX); /* takes regions now */
		harm_wait(10);
		pthread_mutex_lock(&harm.lock);
		ck_assert_uint_le(harm.window[harm.windows - 1].reserve_bytes, own);
		pthread_mutex_unlock(&harm.lock);
		harm_set_load(HARM_CLIENTS, 256);
		harm_wait(5);
	} while (!harm_is_back(&rounds, harm_share()));
	harm_close();
}
END_TEST

/* RLIMIT_MEMLOCK as a device sees it: the next registration gets ENOMEM. */
static int memlock_add(void *ctx, void *base, size_t len, void **ret_handle)
{
	(void)ctx;
	if (atomic_load(&given_bytes) + len > atomic_load(&given_most)) {
		atomic_fetch_add(&refusals, 1);
		return -ENOMEM;
	}
	atomic_fetch_add(&given_bytes, len);
	*ret_handle = base;
	return 0;
}

static void memlock_remove(void *ctx, void *handle)
{
	(void)ctx;
	(void)handle;
	atomic_fetch_sub(&given_bytes, REGION_BYTES);
}

START_TEST(memlock_forbids_the_next_region)
{
	static const struct region_registrar_ops memlock = { .add = memlock_add,
							     .remove = memlock_remove };
	struct tuner_policy_ops ops = eager_ops(RAISE(TUNER_KNOB_RESERVE));
	struct harm_rounds rounds = { 0 };
	struct region_stats stats;
	unsigned tries = 0;

	atomic_store(&given_bytes, 0);
	atomic_store(&given_most, UINT64_MAX);
	atomic_store(&refusals, 0);
	harm_open(kinds[_i], NULL);
	harm.lies = memory_is_good;
	region_pool_set_registrar(harm.node->regions, &memlock, NULL);
	harm_tuner_start(&ops, false);
	do { /* what is there is registered, and one region more fits */
		harm_wait(5);
		region_pool_stats(harm.node->regions, &stats);
		ck_assert_uint_lt(++tries, 100 * unit_patience());
	} while (stats.registered_bytes < stats.ready_bytes + stats.used_bytes);
	atomic_store(&given_most, stats.registered_bytes + REGION_BYTES);
	do {
		wait_for_refusal();
		harm_set_load(HARM_CLIENTS, HARM_BYTES_MAX);
		harm_wait(10);
		harm_set_load(HARM_CLIENTS, 256);
		harm_wait(5);
	} while (!harm_is_back(&rounds, harm_share()));
	region_pool_set_registrar(harm.node->regions, NULL, NULL);
	harm_close();
}
END_TEST

/* A lane that was to be opened ahead, or even one that is used, can't be opened: there is a mirror
 * all the same, and nobody wants more lanes than there are. */
START_TEST(lanes_cannot_be_opened)
{
	struct transport_fault_plan plan = { .seed = 1, .lanes_max = 1 + variant_of(_i) };
	struct tuner_policy_ops ops = eager_ops(RAISE(TUNER_KNOB_LANES));
	struct tuner_bounds b;
	struct harm_rounds rounds = { 0 };
	struct link_stats link;

	open_faulty(kinds[_i % 2], &plan);
	primary_stats(harm.node->primary, &link, 1);
	ck_assert_uint_eq(link.lanes, plan.lanes_max);
	harm_tuner_start(&ops, false);
	node_tuner_bounds(harm.node, &b);
	ck_assert_uint_eq(tuner_knob_value(TUNER_KNOB_LANES, b.hi[TUNER_KNOB_LANES]),
			  plan.lanes_max);
	harm.lanes_most = plan.lanes_max;
	do
		harm_wait(30);
	while (!harm_is_back(&rounds, harm_share()));
	harm_close();
}
END_TEST

/* A file that is no model, and one that is well formed around random bytes. */
START_TEST(model_of_random_bytes)
{
	struct harm_rounds rounds = { 0 };
	char path[PATH_MAX];
	uint8_t bytes[4096];
	FILE *f;

	harm_open(ADDR_SHM, NULL);
	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)bench_random(&harm.random);
	if (_i == 0) {
		bench_site_volume(&harm.site, "primary/" MODEL_FILE_NAME, path);
		f = fopen(path, "w");
		ck_assert_ptr_nonnull(f);
		ck_assert_uint_eq(fwrite(bytes, 1, sizeof(bytes), f), sizeof(bytes));
		ck_assert_int_eq(fclose(f), 0);
	} else {
		struct model_file_kind kind = { .columns = XGBOOST_COLUMNS };
		struct node_tuner_machine machine;

		node_tuner_machine_open(&machine, "", NULL);
		kind.conditions = node_tuner_conditions(harm.node, machine.cpus);
		ck_assert_int_eq(model_file_save(harm.node->vol->dirfd, kind, bytes, sizeof(bytes)),
				 0);
	}
	harm_tuner_start(&tuner_policy_xgboost, true);
	do
		harm_wait(30);
	while (!harm_is_back(&rounds, harm_share()));
	pthread_mutex_lock(&harm.lock);
	ck_assert_ptr_nonnull(strstr(harm.report, "is not used"));
	pthread_mutex_unlock(&harm.lock);
	harm_close();
}
END_TEST

static int fault_policy_create(uint64_t seed, struct tuner_policy **ret_policy)
{
	return policy_xgboost_create(&xgb_fault_api, seed, ret_policy);
}

/* XGBoost's first call fails, its second, … and all from the first, the third, … on. */
START_TEST(library_calls_fail_one_after_another)
{
	struct tuner_policy_ops ops = tuner_policy_xgboost;
	unsigned failed = 0;

	ops.create = fault_policy_create;
	harm_open(kinds[!_i], NULL);
	for (unsigned at = 1; at <= 12; at++) {
		bool for_good = at % 4 == 1;
		struct harm_rounds rounds = { 0 };
		struct tuner_loop_state state;

		xgb_fault_set(at, for_good ? UINT_MAX : 1);
		harm_tuner_start(&ops, false);
		if (for_good) { /* until it gives up */
			unsigned tries = 0;

			do {
				harm_wait(10);
				tuner_loop_state(node_tuner_loop(harm.node), &state);
			} while (!state.failure && ++tries < 40);
			failed += state.failure != NULL;
			while (!harm_is_back(&rounds, harm_share()))
				;
		} else {
			harm_wait(15);
		}
		node_tuner_stop(harm.node);
	}
	xgb_fault_set(0, 0);
	harm_close();
	ck_assert_uint_gt(failed, 0);
}
END_TEST

static TCase *tcase_of(Suite *s, const char *name)
{
	TCase *t = tcase_create(name);

	tcase_set_timeout(t, 120 * unit_patience());
	suite_add_tcase(s, t);
	return t;
}

int main(void)
{
	Suite *s = suite_create("tuner harm, engine");
	TCase *rewards = tcase_of(s, "rewards"), *loads = tcase_of(s, "loads");
	TCase *limits = tcase_of(s, "limits"), *model = tcase_of(s, "model");
	int half = unit_long() ? 2 : 1;

	tcase_add_loop_test(rewards, the_bar_tells_harm, 0, half);
	tcase_add_loop_test(rewards, wrong_rewards, 0, 2 * half);
	tcase_add_loop_test(rewards, noisy_rewards, 0, half);
	tcase_add_loop_test(loads, load_flips_each_window, 0, half);
	tcase_add_loop_test(limits, memory_ends_while_the_reserve_is_raised, 0, half);
	tcase_add_loop_test(limits, memlock_forbids_the_next_region, 0, half);
	tcase_add_loop_test(limits, lanes_cannot_be_opened, 0, 2 * half);
	tcase_add_loop_test(model, model_of_random_bytes, 0, 2);
	tcase_add_loop_test(model, library_calls_fail_one_after_another, 0, half);
	return unit_run(s);
}
