/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tuner is worth on the real engine: one primary, mirrors of their own processes, and one
 * trace of load that goes through phases while one tuner watches, as on a mount but for FUSE.
 *   tune_trace [--transport tcp|shm] [--settle S] [--rounds N] [--slice S] [--passes N]
 *              [--window S]
 * In each phase, while the load goes on: the tuner learns for S seconds; then, with settings set by
 * hand, all static settings of a grid (every level of lanes, poll_us and batch that the mount's
 * bounds allow, the reserve at its own level and two above: it is flat here), the best of them
 * again; then at least three rounds of static, tuned and best in turn, whose order changes, and the
 * median of whose ratios is judged. Prints a table and the bars: tuned to the best of each phase
 * 0.95, to static 1.1. With the defaults about five minutes a transport. For a quiet machine; exit
 * code 1: it failed.
 */
#include "common/clock.h"
#include "common/thread.h"
#include "fs/bench/bench_engine.h"
#include "fs/bench/bench_site.h"
#include "fs/cmd/cmd.h"
#include "fs/node/node_tuner.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYS 200
#define GRID_MAX 128
#define FINALISTS 6
#define FINAL_ROUNDS 3
#define ROUNDS_MAX 32
#define PASSES_MAX 4

static const struct phase {
	const char *name, *load;
	uint64_t bytes;
	unsigned clients;
} phases[] = {
	{ "small", "put", 256, 8 },
	{ "large", "put", 256 << 10, 2 },
	{ "bursts", "burst", 1024, 4 },
	{ "mix", "a", 4096, 4 },
};
#define PHASES (sizeof(phases) / sizeof(phases[0]))

enum contender { STATIC, TUNED, BEST, CONTENDERS };

static struct {
	struct bench_site site;
	struct options opt;
	struct bench_engine *engine;
	struct node *node;
	struct tuner_loop *loop;
	const struct phase *phase;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool over; /* lock: the phase is */
	uint64_t errors; /* the load's, when it has ended */
} rig = { .lock = PTHREAD_MUTEX_INITIALIZER };

static double window_s = 0.2, settle_s = 12, slice_s = 0.8;
static unsigned rounds = 6, passes = 1;

static void die(const char *what, const char *why)
{
	fprintf(stderr, "tune_trace: %s: %s\n", what, why);
	bench_engine_close(rig.engine);
	(void)bench_site_close(&rig.site);
	exit(1);
}

static int pause_for(void *ctx, double seconds)
{
	struct timespec t = { (time_t)seconds, (long)(fmod(seconds, 1) * 1e9) };

	(void)ctx;
	nanosleep(&t, NULL);
	return 0;
}

/* bench_clients_run waits by this: until the phase is over. */
static int until_over(void *ctx, double seconds)
{
	(void)ctx;
	(void)seconds;
	pthread_mutex_lock(&rig.lock);
	while (!rig.over)
		pthread_cond_wait(&rig.changed, &rig.lock);
	pthread_mutex_unlock(&rig.lock);
	return 0;
}

static struct bench_config config_of(const struct phase *p)
{
	return (struct bench_config){ .load = bench_load_find(p->load), .keys = KEYS,
				      .value_bytes = p->bytes, .threads = p->clients, .seed = 1 };
}

static void *load_main(void *arg)
{
	struct bench_config cfg = config_of(rig.phase);
	struct bench_keys *keys = calloc(1, sizeof(*keys));
	struct bench_result *result = calloc(1, sizeof(*result));
	int err = keys && result ? 0 : -ENOMEM;

	(void)arg;
	if (!err) {
		bench_keys_init(keys, cfg.load, cfg.keys, cfg.threads);
		err = bench_clients_run(rig.engine, &cfg, keys, until_over, NULL, result);
	}
	rig.errors = err ? 1 : result->errors;
	free(result);
	free(keys);
	return NULL;
}

/* Records committed a second. */
static double rate(double seconds)
{
	uint64_t began_ns = clock_mono_ns(), before = commit_point(rig.node->commit), done;

	pause_for(NULL, seconds);
	done = commit_point(rig.node->commit) - before;
	return (double)done * 1e9 / (double)(clock_mono_ns() - began_ns);
}

static void windows(unsigned n)
{
	struct tuner_loop_state s;
	uint64_t until, deadline_ns = clock_mono_ns() + 30 * NSEC_PER_SEC;

	tuner_loop_state(rig.loop, &s);
	until = s.windows + n;
	while (s.windows < until) {
		if (clock_mono_ns() > deadline_ns)
			die(rig.phase->name, "the tuner stands still");
		pause_for(NULL, 0.005);
		tuner_loop_state(rig.loop, &s);
	}
}

static double rate_at(struct tuner_settings s, double seconds)
{
	tuner_loop_set(rig.loop, s);
	windows(1);
	return rate(seconds);
}

