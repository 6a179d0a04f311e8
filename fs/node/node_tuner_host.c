/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tuner's loop asks of the node: see node_tuner.h. kv-tuner. Counters are read as their
 * threads leave them; besides atomics, only primary.lock is taken, which the data path does not
 * take.
 */
#include "fs/node/node_tuner_internal.h"

#include "common/clock.h"
#include "common/diag.h"
#include "common/histogram.h"
#include "replication/memory/region.h"

#include <string.h>
#include <sys/resource.h>

/* A mirror tells its load four times a second. */
#define LOAD_FRESH_NS (2 * NSEC_PER_SEC)

static struct metric *first_series(struct metrics *m, const char *family, const char *label)
{
	struct metric *s;

	return metrics_list(m, family, label, &s, 1) ? s : NULL;
}

void node_tuner_find_series(struct node_tuner *t)
{
	struct metrics *m = t->node->metrics;

	t->series = (struct node_tuner_series){
		.wire = first_series(m, "kvfs_stage_duration_seconds", "wire"),
		.append = first_series(m, "kvfs_stage_duration_seconds", "log"),
		.commit_wait = first_series(m, "kvfs_commit_wait_seconds", NULL),
		.record_bytes = first_series(m, "kvfs_record_bytes", NULL),
		.read_bytes = first_series(m, "kvfs_operation_bytes_total", "read"),
	};
	t->series.retries_count = metrics_list(m, "qp_retry_count", NULL, t->series.retries,
					       OPTIONS_MIRRORS_MAX);
}

static void know(struct tuner_snapshot *snap, enum tuner_counter c, uint64_t value)
{
	snap->counter[c] = value;
	snap->have |= 1U << c;
}

/* A value of the registry's coarser buckets stands at its bucket's end. */
static void take_histogram(struct tuner_snapshot *snap, enum tuner_hist which,
			   const struct metric *s)
{
	uint64_t counts[METRICS_BUCKETS_MAX];
	unsigned n;

	if (!s)
		return;
	snap->hist_sum[which] = metric_counts(s, counts);
	n = metrics_bucket_count(s->def);
	for (unsigned i = 0; i < n; i++) {
		uint64_t value = metrics_bucket_max(s->def, i < n - 1 ? i : n - 2);

		snap->hist[which][histogram_bucket(value)] += counts[i];
	}
}

static void take_load(struct node_tuner *t, struct tuner_snapshot *snap)
{
	struct node *n = t->node;
	uint64_t committed = commit_point(n->commit), last = oplog_last_lsn(n->log);

	take_histogram(snap, TUNER_RTT_NS, t->series.wire);
	take_histogram(snap, TUNER_APPEND_NS, t->series.append);
	take_histogram(snap, TUNER_COMMIT_NS, t->series.commit_wait);
	take_histogram(snap, TUNER_RECORD, t->series.record_bytes);
	know(snap, TUNER_OPS, committed);
	if (t->series.record_bytes)
		know(snap, TUNER_BYTES, snap->hist_sum[TUNER_RECORD]);
	snap->gauge[TUNER_QUEUE_DEPTH] = last > committed ? (double)(last - committed) : 0;
	snap->queue_known = true;
}

static uint64_t link_retries(const struct node_tuner *t)
{
	uint64_t retries = 0;

	for (unsigned i = 0; i < t->series.retries_count; i++)
		retries += metric_value(t->series.retries[i]);
	return retries;
}

static void take_memory(struct node *n, struct tuner_snapshot *snap)
{
	struct region_look look;

	region_pool_look(n->regions, &look);
	/* Registered memory is looked up where a device sends from it; else regions are taken. */
	know(snap, TUNER_REGION_HITS, look.found + look.not_found ? look.found : look.hits);
	know(snap, TUNER_REGION_MISSES,
	     look.found + look.not_found ? look.not_found : look.misses);
}

static void raise_gauge(struct tuner_snapshot *snap, enum tuner_gauge g, double value)
{
	if (value > snap->gauge[g])
		snap->gauge[g] = value;
}

/* What the mirrors say of themselves, of each figure the most: the slowest of them is waited for. A
 * word that is old, or the last session's, says nothing. */
static void take_mirrors(const struct link_stats *links, unsigned count,
			 struct tuner_snapshot *snap)
{
	for (unsigned i = 0; i < count; i++) {
		const struct link_stats *s = &links[i];

		if (s->state != LINK_LIVE || !s->load_known || s->load_age_ns > LOAD_FRESH_NS)
			continue;
		snap->mirrors_known = true;
		raise_gauge(snap, TUNER_MIRROR_CPU, s->load_cpu_permille / 1000.0);
		raise_gauge(snap, TUNER_MIRROR_LOG, s->load_log_permille / 1000.0);
		raise_gauge(snap, TUNER_MIRROR_RING, s->load_ring_permille / 1000.0);
		raise_gauge(snap, TUNER_MIRROR_LAG, (double)s->load_apply_lag);
	}
}

