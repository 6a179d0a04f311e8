/* SPDX-License-Identifier: Apache-2.0 */
/* From two snapshots to a feature vector. Pure. */
#include "tuner/window_features.h"

#include <math.h>

static const char *const names[TUNER_FEATURES] = {
	"rtt_p50_us",       "rtt_p90_us",     "rtt_p99_us",      "record_mean_bytes",
	"record_p90_bytes", "ops_per_s",      "bytes_per_s",     "cpu_own_cores",
	"cpu_other_cores",  "cpus",           "mem_share",       "mem_estimated",
	"link_share",       "link_other",     "link_estimated",  "pcie_share",
	"queue_depth",      "in_flight",      "retries_per_op",  "append_p50_us",
	"commit_p50_us",    "commit_p90_us",  "commit_p99_us",   "region_hit_rate",
	"mirror_cpu_cores", "mirror_log_share", "mirror_ring_share", "mirror_lag_records",
	"mirrors",          "transports",     "forecast",
};

/* What a TLP of 256 bytes carries besides its payload (Neugebauer et al., SIGCOMM 2018). */
#define PCIE_OVERHEAD (1.0 + 24.0 / 256.0)

const char *tuner_feature_name(enum tuner_feature f)
{
	return names[f];
}

bool tuner_feature_estimated(const struct tuner_features *features, enum tuner_feature f)
{
	const float *v = features->v;

	if (isnan(v[f]))
		return false;
	if (f == TUNER_F_MEM_SHARE)
		return v[TUNER_F_MEM_ESTIMATED] > 0;
	return (f == TUNER_F_LINK_SHARE || f == TUNER_F_PCIE_SHARE) &&
	       v[TUNER_F_LINK_ESTIMATED] > 0;
}

void tuner_snapshot_hist(struct tuner_snapshot *snap, enum tuner_hist which,
			 const struct histogram *h)
{
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		snap->hist[which][i] = atomic_load_explicit(&h->counts[i], memory_order_relaxed);
	snap->hist_sum[which] = histogram_sum(h);
}

struct span {
	const struct tuner_snapshot *a, *b;
	double seconds;
};

/* Growth of counter c, NaN when it isn't known at both ends. */
static double grown(const struct span *s, enum tuner_counter c)
{
	uint32_t bit = 1U << c;

	if (!(s->a->have & bit) || !(s->b->have & bit) || s->b->counter[c] < s->a->counter[c])
		return NAN;
	return (double)(s->b->counter[c] - s->a->counter[c]);
}

static bool is_estimate(const struct span *s, enum tuner_counter c)
{
	return (s->a->estimated | s->b->estimated) & 1U << c;
}

static double gauge(const struct span *s, enum tuner_gauge g)
{
	return s->b->gauge[g] > 0 ? s->b->gauge[g] : NAN;
}

/* Values at the shares q[0..n), rising, of what the histogram gained; all NaN when that is
 * nothing. */
static void quantiles(const struct span *s, enum tuner_hist which, const double *q, int n,
		      double scale, float *ret_values)
{
	const uint64_t *a = s->a->hist[which], *b = s->b->hist[which];
	uint64_t total = 0, seen = 0;
	int next = 0;

	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		total += b[i] > a[i] ? b[i] - a[i] : 0;
	for (int i = 0; i < n; i++)
		ret_values[i] = NAN;
	for (unsigned i = 0; total > 0 && i < HISTOGRAM_BUCKETS && next < n; i++) {
		seen += b[i] > a[i] ? b[i] - a[i] : 0;
		while (next < n && (double)seen >= q[next] * (double)total)
			ret_values[next++] = (float)((double)histogram_bucket_max(i) * scale);
	}
}

static double hist_mean(const struct span *s, enum tuner_hist which)
{
	const uint64_t *a = s->a->hist[which], *b = s->b->hist[which];
	uint64_t total = 0;

	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		total += b[i] > a[i] ? b[i] - a[i] : 0;
	if (total == 0 || s->b->hist_sum[which] < s->a->hist_sum[which])
		return NAN;
	return (double)(s->b->hist_sum[which] - s->a->hist_sum[which]) / (double)total;
}