/* As the tuner has it, trials included. */
static double rate_tuned(double seconds)
{
	tuner_loop_freeze(rig.loop, false);
	windows(2); /* back from what was set by hand */
	return rate(seconds);
}

struct point {
	struct tuner_settings s;
	double sum;
	unsigned n;
};

static int by_mean(const void *a, const void *b)
{
	const struct point *p = a, *q = b;
	double x = p->sum / p->n, y = q->sum / q->n;

	return (x < y) - (x > y);
}

static unsigned make_grid(struct point *grid)
{
	struct tuner_settings own = node_tuner_static(rig.node), s;
	struct tuner_bounds b;
	unsigned n = 0;

	node_tuner_bounds(rig.node, &b);
	s = tuner_settings_clamp((struct tuner_settings){ { 0 } }, &b);
	for (s.level[0] = b.lo[0]; s.level[0] <= b.hi[0]; s.level[0]++)
		for (s.level[1] = b.lo[1]; s.level[1] <= b.hi[1]; s.level[1]++)
			for (s.level[2] = b.lo[2]; s.level[2] <= b.hi[2]; s.level[2]++)
				for (uint8_t up = 0; up <= 2 && n < GRID_MAX; up += 2) {
					s.level[3] = (uint8_t)(own.level[3] + up);
					if (tuner_settings_allowed(&s, &b))
						grid[n++] = (struct point){ .s = s };
				}
	return n;
}

/* The best static settings of the phase; which by chance, the rounds after it don't care. */
static struct tuner_settings sweep(unsigned *ret_points)
{
	static struct point grid[GRID_MAX];
	unsigned n = make_grid(grid), finalists = n < FINALISTS ? n : FINALISTS;

	for (unsigned i = 0; i < n; i++) {
		grid[i].sum = rate_at(grid[i].s, window_s);
		grid[i].n = 1;
	}
	qsort(grid, n, sizeof(grid[0]), by_mean);
	for (unsigned r = 0; r < FINAL_ROUNDS; r++) {
		for (unsigned i = 0; i < finalists; i++) {
			grid[i].sum += rate_at(grid[i].s, window_s);
			grid[i].n++;
		}
	}
	qsort(grid, finalists, sizeof(grid[0]), by_mean);
	*ret_points = n;
	return grid[0].s;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct spread {
	double low, median, high;
};

/* Of each round's ratio. */
static struct spread ratio(const double *of, const double *to)
{
	double r[ROUNDS_MAX];

	for (unsigned i = 0; i < rounds; i++)
		r[i] = of[i] / to[i];
	qsort(r, rounds, sizeof(r[0]), by_value);
	return (struct spread){ r[0], (r[rounds / 2] + r[(rounds - 1) / 2]) / 2, r[rounds - 1] };
}

struct verdict {
	double to_best, to_static;
};

static void print_row(const char *transport, unsigned points, struct tuner_settings best,
		      struct tuner_settings tuned, double rates[CONTENDERS][ROUNDS_MAX],
		      struct verdict *ret_verdict)
{
	struct spread b = ratio(rates[TUNED], rates[BEST]), s = ratio(rates[TUNED], rates[STATIC]);
	struct spread most = ratio(rates[BEST], rates[STATIC]);
	char text[2][TUNER_SETTINGS_TEXT_BYTES];
	double mean = 0;

