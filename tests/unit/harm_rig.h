/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_HARM_RIG_H
#define KVFS_TESTS_HARM_RIG_H
/*
 * The tuner on the real data path: a whole primary (the engine of kvfs bench), a whole mirror, both
 * in this process, clients that put, and kv-tuner in short windows. Between the loop and
 * node_tuner_host stands a host that may lie in its snapshots, and that notes of each window what
 * was really committed and under which settings.
 *
 * What it watches by itself: settings within what the case allows, the mirror live all the time, no
 * put failed. One rig at a time; the host runs in kv-tuner.
 */
#include "common/clock.h"
#include "fs/bench/bench_engine.h"
#include "fs/bench/bench_site.h"
#include "fs/node/node_tuner_internal.h"
#include "replication/memory/region.h"
#include "replication/transport/transport_fault.h"
#include "tests/unit/unit_main.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HARM_CLIENTS 8
#define HARM_KEYS 64 /* of each client */
#define HARM_BYTES_MAX (64U << 10)
#define HARM_WINDOW_NS ((UNIT_SANITIZED ? 100 : 40) * NSEC_PER_MSEC)
#define HARM_WINDOWS_MAX 8192
#define HARM_MEASURED 9 /* windows of a median */
/* What counts as back: the median of HARM_MEASURED windows, from the third on, to the static
 * settings' in the windows behind them. Two busy processors move medians by up to a third; the
 * settings that lies lead to here give 0.1 to 0.3 (checked: the_bar_tells_harm). */
#define HARM_BACK 0.6
/* At most, of which half have to be back: other programs run here. KVFS_TEST_PATIENCE times as
 * many where they are many. */
#define HARM_ROUNDS 6
#define HARM_WAIT_NS (60 * NSEC_PER_SEC)

struct harm_client {
	pthread_t thread;
	unsigned index;
	bool started;
	struct bench_caller caller;
};

struct harm_window {
	double rate; /* records a second, really */
	struct primary_knobs knobs;
	uint64_t reserve_bytes;
};

struct harm {
	struct bench_site site;
	struct options popt, mopt;
	struct node_media media;
	struct bench_engine *engine;
	struct node *node, *mirror;
	struct harm_client client[HARM_CLIENTS];
	_Atomic unsigned clients, bytes; /* that put now; of each value */
	_Atomic bool stop;
	_Atomic uint64_t failed;
	_Atomic int first_errno;

	/* What a case allows, and its lie; set while no tuner runs, but for lie. */
	unsigned lanes_most;
	uint64_t reserve_most;
	/* What the window's rate is told to be: of the real one, and of how it is set. */
	double (*lies)(double rate, const struct primary_knobs *knobs, uint64_t reserve_bytes);
	_Atomic bool lie, flip;
	bool garbage; /* a lie besides: what is known comes and goes */

	pthread_mutex_t lock;   /* what follows */
	pthread_cond_t changed; /* with lock: windows, clients */
	unsigned windows;
	struct harm_window window[HARM_WINDOWS_MAX];
	unsigned out_of_bounds, not_live;
	char report[160];

	/* kv-tuner's */
	uint64_t last_ns, last_ops;
	double told_ops, told_wait;
	uint64_t random;
};

static struct harm harm; /* hosts of the loop have their own context */

static inline double harm_unit(void)
{
	return (double)(bench_random(&harm.random) >> 11) * 0x1p-53;
}

/* The rate as the lie has it. Records under way, by which loads are told apart, are told to be the
 * clients (Little's law): they are what a case is about, and on a busy machine many of them wait
 * for a processor, another number each window. */
static inline void harm_lie(struct tuner_snapshot *snap, uint64_t ops, double seconds)
{
	const struct harm_window *w = &harm.window[harm.windows - 1];
	double told = (double)ops / seconds;

	if (atomic_load(&harm.lie) && harm.lies)
		told = harm.lies(told, &w->knobs, w->reserve_bytes);
	harm.told_ops += told * seconds;
	if (told > 0)
		harm.told_wait += atomic_load(&harm.clients) * (double)ops / told * 1e9;
	snap->counter[TUNER_OPS] = (uint64_t)harm.told_ops;
	snap->hist_sum[TUNER_COMMIT_NS] = (uint64_t)harm.told_wait;
	if (!atomic_load(&harm.lie) || !harm.garbage)
		return;
	if (harm_unit() < 0.1)
		snap->have &= (uint32_t)bench_random(&harm.random);
	if (harm_unit() < 0.1)
		snap->counter[bench_random(&harm.random) % TUNER_COUNTERS] = 1;
	if (harm_unit() < 0.1)
		snap->gauge[bench_random(&harm.random) % TUNER_GAUGES] = -1e300;
	if (harm_unit() < 0.1)
		memset(snap->hist[bench_random(&harm.random) % TUNER_HISTS], 0xEE,
		       sizeof(snap->hist[0]));
}