static void loads(const struct span *s, float *v)
{
	double ops = grown(s, TUNER_OPS), bytes = grown(s, TUNER_BYTES);
	double own = bytes * gauge(s, TUNER_COPIES), link = grown(s, TUNER_LINK_BYTES);
	double hits = grown(s, TUNER_REGION_HITS), misses = grown(s, TUNER_REGION_MISSES);
	double capacity = gauge(s, TUNER_LINK_CAPACITY) * s->seconds;
	bool counted = !isnan(link) && !is_estimate(s, TUNER_LINK_BYTES);

	v[TUNER_F_OPS_PER_S] = (float)(ops / s->seconds);
	v[TUNER_F_BYTES_PER_S] = (float)(bytes / s->seconds);
	v[TUNER_F_CPU_OWN] = (float)(grown(s, TUNER_CPU_NS) / 1e9 / s->seconds);
	v[TUNER_F_CPU_OTHER] =
		(float)(grown(s, TUNER_MACHINE_NS) / 1e9 / s->seconds) - v[TUNER_F_CPU_OWN];
	v[TUNER_F_MEM_SHARE] = (float)(grown(s, TUNER_MEM_BYTES) /
				       (gauge(s, TUNER_MEM_CAPACITY) * s->seconds));
	v[TUNER_F_MEM_ESTIMATED] = isnan(v[TUNER_F_MEM_SHARE]) ? NAN :
								 is_estimate(s, TUNER_MEM_BYTES);
	v[TUNER_F_LINK_ESTIMATED] = !counted;
	v[TUNER_F_LINK_OTHER] = counted ? (float)((link < own ? 0 : link - own) / capacity) : NAN;
	if (isnan(link)) /* no counter: at least what we sent ourselves */
		link = own;
	v[TUNER_F_LINK_SHARE] = (float)(link / capacity);
	v[TUNER_F_PCIE_SHARE] = (float)(link * PCIE_OVERHEAD /
					(gauge(s, TUNER_PCIE_CAPACITY) * s->seconds));
	v[TUNER_F_RETRIES_PER_OP] = ops > 0 ? (float)(grown(s, TUNER_RETRIES) / ops) : NAN;
	v[TUNER_F_REGION_HIT_RATE] = hits + misses > 0 ? (float)(hits / (hits + misses)) : NAN;
}

void tuner_features_compute(const struct tuner_snapshot *before, const struct tuner_snapshot *after,
			    struct tuner_features *ret_features)
{
	static const double three[] = { 0.5, 0.9, 0.99 }, ninety[] = { 0.9 }, median[] = { 0.5 };
	struct span s = { before, after, NAN };
	float *v = ret_features->v;

	for (int i = 0; i < TUNER_FEATURES; i++)
		v[i] = NAN;
	if (after->time_ns <= before->time_ns)
		return;
	s.seconds = (double)(after->time_ns - before->time_ns) / 1e9;
	loads(&s, v);
	quantiles(&s, TUNER_RTT_NS, three, 3, 1e-3, &v[TUNER_F_RTT_P50_US]);
	quantiles(&s, TUNER_RECORD, ninety, 1, 1, &v[TUNER_F_RECORD_P90]);
	quantiles(&s, TUNER_APPEND_NS, median, 1, 1e-3, &v[TUNER_F_APPEND_P50_US]);
	quantiles(&s, TUNER_COMMIT_NS, three, 3, 1e-3, &v[TUNER_F_COMMIT_P50_US]);
	v[TUNER_F_RECORD_MEAN] = (float)hist_mean(&s, TUNER_RECORD);
	v[TUNER_F_CPUS] = (float)gauge(&s, TUNER_CPUS);
	v[TUNER_F_MIRRORS] = (float)gauge(&s, TUNER_COPIES);
	v[TUNER_F_TRANSPORTS] = (float)gauge(&s, TUNER_TRANSPORTS);
	v[TUNER_F_QUEUE_DEPTH] =
		after->queue_known ? (float)after->gauge[TUNER_QUEUE_DEPTH] : NAN;
	for (int i = 0; after->mirrors_known && i <= TUNER_MIRROR_LAG - TUNER_MIRROR_CPU; i++)
		v[TUNER_F_MIRROR_CPU + i] = (float)after->gauge[TUNER_MIRROR_CPU + i];
	/* Little's law: what is under way is rate times time; no counter has to be kept for it. */
	v[TUNER_F_IN_FLIGHT] = v[TUNER_F_OPS_PER_S] * (float)(hist_mean(&s, TUNER_COMMIT_NS) / 1e9);
}
