/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges tuner policies on the simulated NIC: nine workloads, seeds, all policies, the same noise
 * for each.
 *   tuner_judge [--full] [--seeds N] [--policy NAME] [--workload NAME] [--verbose]   the table
 *           [--minutes N]                    of the seeds that fit into so many
 *           [--held-out]                     of the workloads that nothing was chosen by
 *           [--warm TRACES]                  with a model from so many other traces of those
 *           [--bars]                         exits 1 when a bar is missed, too
 *   tuner_judge --default                    the best single setting over a mix of loads
 * Exits 1 when a policy is harmful, or XGBoost's share of the best of each phase is not above that
 * of the static settings. Without --full: two seeds and short phases. With it: 20 seeds; says of
 * each bar whether XGBoost meets it, and with --bars exits 1 when it misses one; each verdict goes
 * to stderr as it comes.
 */
#include "tuner/sim_work.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SETTLE 60
#define SEEDS_MAX 64
#define CONTENDERS 7
#define BAD 0.8

/* Of one trace under one policy. */
struct verdict {
	/* Mean over phases of the share of the phase's best static setting, after SETTLE. */
	double phase_share;
	double worst_phase; /* the least of those */
	double to_default, to_best_static, oracle;
	unsigned bad_in_a_row;
	double us_per_window;
};

struct sweep {
	double phase_best[SIM_PHASES_MAX];
	double trace_best, trace_default;
	double trace_oracle; /* each load at its own best setting from its first window on */
};

/* What is judged: a policy. All have the bounds and the static settings of a mount over RDMA
 * (tuner_settings_shipped) but for "few" and "few-xgb", which begin with as few lanes as over tcp;
 * all are compared with the mount that never moves. */
#define FEW_LANES 2
enum { STATIC, BANDIT, XGBOOST };
static const struct contender {
	const char *name;
	const struct tuner_policy_ops *policy;
	bool no_forecast, few;
	bool extra; /* only with --full, or by name */
} contenders[CONTENDERS] = {
	[STATIC] = { "static", &tuner_policy_static, false, false, false },
	[BANDIT] = { "bandit", &tuner_policy_bandit, false, false, false },
	[XGBOOST] = { "xgboost", &tuner_policy_xgboost, false, false, false },
	{ "qlearning", &tuner_policy_qlearning, false, false, false },
	{ "xgb-blind", &tuner_policy_xgboost, true, false, true }, /* without a forecast */
	{ "few", &tuner_policy_static, false, true, true },
	{ "few-xgb", &tuner_policy_xgboost, false, true, true },
};

static struct verdict verdicts[CONTENDERS][SIM_WORKLOADS_ALL][SEEDS_MAX];

static bool next_settings(struct tuner_settings *s)
{
	for (int k = 0; k < TUNER_KNOBS; k++) {
		if (++s->level[k] < tuner_knob_levels((enum tuner_knob)k))
			return true;
		s->level[k] = 0;
	}
	return false;
}

/* Weight of each load in windows [first, last): sums of the noise. */
static void weigh(const struct sim_trace *t, unsigned first, unsigned last, double *ret_weight)
{
	memset(ret_weight, 0, SIM_LOADS_MAX * sizeof(*ret_weight));
	for (unsigned w = first; w < last; w++)
		ret_weight[t->load_of[w]] += t->noise[w];
}

static double weighted(struct sim_trace *t, const double *weight, const unsigned *window_of,
		       struct tuner_settings s)
{
	double sum = 0;

	for (unsigned l = 0; l < t->nloads; l++)
		if (weight[l] > 0)
			sum += weight[l] * sim_trace_result(t, window_of[l], s)->ops_per_s;
	return sum;
}