	for (unsigned i = 0; i < rounds; i++)
		mean += rates[STATIC][i] / rounds;
	printf("| %s | %s | %.0f | %s (of %u) | %.2f (%.2f to %.2f) | %s | %.2f (%.2f to %.2f) "
	       "| %.2f (%.2f to %.2f) |\n", transport, rig.phase->name, mean,
	       tuner_settings_format(best, text[0]), points, most.median, most.low, most.high,
	       tuner_settings_format(tuned, text[1]), s.median, s.low, s.high, b.median, b.low,
	       b.high);
	fflush(stdout);
	*ret_verdict = (struct verdict){ b.median, s.median };
}

static void measure(const char *transport, struct verdict *ret_verdict)
{
	struct tuner_settings own = node_tuner_static(rig.node), best, tuned;
	double rates[CONTENDERS][ROUNDS_MAX];
	unsigned points;

	tuner_loop_freeze(rig.loop, false);
	pause_for(NULL, settle_s);
	tuned = tuner_loop_settings(rig.loop);
	best = sweep(&points);
	for (unsigned r = 0; r < rounds; r++) {
		for (unsigned i = 0; i < CONTENDERS; i++) {
			enum contender c = (enum contender)((i + r) % CONTENDERS);

			rates[c][r] = c == TUNED ? rate_tuned(slice_s) :
						   rate_at(c == BEST ? best : own, slice_s);
		}
	}
	print_row(transport, points, best, tuned, rates, ret_verdict);
}

static void run_phase(const struct phase *p, const char *transport, struct verdict *ret_verdict)
{
	pthread_t thread;

	rig.phase = p;
	rig.over = false;
	if (thread_start(&thread, "load", load_main, NULL))
		die(p->name, "no thread");
	measure(transport, ret_verdict);
	pthread_mutex_lock(&rig.lock);
	rig.over = true;
	pthread_cond_broadcast(&rig.changed);
	pthread_mutex_unlock(&rig.lock);
	pthread_join(thread, NULL);
	if (rig.errors)
		die(p->name, "operations failed");
}

static void open_rig(enum addr_kind kind)
{
	const struct bench_pause pause = { pause_for, NULL };
	const char *dir = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	char why[NODE_WHY_BYTES] = "", volume[PATH_MAX];
	struct bench_config cfg = config_of(&phases[0]);
	struct node_tuner_config tuning;

	options_init(&rig.opt, OPTIONS_MOUNT);
	rig.opt.min_mirrors = 1;
	if (bench_site_open(&rig.site, dir, 1, why) ||
	    bench_site_start_mirrors(&rig.site, kind, NULL, &pause, why))
		die("mirror", why);
	rig.opt.mirrors.list[0] = rig.site.mirrors[0].addr;
	rig.opt.mirrors.count = 1;
	bench_site_volume(&rig.site, "primary", volume);
	if (options_finish(&rig.opt, why) ||
	    bench_engine_open(&rig.opt, volume, NULL, &rig.engine, why))
		die("primary", why);
	rig.node = bench_engine_node(rig.engine);
	if (bench_clients_prepare(rig.engine, &cfg, pause_for, NULL))
		die("keys", "cannot make them");
	node_tuner_config_init(rig.node, &tuning);
	tuning.window_ns = (uint64_t)(window_s * 1e9);
	tuning.keep_model = false;
	if (node_tuner_start(rig.node, &tuning, why, sizeof(why)))
		die("tuner", why);
	rig.loop = node_tuner_loop(rig.node);
}

static void run_trace(enum addr_kind kind, const char *transport)
{
	struct verdict v[PHASES * PASSES_MAX];
	double gain = 0, least = INFINITY;
	unsigned n = 0;

	open_rig(kind);
	for (unsigned pass = 0; pass < passes; pass++)
		for (unsigned p = 0; p < PHASES; p++)
			run_phase(&phases[p], transport, &v[n++]);
	node_tuner_stop(rig.node);
	bench_engine_close(rig.engine);
	rig.engine = NULL;
	if (bench_site_close(&rig.site))
		die("directory", "it could not be removed");
	for (unsigned i = 0; i < n; i++) {
		gain += log(v[i].to_static) / n;
		least = fmin(least, v[i].to_best);
	}
	printf("%s: least share of a phase's best %.3f (bar 0.95: %s), to static over the trace "
	       "%.3f (bar 1.1: %s)\n", transport, least, least >= 0.95 ? "met" : "not met",
	       exp(gain), exp(gain) >= 1.1 ? "met" : "not met");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "transport", required_argument, NULL, 't' },
		{ "settle", required_argument, NULL, 's' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "slice", required_argument, NULL, 'l' },
		{ "passes", required_argument, NULL, 'p' },
		{ "window", required_argument, NULL, 'w' },
		{ 0 },
	};
	const char *only = NULL;
	int c;

	if (argc > 1 && strcmp(argv[1], "mirror") == 0) /* bench_mirror.c runs this program */
		return cmd_mirror(argc - 1, argv + 1);
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 't')
			only = optarg;
		else if (c == 's')
			settle_s = strtod(optarg, NULL);
		else if (c == 'r')
			rounds = (unsigned)strtoul(optarg, NULL, 10);
		else if (c == 'l')
			slice_s = strtod(optarg, NULL);
		else if (c == 'p')
			passes = (unsigned)strtoul(optarg, NULL, 10);
		else if (c == 'w')
			window_s = strtod(optarg, NULL);
		else
			return 2;
	}
	if (rounds < 3 || rounds > ROUNDS_MAX || passes < 1 || passes > PASSES_MAX ||
	    !(window_s >= 0.01) || !(slice_s > 0) || !(settle_s >= 0))
		return 2;
	printf("| transport | phase | static/s | best static | to static | tuner's choice after "
	       "%.0f windows | tuned to static | tuned to best |\n"
	       "|---|---|---|---|---|---|---|---|\n", settle_s / window_s);
	if (!only || strcmp(only, "tcp") == 0)
		run_trace(ADDR_TCP, "tcp");
	if (!only || strcmp(only, "shm") == 0)
		run_trace(ADDR_SHM, "shm");
	return 0;
}
