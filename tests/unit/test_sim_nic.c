/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated card: each cost that sim_params.h has a source for shows where it should, and
 * nowhere else; no result breaks the laws that hold for any network of queues; traces are a
 * function of their seed, with the noise that is stated.
 */
#include "tests/unit/unit_main.h"
#include "tuner/rng.h"
#include "tuner/sim_nic.h"
#include "tuner/sim_params.h"
#include "tuner/sim_work.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#define LANES TUNER_KNOB_LANES
#define POLL TUNER_KNOB_POLL
#define BATCH TUNER_KNOB_BATCH

static struct sim_load load;
static struct tuner_settings s;

static void setup(void)
{
	load = (struct sim_load){ .clients = 64, .bytes = 1024, .spread = 1, .mirrors = 2,
				  .cores = 16, .other_cores = 1, .live_mib = 256 };
	s = (struct tuner_settings){ { 2, 1, 1, 0 } };
}

static struct sim_result run(void)
{
	struct sim_result r;

	sim_nic_run(&load, s, &r);
	return r;
}

static double ops_at(enum tuner_knob knob, uint8_t level)
{
	struct tuner_settings was = s;
	double ops;

	s.level[knob] = level;
	ops = run().ops_per_s;
	s = was;
	return ops;
}

START_TEST(one_record_takes_what_its_parts_take)
{
	struct sim_result r;
	double least = SIM_WIRE_RTT_NS + SIM_PCIE_READ_NS + SIM_APPEND_NS + SIM_OP_CPU_NS;

	load.clients = 1;
	load.bytes = 64;
	load.mirrors = 1;
	load.live_mib = 1;
	s = (struct tuner_settings){ { 0, 2, 0, 0 } }; /* spins, one lane, no batches */
	r = run();
	ck_assert_double_ge(r.commit_ns, least);
	ck_assert_double_le(r.commit_ns, 3 * least);
	ck_assert_double_eq_tol(r.ops_per_s * r.commit_ns / 1e9, 1, 0.05); /* Little's law */
	ck_assert_double_lt(r.mtt_miss + r.qp_miss, 1e-9);
}
END_TEST

/* Thousands of connections push each other out of the card's memory, the sooner the less each is
 * used. */
START_TEST(many_connections_miss_the_cache)
{
	struct sim_result alone = run(), crowded;

	load.idle_qps = 16000;
	load.idle_rate = 4e6;
	crowded = run();
	ck_assert_double_lt(alone.qp_miss, 0.01);
	ck_assert_double_gt(crowded.mtt_miss, 0.1);
	ck_assert_double_lt(crowded.ops_per_s, alone.ops_per_s);
	s.level[LANES] = 1;
	alone = run();
	s.level[LANES] = 6;
	crowded = run();
	ck_assert_double_gt(crowded.qp_miss, alone.qp_miss); /* each of them is used less often */
}
END_TEST

START_TEST(batches_share_appends_and_doorbells)
{
	load.bytes = 128;
	load.clients = 200;
	/* The commit leader is what is busy: an append and a doorbell a record, or for 16. */
	ck_assert_double_le(ops_at(BATCH, 0),
			    1e9 / (SIM_APPEND_NS + load.mirrors * SIM_DOORBELL_NS));
	ck_assert_double_gt(ops_at(BATCH, 2), 2 * ops_at(BATCH, 0));
	load.clients = 1; /* there is nobody to share with */
	ck_assert_double_eq_tol(ops_at(BATCH, 2) / ops_at(BATCH, 0), 1, 0.01);
}
END_TEST

/* A connection is served by one unit of the card at a time: where translations miss, it is what
 * limits one lane. */
START_TEST(a_lane_a_unit)
{
	double unit_ns = 2 * SIM_WQE_NIC_NS + SIM_PACKET_NIC_NS;

	load.clients = 200;
	load.mirrors = 1;
	load.live_mib = 8192;
	s.level[BATCH] = 3;
	ck_assert_double_le(ops_at(LANES, 0), 1e9 / unit_ns);
	ck_assert_double_gt(ops_at(LANES, 2), 1.2 * ops_at(LANES, 0));
	/* Beyond the card's units there is little left to gain. */
	ck_assert_double_lt(ops_at(LANES, 6), 1.1 * ops_at(LANES, 4));
}
END_TEST