static void sweep_static(struct sim_trace *t, struct sweep *ret_sweep)
{
	static double weight[SIM_PHASES_MAX + 1][SIM_LOADS_MAX];
	unsigned window_of[SIM_LOADS_MAX] = { 0 };
	double load_best[SIM_LOADS_MAX] = { 0 };
	struct tuner_settings s = { { 0 } };

	memset(ret_sweep, 0, sizeof(*ret_sweep));
	for (unsigned w = 0; w < t->windows; w++)
		window_of[t->load_of[w]] = w;
	for (unsigned i = 0; i < t->nphases; i++)
		weigh(t, t->phase[i].first + SETTLE, t->phase[i].first + t->phase[i].windows,
		      weight[i]);
	weigh(t, 0, t->windows, weight[SIM_PHASES_MAX]);
	do {
		for (unsigned i = 0; i < t->nphases; i++)
			ret_sweep->phase_best[i] = fmax(ret_sweep->phase_best[i],
							weighted(t, weight[i], window_of, s));
		for (unsigned l = 0; l < t->nloads; l++)
			load_best[l] =
				fmax(load_best[l], sim_trace_result(t, window_of[l], s)->ops_per_s);
		ret_sweep->trace_best = fmax(ret_sweep->trace_best,
					     weighted(t, weight[SIM_PHASES_MAX], window_of, s));
	} while (next_settings(&s));
	for (unsigned l = 0; l < t->nloads; l++)
		ret_sweep->trace_oracle += weight[SIM_PHASES_MAX][l] * load_best[l];
	ret_sweep->trace_default =
		weighted(t, weight[SIM_PHASES_MAX], window_of, tuner_settings_shipped);
}

static bool verbose;
static void *warm_model; /* NULL: a volume that is new */
static size_t warm_len;

/* The model of a volume that has seen loads of any kind, one trace after the other. Its seeds are
 * none of those that are judged. */
static void warm_up(unsigned traces)
{
	struct tuner_settings s = tuner_settings_shipped;
	struct tuner_config config;
	struct tuner *tuner;
	uint64_t index = 0;

	tuner_config_init(&config);
	config.policy = &tuner_policy_xgboost;
	if (tuner_create(&config, &tuner))
		exit(2);
	for (unsigned i = 0; i < traces; i++) {
		struct sim_trace *t;

		if (sim_trace_create(i % 2 ? SIM_WANDER : SIM_RANDOM, SEEDS_MAX + 1 + i, false, &t))
			exit(2);
		for (unsigned w = 0; w < t->windows; w++) {
			struct tuner_decision d;
			struct tuner_window window;

			sim_trace_window(t, w, s, &window);
			tuner_bounds_shipped(&window.bounds);
			window.index = index++;
			s = tuner_step(tuner, &window, &d);
		}
		sim_trace_destroy(t);
	}
	if (tuner_model_save(tuner, &warm_model, &warm_len))
		exit(2);
	tuner_destroy(tuner);
}

static void explain(const struct sim_trace *t, unsigned w, const struct tuner_decision *d,
		    double ratio)
{
	char text[TUNER_SETTINGS_TEXT_BYTES];

	printf("%4u load %2u %-9s %-44s %5.3f gain %+.3f %s\n", w, t->load_of[w],
	       tuner_action_name(d->action), tuner_settings_format(d->before, text), ratio, d->gain,
	       d->why);
}

