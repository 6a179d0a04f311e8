/* SPDX-License-Identifier: Apache-2.0 */
/* What a tuner sees of a simulated window: counters and histograms that grow, then features of
 * the growth. */
#include "tuner/rng.h"
#include "tuner/sim_params.h"
#include "tuner/sim_work.h"

#include <string.h>

/* Values that stand for a window's hundreds of thousands, each for an equal share of them. */
#define SHARES 96

/* The value a standard normal variable is below with chance p (Abramowitz, Stegun, 26.2.23). */
static double normal_quantile(double p)
{
	double q = p < 0.5 ? p : 1 - p, t = sqrt(-2 * log(q));
	double z = t - (2.515517 + t * (0.802853 + t * 0.010328)) /
		       (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));

	return p < 0.5 ? -z : z;
}

/* Log-normal with this mean and standard deviation over mean. */
static void draw(struct sim_trace *trace, enum tuner_hist which, double mean, double spread)
{
	double sigma = sqrt(log1p(spread * spread)), mu = log(mean) - sigma * sigma / 2;
	struct tuner_snapshot *s = &trace->now;
	struct histogram *h = &trace->scratch;

	memset(h, 0, sizeof(*h));
	for (int i = 0; i < SHARES; i++)
		histogram_add(h,
			      (uint64_t)exp(mu + sigma * normal_quantile((i + 0.5) / SHARES)) + 1);
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		s->hist[which][i] += atomic_load_explicit(&h->counts[i], memory_order_relaxed);
	s->hist_sum[which] += histogram_sum(h);
}

static void grow(struct sim_trace *t, unsigned window, struct tuner_settings in_force)
{
	const struct sim_result *res = sim_trace_result(t, window, in_force);
	const struct sim_load *l = &t->load[t->load_of[window]];
	struct tuner_snapshot *s = &t->now;
	struct rng r = { t->seed * 7919 + window * 104729ULL };
	double ops = res->ops_per_s * t->noise[window], slower = 1 / t->noise[window];
	double cpu = res->cpu_cores * rng_between(&r, 0.97, 1.03);
	double regions = ops * l->bytes / SIM_REGION_BYTES + 1;

	s->time_ns += 1000000000;
	s->counter[TUNER_OPS] += (uint64_t)ops;
	s->counter[TUNER_BYTES] += (uint64_t)(ops * l->bytes);
	s->counter[TUNER_CPU_NS] += (uint64_t)(cpu * 1e9);
	s->counter[TUNER_MACHINE_NS] +=
		(uint64_t)((cpu + res->follow_cores * t->noise[window] +
			    l->other_cores * rng_between(&r, 0.95, 1.05)) * 1e9);
	s->counter[TUNER_LINK_BYTES] += (uint64_t)(l->bulk_qps > 0 ? SIM_LINK_BYTES_PER_S :
						   ops * l->bytes * l->mirrors);
	s->counter[TUNER_REGION_HITS] += (uint64_t)(regions * (1 - res->region_miss) * 100);
	s->counter[TUNER_REGION_MISSES] += (uint64_t)(regions * res->region_miss * 100);
	s->gauge[TUNER_CPUS] = l->cores;
	s->gauge[TUNER_LINK_CAPACITY] = SIM_LINK_BYTES_PER_S;
	s->gauge[TUNER_PCIE_CAPACITY] = SIM_PCIE_BYTES_PER_S;
	s->gauge[TUNER_QUEUE_DEPTH] = res->queue;
	s->queue_known = true;
	s->gauge[TUNER_COPIES] = l->mirrors;
	s->gauge[TUNER_TRANSPORTS] = l->mirrors * TUNER_OVER_VERBS;
	draw(t, TUNER_RTT_NS, res->rtt_ns * slower, res->latency_spread);
	draw(t, TUNER_RECORD, l->bytes, l->spread);
	draw(t, TUNER_APPEND_NS, res->append_ns, 0.2);
	draw(t, TUNER_COMMIT_NS, res->commit_ns * slower, res->latency_spread);
}

void sim_trace_window(struct sim_trace *t, unsigned window, struct tuner_settings s,
		      struct tuner_window *ret_window)
{
	if (window == 0) {
		memset(&t->now, 0, sizeof(t->now));
		t->now.have = 1U << TUNER_OPS | 1U << TUNER_BYTES | 1U << TUNER_CPU_NS |
			      1U << TUNER_MACHINE_NS | 1U << TUNER_LINK_BYTES |
			      1U << TUNER_REGION_HITS | 1U << TUNER_REGION_MISSES;
	}
	t->before = t->now;
	grow(t, window, s);
	memset(ret_window, 0, sizeof(*ret_window));
	ret_window->index = window;
	ret_window->in_force = s;
	tuner_bounds_all(&ret_window->bounds);
	tuner_features_compute(&t->before, &t->now, &ret_window->features);
}