/* However far apart sizes are: that makes queues longer, not a full link slower. */
START_TEST(the_link_has_its_rate)
{
	load.bytes = 65536;
	load.clients = 256;
	load.mirrors = 1;
	load.cores = 32;
	s.level[LANES] = 4;
	for (int spread = 0; spread <= 4; spread++) {
		double wire;

		load.spread = spread;
		wire = run().ops_per_s * load.bytes / SIM_LINK_BYTES_PER_S;
		ck_assert_double_le(wire, 1);
		ck_assert_msg(wire > 0.9, "spread %d: %.2f of the link", spread, wire);
	}
}
END_TEST

START_TEST(a_full_link_is_shared_by_connection)
{
	double few, many;

	load.bytes = 65536;
	load.clients = 256;
	load.mirrors = 1;
	load.bulk_qps = 20;
	s.level[LANES] = 3; /* 10 of 30 */
	few = run().ops_per_s * load.bytes / SIM_LINK_BYTES_PER_S;
	s.level[LANES] = 6; /* 40 of 60 */
	many = run().ops_per_s * load.bytes / SIM_LINK_BYTES_PER_S;
	ck_assert_double_eq_tol(few, 1.0 / 3, 0.05);
	ck_assert_double_eq_tol(many, 2.0 / 3, 0.1);
}
END_TEST

START_TEST(spread_sizes_wait_longer)
{
	struct sim_result even, spread;

	load.bytes = 16384;
	load.clients = 12;
	load.spread = 0;
	even = run();
	load.spread = 4;
	spread = run();
	ck_assert_double_gt(spread.commit_ns, 1.05 * even.commit_ns);
	ck_assert_double_lt(spread.ops_per_s, even.ops_per_s);
}
END_TEST

START_TEST(sleeping_costs_a_wake_up_spinning_a_core)
{
	struct sim_result asleep, spins;

	load.clients = 1;
	s.level[POLL] = 0;
	asleep = run();
	s.level[POLL] = 2;
	spins = run();
	ck_assert_double_gt(asleep.commit_ns - spins.commit_ns, SIM_WAKE_NS);
	ck_assert_double_gt(spins.cpu_cores, asleep.cpu_cores + 0.5);
	/* Where other programs leave no processor, who spins takes it from the work. */
	load.clients = 64;
	load.cores = 4;
	load.other_cores = 3;
	ck_assert_double_gt(ops_at(POLL, 0), ops_at(POLL, 2));
}
END_TEST

START_TEST(memory_that_is_not_ready_is_waited_for)
{
	struct sim_result r;
	double ready;

	load.bytes = 16384;
	load.fresh_mib = 128;
	load.cores = 2; /* which registering takes */
	r = run();
	ck_assert_double_eq_tol(r.region_miss, exp(-0.5), 1e-6);
	s.level[TUNER_KNOB_RESERVE] = 4;
	ready = run().ops_per_s;
	ck_assert_double_gt(ready, r.ops_per_s);
	load.fresh_mib = 0;
	ck_assert_double_eq(run().region_miss, 0);
}
END_TEST

/* Any load under any settings. */
START_TEST(no_law_is_broken)
{
	struct rng r = { 11 };

	for (unsigned i = 0; i < 2000; i++) {
		struct sim_result res;
		double wire;

		load.clients = 1 + rng_below(&r, 256);
		load.bytes = exp(rng_between(&r, log(64), log(262144)));
		load.spread = rng_between(&r, 0, 4);
		load.mirrors = 1 + rng_below(&r, 2);
		load.cores = 2 + rng_below(&r, 31);
		load.other_cores = load.cores * rng_unit(&r);
		load.bulk_qps = i % 3 == 1 ? rng_between(&r, 1, 40) : 0;
		load.idle_qps = i % 3 == 2 ? 10000 : 0;
		load.idle_rate = i % 3 == 2 ? 3e6 : 0;
		for (int k = 0; k < TUNER_KNOBS; k++)
			s.level[k] = (uint8_t)rng_below(&r,
							tuner_knob_levels((enum tuner_knob)k));
		res = run();
		wire = res.ops_per_s * load.bytes * load.mirrors;
		ck_assert(isfinite(res.ops_per_s) && res.ops_per_s > 0);
		ck_assert_double_le(wire, 1.02 * SIM_LINK_BYTES_PER_S);
		ck_assert_double_ge(res.commit_ns, res.rtt_ns);
		ck_assert_double_ge(res.rtt_ns, SIM_WIRE_RTT_NS);
		ck_assert_double_gt(res.cpu_cores, 0);
		/* No more under way than there are clients. */
		ck_assert_double_le(res.ops_per_s * res.commit_ns / 1e9, 1.1 * load.clients);
		ck_assert(res.qp_miss >= 0 && res.qp_miss <= 1 && res.mtt_miss >= 0 &&
			  res.mtt_miss <= 1);
	}
}
END_TEST