static void run(struct sim_trace *t, const struct contender *who, uint64_t seed,
		const struct sweep *sweep, struct verdict *ret_verdict)
{
	struct tuner_settings s = tuner_settings_shipped;
	double phase_sum[SIM_PHASES_MAX] = { 0 }, sum = 0;
	unsigned bad = 0, phase = 0;
	struct tuner_config config;
	struct tuner *tuner;
	clock_t spent = 0;

	memset(ret_verdict, 0, sizeof(*ret_verdict));
	tuner_config_init(&config);
	config.policy = who->policy;
	config.seed = seed;
	if (who->few)
		s.level[TUNER_KNOB_LANES] = tuner_knob_level(TUNER_KNOB_LANES, FEW_LANES);
	config.shipped = s;
	config.forecast = !who->no_forecast;
	if (tuner_create(&config, &tuner) ||
	    (warm_model && who->policy->load && tuner_model_load(tuner, warm_model, warm_len)))
		exit(2);
	for (unsigned w = 0; w < t->windows; w++) {
		double ops = sim_trace_throughput(t, w, s), ratio;
		struct tuner_decision d;
		struct tuner_window window;
		clock_t begin;

		ratio = ops / sim_trace_throughput(t, w, tuner_settings_shipped);
		bad = ratio < BAD ? bad + 1 : 0;
		if (bad > ret_verdict->bad_in_a_row)
			ret_verdict->bad_in_a_row = bad;
		sum += ops;
		while (w >= t->phase[phase].first + t->phase[phase].windows)
			phase++;
		if (w >= t->phase[phase].first + SETTLE)
			phase_sum[phase] += ops;
		sim_trace_window(t, w, s, &window);
		tuner_bounds_shipped(&window.bounds);
		begin = clock();
		s = tuner_step(tuner, &window, &d);
		spent += clock() - begin;
		if (verbose)
			explain(t, w, &d, ratio);
	}
	ret_verdict->worst_phase = INFINITY;
	for (unsigned i = 0; i < t->nphases; i++) {
		double share = phase_sum[i] / sweep->phase_best[i];

		ret_verdict->phase_share += share / t->nphases;
		ret_verdict->worst_phase = fmin(ret_verdict->worst_phase, share);
	}
	ret_verdict->to_default = sum / sweep->trace_default;
	ret_verdict->to_best_static = sum / sweep->trace_best;
	ret_verdict->oracle = sweep->trace_oracle / sweep->trace_default;
	ret_verdict->us_per_window = (double)spent / CLOCKS_PER_SEC * 1e6 / t->windows;
	tuner_destroy(tuner);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct summary {
	double share, share_worst, phase_worst, gain, gain_worst, best, best_worst, oracle, us;
	unsigned bad;
};

/* Over n verdicts; sorts a copy of each figure. */
static struct summary summarise(const struct verdict *v, unsigned n)
{
	struct summary s = { .phase_worst = INFINITY };
	double *x = calloc(4 * (size_t)n, sizeof(*x)), *y = x + n, *z = y + n, *o = z + n;

	if (!x)
		exit(2);
	for (unsigned i = 0; i < n; i++) {
		x[i] = v[i].phase_share;
		y[i] = v[i].to_default;
		z[i] = v[i].to_best_static;
		o[i] = v[i].oracle;
		s.us += v[i].us_per_window / n;
		s.phase_worst = fmin(s.phase_worst, v[i].worst_phase);
		s.bad = v[i].bad_in_a_row > s.bad ? v[i].bad_in_a_row : s.bad;
	}
	qsort(x, n, sizeof(*x), by_value);
	qsort(y, n, sizeof(*y), by_value);
	qsort(z, n, sizeof(*z), by_value);
	s.share = (x[n / 2] + x[(n - 1) / 2]) / 2;
	s.gain = (y[n / 2] + y[(n - 1) / 2]) / 2;
	s.best = (z[n / 2] + z[(n - 1) / 2]) / 2;
	qsort(o, n, sizeof(*o), by_value);
	s.oracle = (o[n / 2] + o[(n - 1) / 2]) / 2;
	s.share_worst = x[0];
	s.gain_worst = y[0];
	s.best_worst = z[0];
	free(x);
	return s;
}

static void print(const char *policy, const char *workload, const struct summary *s)
{
	printf("| %-9s | %-8s | %.3f / %.3f | %.3f | %.3f / %.3f | %.3f / %.3f | %.3f | %u | %.0f "
	       "|\n", policy, workload, s->share, s->share_worst, s->phase_worst, s->gain,
	       s->gain_worst, s->best, s->best_worst, s->oracle, s->bad, s->us);
}

/* The geometric mean over a grid of plausible loads: half of them without neighbours on the
 * card. */
static double mix(struct tuner_settings s)
{
	static const double sizes[] = { 256, 1024, 4096, 16384, 65536 },
			    clients[] = { 2, 8, 32, 128 };
	double sum = 0;

	for (unsigned i = 0; i < 5 * 4 * 2 * 4; i++) {
		unsigned tenant = i / 40;
		struct sim_load l = {
			.bytes = sizes[i % 5],
			.clients = clients[i / 5 % 4],
			.spread = 1,
			.mirrors = 2,
			.cores = i / 20 % 2 ? 16 : 4,
			.other_cores = i / 20 % 2 ? 4 : 1,
			.live_mib = 256,
			.idle_qps = tenant == 2 ? 8000 : 0,
			.idle_rate = tenant == 2 ? 3e6 : 0,
			.bulk_qps = tenant == 3 ? 8 : 0,
			.fresh_mib = tenant == 1 ? 64 : 0,
		};
		struct sim_result r;

		sim_nic_run(&l, s, &r);
		sum += log(r.ops_per_s);
	}
	return exp(sum / 160);
}

/* The best of all settings over the mix; same_batch: of those with the mount's, which has no option
 * for it. */
static double best_of_mix(bool same_batch, struct tuner_settings *ret_best)
{
	struct tuner_settings s = { { 0 } };
	double most = 0, ops;

	do {
		if (same_batch && s.level[TUNER_KNOB_BATCH] !=
					  tuner_settings_shipped.level[TUNER_KNOB_BATCH])
			continue;
		ops = mix(s);
		if (ops > most) {
			most = ops;
			*ret_best = s;
		}
	} while (next_settings(&s));
	return most;
}

static int find_default(void)
{
	struct tuner_settings s = { { 0 } }, best, like;
	double most = best_of_mix(false, &best), most_like = best_of_mix(true, &like), ops;
	double shipped = mix(tuner_settings_shipped);
	char text[TUNER_SETTINGS_TEXT_BYTES];

	printf("within 1.5 %% of the best, or of the best with the mount's batches:\n");
	do {
		ops = mix(s);
		if (ops > 0.985 * (s.level[TUNER_KNOB_BATCH] == like.level[TUNER_KNOB_BATCH] ?
					   most_like : most))
			printf("  %.4f %s\n", ops / most, tuner_settings_format(s, text));
	} while (next_settings(&s));
	printf("best over the mix: %s, %.0f records/s\n", tuner_settings_format(best, text), most);
	printf("best with the mount's batches: %s, %.4f of that\n",
	       tuner_settings_format(like, text), most_like / most);
	printf("shipped: %s, %.4f of that, %.4f of the best\n",
	       tuner_settings_format(tuner_settings_shipped, text), shipped / most_like,
	       shipped / most);
	return shipped < 0.99 * most_like;
}

struct options {
	bool full, held_out, bars, find_default;
	unsigned seeds, warm;
	unsigned minutes; /* 0: as long as it takes */
	const char *policy, *workload;
};

static void show_verdict(const char *name, unsigned workload, unsigned seed,
			 const struct verdict *v)
{
	fprintf(stderr, "%s %s %u %.5f %.5f %.5f %.5f %u %.0f %.5f\n", name,
		sim_workload_name((enum sim_workload)workload), seed, v->phase_share, v->to_default,
		v->to_best_static, v->oracle, v->bad_in_a_row, v->us_per_window, v->worst_phase);
}

static bool takes_part(const struct options *o, const struct contender *who)
{
	return o->policy ? strcmp(o->policy, who->name) == 0 : o->full || !who->extra;
}

static void judge_trace(const struct options *o, unsigned workload, unsigned seed)
{
	struct sim_trace *t;
	struct sweep sweep;

	if (sim_trace_create((enum sim_workload)workload, seed + 1, !o->full, &t))
		exit(2);
	sweep_static(t, &sweep);
	for (unsigned p = 0; p < CONTENDERS; p++) {
		if (!takes_part(o, &contenders[p]))
			continue;
		run(t, &contenders[p], seed + 1, &sweep, &verdicts[p][workload][seed]);
		if (o->full)
			show_verdict(contenders[p].name, workload, seed + 1,
				     &verdicts[p][workload][seed]);
	}
	sim_trace_destroy(t);
}

static bool judged(const struct options *o, unsigned workload)
{
	if (o->workload)
		return strcmp(o->workload, sim_workload_name((enum sim_workload)workload)) == 0;
	return o->held_out == (workload >= SIM_WORKLOADS && workload != SIM_LOCAL);
}

/* Seed by seed, so that what fits into the time are whole ones. */
static void judge(struct options *o)
{
	time_t begin = time(NULL);

	for (unsigned s = 0; s < o->seeds; s++) {
		if (s > 0 && o->minutes > 0 && time(NULL) - begin > 60 * (time_t)o->minutes) {
			fprintf(stderr, "%u seeds of %u in %u minutes\n", s, o->seeds, o->minutes);
			o->seeds = s;
			break;
		}
		for (unsigned w = 0; w < SIM_WORKLOADS_ALL; w++)
			if (judged(o, w))
				judge_trace(o, w, s);
	}
}

/* All traces of a policy, side by side. */
static struct summary overall(const struct options *o, unsigned policy)
{
	static struct verdict all[SIM_WORKLOADS_ALL * SEEDS_MAX];
	unsigned n = 0;

	for (unsigned w = 0; w < SIM_WORKLOADS_ALL; w++)
		for (unsigned i = 0; i < o->seeds; i++)
			if (verdicts[policy][w][i].phase_share > 0)
				all[n++] = verdicts[policy][w][i];
	return summarise(all, n);
}

/* True: one is missed. */
static bool show_bars(const struct summary *s)
{
	const struct {
		const char *what;
		double bar, is;
	} bars[] = {
		{ "of the best of phase", 0.95, s->share },
		{ "of the default", 1.17, s->gain },
		{ "of the best static setting", 1.0, s->best },
	};
	bool missed = false;

	for (unsigned i = 0; i < sizeof(bars) / sizeof(bars[0]); i++) {
		bool met = bars[i].is >= bars[i].bar; /* not a number is no pass */

		printf("bar: %.2f %s: %s, %.3f\n", bars[i].bar, bars[i].what,
		       met ? "met" : "missed", bars[i].is);
		missed |= !met;
	}
	return missed;
}

static int report(const struct options *o)
{
	double share[CONTENDERS] = { 0 };
	struct summary xgboost = { 0 };
	bool judged = false;
	int status = 0;

	printf("| policy | workload | best of phase | worst phase | to default | to best static | "
	       "oracle | bad in a row | us/window |\n"
	       "|---|---|---|---|---|---|---|---|---|\n");
	for (unsigned p = 0; p < CONTENDERS; p++) {
		const char *name = contenders[p].name;
		struct summary s;

		if (!takes_part(o, &contenders[p]))
			continue;
		for (unsigned w = 0; w < SIM_WORKLOADS_ALL; w++) {
			if (verdicts[p][w][0].phase_share == 0)
				continue;
			s = summarise(verdicts[p][w], o->seeds);
			print(name, sim_workload_name((enum sim_workload)w), &s);
		}
		s = overall(o, p);
		print(name, "all", &s);
		share[p] = s.share;
		/* so that not a number is no pass either */
		if (!contenders[p].extra)
			status |= s.bad > 2 || !(s.gain >= 0.97) || !(s.gain_worst > 0) ||
				  !(s.share_worst > 0);
		if (o->full && !o->held_out && p == XGBOOST) {
			xgboost = s;
			judged = true;
		}
	}
	if (judged)
		status |= show_bars(&xgboost) && o->bars;
	/* One that never moves is no pass. */
	if (!o->policy && !o->workload)
		status |= !(share[XGBOOST] > share[STATIC]);
	return status;
}

/* 2: not understood. */
static int parse(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "bars", no_argument, NULL, 'b' },
		{ "default", no_argument, NULL, 'd' },
		{ "full", no_argument, NULL, 'f' },
		{ "held-out", no_argument, NULL, 'h' },
		{ "minutes", required_argument, NULL, 'M' },
		{ "policy", required_argument, NULL, 'p' },
		{ "seeds", required_argument, NULL, 's' },
		{ "verbose", no_argument, NULL, 'v' },
		{ "warm", required_argument, NULL, 'm' },
		{ "workload", required_argument, NULL, 'w' },
		{ 0 },
	};
	unsigned *number;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == '?')
			return 2;
		o->bars |= c == 'b';
		o->find_default |= c == 'd';
		o->held_out |= c == 'h';
		verbose |= c == 'v';
		if (c == 'f') {
			o->full = true;
			o->seeds = 20;
		}
		if (c == 'p')
			o->policy = optarg;
		if (c == 'w')
			o->workload = optarg;
		number = c == 's' ? &o->seeds : c == 'M' ? &o->minutes : c == 'm' ? &o->warm : NULL;
		if (number)
			*number = (unsigned)strtoul(optarg, NULL, 10);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct options o = { .seeds = 2 };
	bool known = false, takes = false;

	if (parse(&o, argc, argv))
		return 2;
	if (o.find_default)
		return find_default();
	for (unsigned w = 0; w < SIM_WORKLOADS_ALL; w++)
		known |= judged(&o, w);
	for (unsigned p = 0; p < CONTENDERS; p++)
		takes |= takes_part(&o, &contenders[p]);
	if (!known || o.seeds == 0 || o.seeds > SEEDS_MAX || !takes)
		return 2;
	if (o.warm)
		warm_up(o.warm);
	judge(&o);
	return report(&o);
}