static unsigned live_links(const struct link_stats *stats, unsigned count, uint32_t *ret_mask,
			   bool *ret_filling)
{
	unsigned live = 0;

	*ret_mask = 0;
	*ret_filling = false;
	for (unsigned i = 0; i < count; i++) {
		if (stats[i].state == LINK_LIVE) {
			*ret_mask |= 1U << i;
			live++;
		}
		*ret_filling |= stats[i].state == LINK_RESYNC || stats[i].state == LINK_CATCHUP;
	}
	return live;
}

double node_tuner_transports(const struct link_stats *links, unsigned count)
{
	double sum = 0;

	for (unsigned i = 0; i < count; i++) {
		if (links[i].state != LINK_LIVE)
			continue;
		if (strcmp(links[i].transport, "shm") == 0)
			sum += TUNER_OVER_SHM;
		else if (strcmp(links[i].transport, "verbs") == 0)
			sum += TUNER_OVER_VERBS;
		else
			sum += TUNER_OVER_TCP;
	}
	return sum;
}

static void host_snapshot(void *ctx, struct tuner_snapshot *ret_snapshot)
{
	struct node_tuner *t = ctx;
	struct link_stats links[OPTIONS_MIRRORS_MAX];
	unsigned count = primary_stats(t->node->primary, links, OPTIONS_MIRRORS_MAX);
	struct rusage ru;
	uint32_t mask;
	bool filling;

	/* Not in the first, for whose end the mount waits. */
	if (t->traffic.any && t->machine.memory_bytes == 0)
		node_tuner_machine_measure(&t->machine);
	ret_snapshot->time_ns = clock_mono_ns();
	take_load(t, ret_snapshot);
	take_memory(t->node, ret_snapshot);
	ret_snapshot->gauge[TUNER_COPIES] = live_links(links, count, &mask, &filling);
	ret_snapshot->gauge[TUNER_TRANSPORTS] = node_tuner_transports(links, count);
	if (getrusage(RUSAGE_SELF, &ru) == 0)
		know(ret_snapshot, TUNER_CPU_NS,
		     (uint64_t)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * NSEC_PER_SEC +
			     (uint64_t)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) * NSEC_PER_USEC);
	take_mirrors(links, count, ret_snapshot);
	node_tuner_machine_read(&t->machine, ret_snapshot);
	node_tuner_retries_read(&t->traffic, &t->machine, links, count, link_retries(t),
				ret_snapshot);
	node_tuner_traffic_read(&t->traffic, &t->machine, links, count,
				ret_snapshot->hist_sum[TUNER_RECORD],
				t->series.read_bytes ? metric_value(t->series.read_bytes) : 0,
				ret_snapshot);
}

static void host_limits(void *ctx, struct tuner_bounds *ret_bounds, uint32_t *ret_flags)
{
	struct node_tuner *t = ctx;
	struct node *n = t->node;
	struct link_stats links[OPTIONS_MIRRORS_MAX];
	unsigned count = primary_stats(n->primary, links, OPTIONS_MIRRORS_MAX);
	uint32_t live;
	bool filling;

	node_tuner_bounds(n, ret_bounds);
	*ret_flags = 0;
	/* Without a live mirror there is nothing to tune; when one came or went, what was measured
	 * is another set's. */
	if (live_links(links, count, &live, &filling) == 0 || live != t->live_before || n->failed)
		*ret_flags |= TUNER_WINDOW_FAILOVER;
	if (filling)
		*ret_flags |= TUNER_WINDOW_RESYNC;
	t->live_before = live;
}

static struct tuner_settings host_apply(void *ctx, struct tuner_settings wanted)
{
	struct node_tuner *t = ctx;

	return node_tuner_apply(t->node, wanted);
}

static void host_report(void *ctx, const char *text)
{
	struct node_tuner *t = ctx;

	diag_info("%s: %s", t->node->vol->path, text);
}

static void host_decided(void *ctx, const struct tuner_decision *d)
{
	struct node_tuner *t = ctx;
	enum tuner_metrics_outcome outcome = TUNER_METRICS_HOLD;

	t->regret += d->regret;
	if (d->action == TUNER_FREEZE)
		outcome = TUNER_METRICS_FREEZE;
	else if (d->action == TUNER_ROLLBACK || d->action == TUNER_FALL_BACK)
		outcome = TUNER_METRICS_ROLLBACK;
	else if (!tuner_settings_equal(d->before, d->after))
		outcome = TUNER_METRICS_MOVE;
	tuner_metrics_window(&t->node->tuner, d->reward, t->regret, outcome);
	if (d->action == TUNER_FALL_BACK && t->loop) {
		struct tuner_loop_state s;

		tuner_loop_state(t->loop, &s);
		if (s.failure)
			tuner_metrics_active(&t->node->tuner, false);
	}
}

const struct tuner_host_ops node_tuner_host = {
	.snapshot = host_snapshot,
	.limits = host_limits,
	.apply = host_apply,
	.report = host_report,
	.decided = host_decided,
};