START_TEST(a_seed_is_a_trace)
{
	struct tuner_settings fixed = tuner_settings_shipped;
	struct sim_trace *a, *b, *c;
	unsigned differ = 0;

	ck_assert_int_eq(sim_trace_create(SIM_MIX, 5, false, &a), 0);
	ck_assert_int_eq(sim_trace_create(SIM_MIX, 5, false, &b), 0);
	ck_assert_int_eq(sim_trace_create(SIM_MIX, 6, false, &c), 0);
	ck_assert_uint_eq(a->windows, b->windows);
	for (unsigned i = 0; i < a->windows; i++) {
		struct tuner_window x, y;

		sim_trace_window(a, i, fixed, &x);
		sim_trace_window(b, i, fixed, &y);
		ck_assert_mem_eq(&x.features, &y.features, sizeof(x.features));
		ck_assert_double_eq(sim_trace_throughput(a, i, fixed),
				    sim_trace_throughput(b, i, fixed));
		differ += i < c->windows && a->noise[i] != c->noise[i];
	}
	ck_assert_uint_gt(differ, a->windows / 2);
	sim_trace_destroy(a);
	sim_trace_destroy(b);
	sim_trace_destroy(c);
}
END_TEST

static int by_value(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

/* Deciles of the logarithm, whose middle four fifths the rare hiccups hardly reach; and how many
 * hiccups there are. */
START_TEST(noise_is_as_stated)
{
	static float all[20 * 2000];
	double sigma = sqrt(SIM_NOISE * SIM_NOISE + SIM_NOISE_SLOW * SIM_NOISE_SLOW), spread;
	unsigned n = 0, low = 0;

	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct sim_trace *t;

		ck_assert_int_eq(sim_trace_create(SIM_SMALL, seed, false, &t), 0);
		for (unsigned i = 0; i < t->windows; i++)
			all[n++] = t->noise[i];
		sim_trace_destroy(t);
	}
	qsort(all, n, sizeof(*all), by_value);
	spread = log((double)all[n * 9 / 10] / (double)all[n / 10]) / (2 * 1.2816);
	ck_assert_double_eq_tol(spread, sigma, 0.06 * sigma);
	ck_assert_double_eq_tol((double)all[n / 2], 1, 0.01);
	while (low < n && all[low] < 1 - 5 * sigma)
		low++;
	/* Three quarters of the hiccups are that low. */
	ck_assert_double_gt(low, 0.4 * SIM_HICCUP_SHARE * n);
	ck_assert_double_lt(low, 1.5 * SIM_HICCUP_SHARE * n);
}
END_TEST

static double cpu_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

START_TEST(thousands_of_windows_a_second)
{
	struct sim_trace *t;
	struct tuner_window w;
	double begin;

	ck_assert_int_eq(sim_trace_create(SIM_DRIFT, 1, false, &t), 0);
	begin = cpu_s();
	for (unsigned i = 0; i < t->windows; i++)
		sim_trace_window(t, i, tuner_settings_shipped, &w);
	ck_assert_double_gt(t->windows / (cpu_s() - begin),
			    (UNIT_SANITIZED ? 200 : 2000) / unit_patience());
	sim_trace_destroy(t);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sim_nic");
	TCase *c = tcase_create("all");

	tcase_set_timeout(c, 120); /* on a machine that others use */
	tcase_add_checked_fixture(c, setup, NULL);
	tcase_add_test(c, one_record_takes_what_its_parts_take);
	tcase_add_test(c, many_connections_miss_the_cache);
	tcase_add_test(c, batches_share_appends_and_doorbells);
	tcase_add_test(c, a_lane_a_unit);
	tcase_add_test(c, the_link_has_its_rate);
	tcase_add_test(c, a_full_link_is_shared_by_connection);
	tcase_add_test(c, spread_sizes_wait_longer);
	tcase_add_test(c, sleeping_costs_a_wake_up_spinning_a_core);
	tcase_add_test(c, memory_that_is_not_ready_is_waited_for);
	tcase_add_test(c, no_law_is_broken);
	tcase_add_test(c, a_seed_is_a_trace);
	tcase_add_test(c, noise_is_as_stated);
	tcase_add_test(c, thousands_of_windows_a_second);
	suite_add_tcase(suite, c);
	return unit_run(suite);
}