static inline void harm_note(double rate)
{
	struct region_stats stats;
	struct harm_window w = { .rate = rate, .knobs = primary_get_knobs(harm.node->primary) };
	struct link_stats link;

	region_pool_stats(harm.node->regions, &stats);
	primary_stats(harm.node->primary, &link, 1);
	w.reserve_bytes = stats.reserve_bytes;
	pthread_mutex_lock(&harm.lock);
	harm.not_live += link.state != LINK_LIVE;
	harm.out_of_bounds += w.knobs.lanes < 1 || w.knobs.lanes > harm.lanes_most ||
			      w.knobs.batch < 1 || w.knobs.batch > PRIMARY_BATCH_MAX ||
			      w.knobs.poll_us > 1000 || w.reserve_bytes > harm.reserve_most;
	if (harm.windows < HARM_WINDOWS_MAX)
		harm.window[harm.windows++] = w;
	pthread_cond_broadcast(&harm.changed);
	pthread_mutex_unlock(&harm.lock);
}

static inline void harm_set_load(unsigned clients, unsigned bytes)
{
	pthread_mutex_lock(&harm.lock);
	atomic_store(&harm.clients, clients);
	atomic_store(&harm.bytes, bytes);
	pthread_cond_broadcast(&harm.changed);
	pthread_mutex_unlock(&harm.lock);
}

static void harm_snapshot(void *ctx, struct tuner_snapshot *snap)
{
	uint64_t ops, real_ops, real_wait;
	double seconds;

	node_tuner_host.snapshot(ctx, snap);
	/* What else runs on this machine is not the case's subject, and it is another load each
	 * time. */
	snap->have &= ~(1U << TUNER_MACHINE_NS);
	real_ops = snap->counter[TUNER_OPS];
	real_wait = snap->hist_sum[TUNER_COMMIT_NS];
	if (!harm.last_ns) {
		harm.told_ops = (double)real_ops;
		harm.told_wait = (double)real_wait;
	} else {
		ops = real_ops - harm.last_ops;
		seconds = (double)(snap->time_ns - harm.last_ns) / 1e9;
		harm_note((double)ops / seconds);
		harm_lie(snap, ops, seconds);
	}
	harm.last_ns = snap->time_ns;
	harm.last_ops = real_ops;
	if (atomic_load(&harm.flip))
		harm_set_load(atomic_load(&harm.clients) == HARM_CLIENTS ? 2 : HARM_CLIENTS,
			      atomic_load(&harm.clients) == HARM_CLIENTS ? HARM_BYTES_MAX : 256);
}

static void harm_limits(void *ctx, struct tuner_bounds *ret_bounds, uint32_t *ret_flags)
{
	node_tuner_host.limits(ctx, ret_bounds, ret_flags);
}

static struct tuner_settings harm_apply(void *ctx, struct tuner_settings wanted)
{
	return node_tuner_host.apply(ctx, wanted);
}

static void harm_report(void *ctx, const char *text)
{
	(void)ctx;
	pthread_mutex_lock(&harm.lock);
	snprintf(harm.report, sizeof(harm.report), "%s", text);
	pthread_mutex_unlock(&harm.lock);
}

static void harm_decided(void *ctx, const struct tuner_decision *d)
{
	node_tuner_host.decided(ctx, d);
	if (getenv("KVFS_TEST_VERBOSE"))
		fprintf(stderr, "%lu %s (%s) %.3f %.3f gain %.3f ctx %.2f\n",
			(unsigned long)d->window, tuner_action_name(d->action), d->why, d->reward,
			d->expected, d->gain, (double)d->features.v[TUNER_F_IN_FLIGHT]);
}

static const struct tuner_host_ops harm_host = {
	.snapshot = harm_snapshot,
	.limits = harm_limits,
	.apply = harm_apply,
	.report = harm_report,
	.decided = harm_decided,
};

static void *harm_client_main(void *arg)
{
	static const uint8_t bytes[HARM_BYTES_MAX];
	struct harm_client *c = arg;

	for (unsigned i = 0; !atomic_load(&harm.stop); i++) {
		uint64_t key = c->index * HARM_KEYS + i % HARM_KEYS;
		int err;

		if (c->index >= atomic_load(&harm.clients)) {
			pthread_mutex_lock(&harm.lock);
			while (c->index >= atomic_load(&harm.clients) && !atomic_load(&harm.stop))
				pthread_cond_wait(&harm.changed, &harm.lock);
			pthread_mutex_unlock(&harm.lock);
			continue;
		}
		err = bench_engine_put(harm.engine, &c->caller, key, bytes,
				       atomic_load(&harm.bytes));
		if (err && atomic_fetch_add(&harm.failed, 1) == 0)
			atomic_store(&harm.first_errno, err);
	}
	bench_caller_leave(&c->caller);
	return NULL;
}

