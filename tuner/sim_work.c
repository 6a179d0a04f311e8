/* SPDX-License-Identifier: Apache-2.0 */
/* Phases of the workloads, their noise, and results remembered. The metrics are in
 * sim_metrics.c. */
#include "tuner/sim_work.h"

#include "tuner/rng.h"
#include "tuner/sim_params.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PHASES 6
#define DRIFT_STEPS 20 /* loads a drifting phase goes through */
#define SETTINGS_ALL (7 * 3 * 4 * 5)

static const char *const names[SIM_WORKLOADS_ALL] = {
	"small", "large", "switch", "burst", "mix", "tenants", "squeeze", "drift",
	"random", "return", "wander", "local",
};

const char *sim_workload_name(enum sim_workload w)
{
	return names[w];
}

static double log_between(struct rng *r, double low, double high)
{
	return low * pow(high / low, rng_unit(r));
}

/* What all loads have in common unless a workload says otherwise. A machine is small or large
 * for the whole of a trace. */
static struct sim_load plain(struct rng *r, bool large)
{
	return (struct sim_load){
		.clients = log_between(r, 8, 64),
		.bytes = log_between(r, 512, 8192),
		.spread = 1,
		.mirrors = 2,
		.cores = large ? 16 : 4,
		.other_cores = large ? 4 : 1,
		.live_mib = 256,
	};
}

static void neighbours(struct sim_load *l, struct rng *r, unsigned kind)
{
	if (kind == 1) {
		l->idle_qps = log_between(r, 4000, 16000);
		l->idle_rate = log_between(r, 1e6, 4e6);
	} else if (kind == 2) {
		l->bulk_qps = log_between(r, 4, 24);
	}
}

/* Any load at all, far beyond what the eight workloads are made of. */
static void any_load(struct sim_load *l, struct rng *r)
{
	static const double cores[] = { 4, 8, 16, 32 };

	l->clients = log_between(r, 2, 256);
	l->bytes = log_between(r, 128, 65536);
	l->spread = rng_between(r, 0.3, 4);
	l->mirrors = 1 + rng_below(r, 2);
	l->cores = cores[rng_below(r, 4)];
	l->other_cores = l->cores * rng_between(r, 0, 0.8);
	l->live_mib = log_between(r, 64, 1024);
	l->fresh_mib = rng_unit(r) < 0.25 ? log_between(r, 32, 256) : 0;
	neighbours(l, r, rng_below(r, 4));
}

static void make_load(enum sim_workload w, struct rng *r, unsigned phase, bool large,
		      struct sim_load *l)
{
	*l = plain(r, large);
	switch (w) {
	case SIM_SMALL:
		l->bytes = log_between(r, 128, 1024);
		l->clients = phase % 2 ? log_between(r, 96, 256) : log_between(r, 8, 48);
		break;
	case SIM_LARGE:
		l->bytes = log_between(r, 16384, 65536);
		l->clients = log_between(r, 4, 32);
		neighbours(l, r, phase % 3 == 1 ? 2 : 0);
		break;
	case SIM_SWITCH:
		l->bytes = phase % 2 ? log_between(r, 24576, 49152) : log_between(r, 256, 512);
		l->clients = phase % 2 ? log_between(r, 4, 8) : log_between(r, 96, 160);
		break;
	case SIM_BURST:
		l->clients = log_between(r, 4, 12);
		break;
	case SIM_MIX:
		l->spread = rng_between(r, 2, 4);
		l->bytes = log_between(r, 2048, 12288);
		l->clients = log_between(r, 16, 160);
		break;
	case SIM_TENANTS:
		l->bytes = log_between(r, 1024, 8192);
		l->clients = log_between(r, 24, 96);
		neighbours(l, r, phase % 3);
		break;
	case SIM_SQUEEZE:
		l->clients = log_between(r, 24, 128);
		l->cores = 8;
		l->other_cores = phase % 2 ? rng_between(r, 4, 7) : rng_between(r, 0, 2);
		break;
	case SIM_LOCAL:
		l->spread = rng_between(r, 1, 4);
		l->bytes = log_between(r, 512, 16384);
		l->clients = log_between(r, 8, 160);
		l->cores = 7;
		l->other_cores = 0.2;
		l->follow_ns = log_between(r, 2000, 5000);
		break;
	case SIM_RANDOM:
	case SIM_RETURN:
	case SIM_WANDER:
		any_load(l, r);
		break;
	default:
		break;
	}
}

static unsigned add_load(struct sim_trace *t, const struct sim_load *l)
{
	t->load[t->nloads] = *l;
	return t->nloads++;
}

/* Calm, and at a steady beat ten times the clients, who take fresh memory. */
static void fill_burst(struct sim_trace *t, struct rng *r, const struct sim_phase *p,
		       const struct sim_load *l)
{
	struct sim_load burst = *l;
	unsigned calm = add_load(t, l), busy, beat = 16 + rng_below(r, 16), on = beat / 3;

	burst.clients *= 10;
	burst.fresh_mib = log_between(r, 64, 256);
	busy = add_load(t, &burst);
	for (unsigned i = 0; i < p->windows; i++)
		t->load_of[p->first + i] = (uint8_t)(i % beat < beat - on ? calm : busy);
}