static inline void harm_open_mirror(enum addr_kind kind)
{
	char path[PATH_MAX], why[NODE_WHY_BYTES] = "";
	struct addr *a = &harm.mopt.listen.list[0];
	struct mirror_stats stats;

	options_init(&harm.mopt, OPTIONS_MIRROR);
	harm.mopt.arena_bytes = 1ULL << 30;
	harm.mopt.mr_cache_bytes = 16 << 20;
	harm.mopt.inodes_max = 8192;
	harm.mopt.poll_us = 0; /* on two processors, with clients and other programs on them */
	a->kind = kind;
	if (kind == ADDR_SHM)
		snprintf(a->host, sizeof(a->host), "%.200s/m.sock", harm.site.path);
	else
		snprintf(a->host, sizeof(a->host), "127.0.0.1");
	harm.mopt.listen.count = 1;
	ck_assert_int_eq(options_finish(&harm.mopt, why), 0);
	bench_site_volume(&harm.site, "mirror1", path);
	ck_assert_msg(node_open(&harm.mopt, path, NULL, &harm.mirror, why) == 0, "%s", why);
	ck_assert_msg(node_start_mirror(harm.mirror, why) == 0, "%s", why);
	mirror_stats(harm.mirror->mirror, &stats);
	harm.popt.mirrors.list[0] = *a;
	harm.popt.mirrors.list[0].port = (uint16_t)stats.listen_port;
	harm.popt.mirrors.count = 1;
}

static inline void harm_make_keys(void)
{
	static const uint8_t bytes[256];
	struct bench_caller caller;

	ck_assert_int_eq(bench_caller_init(&caller, harm.engine), 0);
	for (uint64_t key = 0; key < HARM_CLIENTS * HARM_KEYS; key++)
		ck_assert_int_eq(bench_engine_create(harm.engine, &caller, key, bytes,
						     sizeof(bytes)), 0);
	bench_caller_leave(&caller);
	bench_caller_destroy(&caller);
}

/* A primary with a mirror over kind, and clients at work. media, if not NULL: what the primary
 * stands on. */
static inline void harm_open(enum addr_kind kind, const struct node_media *media)
{
	char path[PATH_MAX], why[NODE_WHY_BYTES] = "";
	const char *dir = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";

	memset(&harm, 0, sizeof(harm));
	harm.random = 88172645463325252ULL;
	pthread_mutex_init(&harm.lock, NULL);
	ck_assert_int_eq(thread_cond_init(&harm.changed), 0);
	ck_assert_msg(bench_site_open(&harm.site, dir, 1, why) == 0, "%s", why);
	options_init(&harm.popt, OPTIONS_MOUNT);
	harm_open_mirror(kind);
	harm.popt.arena_bytes = 1ULL << 30;
	harm.popt.inodes_max = 8192;
	harm.popt.poll_us = 0;
	harm.popt.min_mirrors = 1;
	ck_assert_int_eq(options_finish(&harm.popt, why), 0);
	if (media)
		harm.media = *media;
	bench_site_volume(&harm.site, "primary", path);
	ck_assert_msg(bench_engine_open(&harm.popt, path, &harm.media, &harm.engine, why) == 0,
		      "%s", why);
	harm.node = bench_engine_node(harm.engine);
	harm.lanes_most = node_tuner_lanes_open(harm.node);
	harm.reserve_most = harm.node->arena_bytes / 4;
	atomic_store(&harm.clients, HARM_CLIENTS);
	atomic_store(&harm.bytes, 256);
	for (unsigned i = 0; i < HARM_CLIENTS; i++) {
		harm.client[i].index = i;
		ck_assert_int_eq(bench_caller_init(&harm.client[i].caller, harm.engine), 0);
	}
	harm_make_keys();
	for (unsigned i = 0; i < HARM_CLIENTS; i++)
		ck_assert_int_eq(thread_start(&harm.client[i].thread, "client", harm_client_main,
					      &harm.client[i]), 0);
}

static inline void harm_tuner_start(const struct tuner_policy_ops *policy, bool keep_model)
{
	char why[NODE_WHY_BYTES] = "";
	struct node_tuner_config cfg;

	node_tuner_config_init(harm.node, &cfg);
	cfg.policy = policy;
	cfg.window_ns = HARM_WINDOW_NS;
	cfg.keep_model = keep_model;
	cfg.min_ops_per_s = 20;
	cfg.host = &harm_host;
	harm.last_ns = 0;
	ck_assert_msg(node_tuner_start(harm.node, &cfg, why, sizeof(why)) == 0, "%s", why);
}

/* Until there are n more windows; returns the first of them. */
static inline unsigned harm_wait(unsigned n)
{
	uint64_t deadline_ns = clock_mono_ns() + HARM_WAIT_NS;
	unsigned first;
	int err = 0;

	pthread_mutex_lock(&harm.lock);
	first = harm.windows;
	ck_assert_uint_lt(first + n, HARM_WINDOWS_MAX);
	while (!err && harm.windows < first + n)
		err = thread_cond_wait_until(&harm.changed, &harm.lock, deadline_ns);
	pthread_mutex_unlock(&harm.lock);
	ck_assert_msg(!err, "the tuner stands still");
	return first;
}

static int harm_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Of windows first, first + step, …; n of them, at most 64. */
static inline double harm_median(unsigned first, unsigned n, unsigned step)
{
	double rates[64];

	ck_assert_uint_le(n, 64);
	pthread_mutex_lock(&harm.lock);
	for (unsigned i = 0; i < n; i++)
		rates[i] = harm.window[first + i * step].rate;
	pthread_mutex_unlock(&harm.lock);
	qsort(rates, n, sizeof(rates[0]), harm_compare);
	return rates[n / 2];
}

/* The next windows' median; first: how many are passed over. */
static inline double harm_rate(unsigned pass_over)
{
	unsigned first = harm_wait(pass_over + HARM_MEASURED);

	return harm_median(first + pass_over, HARM_MEASURED, 1);
}

/* The same with the static settings set by hand. */
static inline double harm_static_rate(void)
{
	struct tuner_loop *loop = node_tuner_loop(harm.node);
	double rate;

	tuner_loop_set(loop, node_tuner_static(harm.node));
	rate = harm_rate(2);
	tuner_loop_freeze(loop, false);
	return rate;
}

/* Right after a disturbance ended: what share of the static settings' rate there is from the third
 * window on. */
static inline double harm_share(void)
{
	double tuned = harm_rate(2), at_static = harm_static_rate();

	if (getenv("KVFS_TEST_VERBOSE"))
		fprintf(stderr, "tuned %.0f static %.0f share %.2f\n", tuned, at_static,
			tuned / at_static);
	return tuned / at_static;
}

/* Rounds of a disturbance and a look whether throughput is back. */
struct harm_rounds {
	unsigned rounds, back;
};

/* After a round: true when it is back in at least half of them; else it takes another round, until
 * there were too many. */
static inline bool harm_is_back(struct harm_rounds *r, double share)
{
	r->rounds++;
	r->back += share >= HARM_BACK;
	if (2 * r->back >= r->rounds)
		return true;
	ck_assert_msg(r->rounds < HARM_ROUNDS * unit_patience(),
		      "throughput was back in %u of %u rounds only, in the last to %.2f", r->back,
		      r->rounds, share);
	return false;
}

static inline bool harm_same_stores(void)
{
	uint8_t a[16], b[16];

	store_digest(harm.node->store, a);
	store_digest(harm.mirror->store, b);
	return memcmp(a, b, sizeof(a)) == 0;
}

static inline uint64_t harm_lsn(struct node *n)
{
	uint64_t lsn;

	store_lock(n->store);
	lsn = store_lsn_locked(n->store);
	store_unlock(n->store);
	return lsn;
}

/* Ends clients and tuner and judges: nothing failed, nobody fell out, nothing left the bounds, and
 * both stores hold the same. */
static inline void harm_close(void)
{
	uint64_t deadline_ns = clock_mono_ns() + HARM_WAIT_NS;
	struct link_stats link;

	node_tuner_stop(harm.node);
	pthread_mutex_lock(&harm.lock);
	atomic_store(&harm.stop, true);
	pthread_cond_broadcast(&harm.changed);
	pthread_mutex_unlock(&harm.lock);
	for (unsigned i = 0; i < HARM_CLIENTS; i++) {
		pthread_join(harm.client[i].thread, NULL);
		bench_caller_destroy(&harm.client[i].caller);
	}
	while (harm_lsn(harm.mirror) < harm_lsn(harm.node) && clock_mono_ns() < deadline_ns)
		sched_yield();
	primary_stats(harm.node->primary, &link, 1);
	ck_assert_msg(harm.failed == 0, "%lu puts failed, the first: %s",
		      (unsigned long)harm.failed, strerror(-harm.first_errno));
	ck_assert_uint_eq(harm.not_live, 0);
	ck_assert_uint_eq(link.reconnects, 0);
	ck_assert_uint_eq(link.lanes_down, 0);
	ck_assert_uint_eq(harm.out_of_bounds, 0);
	ck_assert(harm_same_stores());
	bench_engine_close(harm.engine);
	ck_assert_int_eq(node_stop(harm.mirror), 0);
	node_close(harm.mirror);
	ck_assert_int_eq(bench_site_close(&harm.site), 0);
	pthread_cond_destroy(&harm.changed);
	pthread_mutex_destroy(&harm.lock);
}

#endif