static void fill_drift(struct sim_trace *t, struct rng *r, const struct sim_phase *p,
		       unsigned phase, bool large)
{
	struct sim_load from = plain(r, large), l;
	double clients = log_between(r, 8, 24), bytes = log_between(r, 512, 2048);

	for (unsigned step = 0; step < DRIFT_STEPS; step++) {
		double way = (double)step / (DRIFT_STEPS - 1);

		l = from;
		if (phase % 2)
			way = 1 - way;
		l.clients = clients * pow(10, way);
		l.bytes = bytes * pow(8, 1 - way);
		add_load(t, &l);
	}
	for (unsigned i = 0; i < p->windows; i++)
		t->load_of[p->first + i] =
			(uint8_t)(t->nloads - DRIFT_STEPS + i * DRIFT_STEPS / p->windows);
}

/* One load through the whole trace, that takes a small step each 10 to 40 windows. */
static void fill_wander(struct sim_trace *t, struct rng *r)
{
	struct sim_load l;

	make_load(SIM_WANDER, r, 0, false, &l);
	for (unsigned i = 0, left = 0; i < t->windows; i++) {
		if (left == 0) {
			left = 10 + rng_below(r, 31);
			l.clients = fmin(256, fmax(2, l.clients * exp(0.2 * rng_normal(r))));
			l.bytes = fmin(65536, fmax(128, l.bytes * exp(0.2 * rng_normal(r))));
			l.other_cores += 0.05 * l.cores * rng_normal(r);
			l.other_cores = fmin(0.8 * l.cores, fmax(0, l.other_cores));
			add_load(t, &l);
		}
		left--;
		t->load_of[i] = (uint8_t)(t->nloads - 1);
	}
}

/* Three loads, a phase each in any order. */
static void fill_return(struct sim_trace *t, struct rng *r)
{
	struct sim_load l = { 0 };

	for (unsigned i = 0; i < 3; i++) {
		make_load(SIM_RETURN, r, i, false, &l);
		add_load(t, &l);
	}
	for (unsigned i = 0; i < t->nphases; i++)
		memset(t->load_of + t->phase[i].first, (int)rng_below(r, 3), t->phase[i].windows);
}

static void fill_noise(struct sim_trace *t, struct rng *r)
{
	double slow = 0, keep = SIM_NOISE_SLOW_KEEP;

	for (unsigned i = 0; i < t->windows; i++) {
		slow = keep * slow + sqrt(1 - keep * keep) * SIM_NOISE_SLOW * rng_normal(r);
		t->noise[i] = (float)exp(slow + SIM_NOISE * rng_normal(r));
		if (rng_unit(r) < SIM_HICCUP_SHARE)
			t->noise[i] *= (float)rng_between(r, SIM_HICCUP_LOW, SIM_HICCUP_HIGH);
	}
}

static void fill_phases(struct sim_trace *t, enum sim_workload w, struct rng *r)
{
	bool large = rng_unit(r) < 0.5;

	for (unsigned i = 0; i < t->nphases; i++) {
		const struct sim_phase *p = &t->phase[i];
		struct sim_load l;

		make_load(w, r, i, large, &l);
		if (w == SIM_BURST) {
			fill_burst(t, r, p, &l);
		} else if (w == SIM_DRIFT) {
			fill_drift(t, r, p, i, large);
		} else {
			unsigned load = add_load(t, &l);

			memset(t->load_of + p->first, (int)load, p->windows);
		}
	}
}

static void fill(struct sim_trace *t, enum sim_workload w, struct rng *r)
{
	if (w == SIM_WANDER)
		fill_wander(t, r);
	else if (w == SIM_RETURN)
		fill_return(t, r);
	else
		fill_phases(t, w, r);
	fill_noise(t, r);
}

int sim_trace_create(enum sim_workload workload, uint64_t seed, bool short_phases,
		     struct sim_trace **ret_trace)
{
	struct rng r = { seed * 1000 + workload };
	struct sim_trace *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->seed = seed;
	t->nphases = short_phases ? PHASES / 2 : PHASES;
	for (unsigned i = 0; i < t->nphases; i++) {
		t->phase[i].first = t->windows;
		t->phase[i].windows = short_phases ? 100 : 150 + rng_below(&r, 101);
		t->windows += t->phase[i].windows;
	}
	t->load_of = calloc(t->windows, sizeof(*t->load_of));
	t->noise = calloc(t->windows, sizeof(*t->noise));
	t->known = calloc(SIM_LOADS_MAX, sizeof(*t->known));
	if (!t->load_of || !t->noise || !t->known) {
		sim_trace_destroy(t);
		return -ENOMEM;
	}
	fill(t, workload, &r);
	for (unsigned i = 0; i < t->nloads; i++) {
		t->known[i] = calloc(SETTINGS_ALL, sizeof(**t->known));
		if (!t->known[i]) {
			sim_trace_destroy(t);
			return -ENOMEM;
		}
	}
	*ret_trace = t;
	return 0;
}

void sim_trace_destroy(struct sim_trace *t)
{
	if (!t)
		return;
	for (unsigned i = 0; t->known && i < SIM_LOADS_MAX; i++)
		free(t->known[i]);
	free(t->known);
	free(t->noise);
	free(t->load_of);
	free(t);
}

const struct sim_result *sim_trace_result(struct sim_trace *t, unsigned window,
					  struct tuner_settings s)
{
	unsigned load = t->load_of[window], at = 0;
	struct sim_result *r;

	for (int k = 0; k < TUNER_KNOBS; k++)
		at = at * tuner_knob_levels((enum tuner_knob)k) + s.level[k];
	r = &t->known[load][at];
	if (r->ops_per_s == 0)
		sim_nic_run(&t->load[load], s, r);
	return r;
}

double sim_trace_throughput(struct sim_trace *t, unsigned window, struct tuner_settings s)
{
	return sim_trace_result(t, window, s)->ops_per_s * t->noise[window];
}
