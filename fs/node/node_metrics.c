/* SPDX-License-Identifier: Apache-2.0 */
/* The node's collector: see node_metrics.h. Runs in whichever thread takes a snapshot. */
#include "config.h"

#include "fs/node/node_metrics.h"

#include "common/clock.h"
#include "fs/node/node.h"
#include "replication/memory/region.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define LINK_STATES (LINK_REFUSED + 1)

struct node_metrics {
	struct metric *figure[NM_COUNT];
	struct {
		struct metric *figure[NL_COUNT];
		struct metric *state[LINK_STATES];
	} link[OPTIONS_MIRRORS_MAX];
	struct {
		struct metric *slots, *used, *bytes;
	} class[64]; /* as slab_stats.class_stats */
	struct metric *ckpt_duration;
};

static void nm_set(struct node *n, enum node_metric i, uint64_t value)
{
	metric_set(n->figures->figure[i], value);
}

static void collect_process(struct node *n)
{
	struct rusage ru;
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (f && fscanf(f, "%*u %lu", &pages) == 1)
		nm_set(n, NM_RESIDENT, pages * (uint64_t)sysconf(_SC_PAGESIZE));
	if (f)
		fclose(f);
	if (getrusage(RUSAGE_SELF, &ru) == 0)
		nm_set(n, NM_CPU,
		       (uint64_t)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * NSEC_PER_SEC +
			       (uint64_t)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) *
				       NSEC_PER_USEC);
}

/* Where a resync has the swap lock at this moment the figures stay as they were. */
static void collect_store(struct node *n)
{
	struct store_stats s;

	if (pthread_rwlock_tryrdlock(&n->store_swap) != 0)
		return;
	store_lock(n->store);
	store_stats_locked(n->store, &s);
	nm_set(n, NM_LSN, store_lsn_locked(n->store));
	store_unlock(n->store);
	pthread_rwlock_unlock(&n->store_swap);
	nm_set(n, NM_INODES, s.inodes);
	nm_set(n, NM_INODES_MAX, n->inodes_max);
	nm_set(n, NM_NAMES, s.names);
	nm_set(n, NM_ORPHANS, s.orphans);
	nm_set(n, NM_VALUE_BYTES, s.value_bytes);
}

static void collect_log(struct node *n)
{
	struct oplog_usage u;

	oplog_usage(n->log, &u);
	nm_set(n, NM_LOG_USED, u.used_bytes);
	nm_set(n, NM_LOG_CAPACITY, u.capacity_bytes);
	nm_set(n, NM_LOG_ACTIVE_USED, u.active_used_bytes);
	nm_set(n, NM_LOG_ACTIVE_CAPACITY, u.active_capacity_bytes);
	nm_set(n, NM_LOG_ACTIVE_POOL, u.active_pool);
	nm_set(n, NM_LOG_CAN_SWITCH, u.can_switch);
	nm_set(n, NM_LOG_FIRST_LSN, oplog_first_lsn(n->log));
	nm_set(n, NM_LOG_LAST_LSN, oplog_last_lsn(n->log));
}

static void collect_ckpt(struct node *n)
{
	struct ckpt_stats s;

	ckpt_stats(n->ckpt, &s);
	nm_set(n, NM_CKPT_LSN, n->ckpt_lsn);
	nm_set(n, NM_CKPT_LAST_BYTES, s.written_bytes);
	nm_set(n, NM_CKPT_LAST_DURATION, s.duration_ns);
	nm_set(n, NM_CKPT_WRITTEN, s.total_written_bytes);
	nm_set(n, NM_CKPT_COUNT, s.total_count);
	pthread_mutex_lock(&n->lock);
	nm_set(n, NM_CKPT_RUNNING, n->ckpt_running);
	nm_set(n, NM_CKPT_DONE, n->ckpt_done_bytes);
	nm_set(n, NM_CKPT_PLANNED, n->ckpt_total_bytes);
	nm_set(n, NM_CKPT_LAST_FAILED, n->ckpt_error != 0);
	pthread_mutex_unlock(&n->lock);
}

static void collect_slab(struct node *n)
{
	struct slab_stats s;

	slab_stats(n->slab, &s);
	nm_set(n, NM_SLOT_USED, s.used_bytes);
	nm_set(n, NM_SLOT_FREE, s.free_slot_bytes);
	nm_set(n, NM_REGION_FREE, s.free_region_bytes);
	for (unsigned i = 0; i < s.classes; i++) {
		const struct slab_class_stats *c = &s.class_stats[i];

		metric_set(n->figures->class[i].slots, c->slots);
		metric_set(n->figures->class[i].used, c->used_slots);
		metric_set(n->figures->class[i].bytes, c->used_slots * c->slot_bytes);
	}
}

static void collect_memory(struct node *n)
{
	struct region_stats r;
	uint64_t looked;

	region_pool_stats(n->regions, &r);
	looked = r.found + r.not_found;
	nm_set(n, NM_ARENA, n->arena_bytes); /* the pool is a little larger */
	nm_set(n, NM_REGION_USED, r.used_bytes);
	nm_set(n, NM_REGION_READY, r.ready_bytes);
	nm_set(n, NM_REGION_RESERVE, r.reserve_bytes);
	nm_set(n, NM_REGION_HITS, r.hits);
	nm_set(n, NM_REGION_MISSES, r.misses);
	nm_set(n, NM_REGION_REGISTERED, r.registered_bytes);
	if (n->opt->role == OPTIONS_MOUNT) {
		nm_set(n, NM_MR_HITS, r.found);
		nm_set(n, NM_MR_MISSES, r.not_found);
	}
	metric_set_real(n->figures->figure[NM_HIT_RATE],
			looked ? (double)r.found / (double)looked : 1.0);
	collect_slab(n);
}

static void collect_commit(struct node *n)
{
	struct commit_stats s;

	commit_stats(n->commit, &s);
	nm_set(n, NM_COMMIT_POINT, s.commit_point);
	nm_set(n, NM_COMMIT_DURABLE, s.durable_lsn);
	nm_set(n, NM_COMMIT_NEXT, s.next_lsn);
	nm_set(n, NM_APPENDED_RECORDS, s.appended_records);
	nm_set(n, NM_APPENDED_BYTES, s.appended_bytes);
	nm_set(n, NM_APPENDS, s.appends);
	nm_set(n, NM_TIMEOUTS, s.timeouts);
	nm_set(n, NM_WAITING_FOR_LOG, s.waiting_for_log);
	nm_set(n, NM_READ_ONLY, s.read_only);
	nm_set(n, NM_IN_SYNC, s.in_sync);
	nm_set(n, NM_CONNECTED, s.links);
	nm_set(n, NM_CONFIGURED, n->opt->mirrors.count);
	nm_set(n, NM_NEEDED, n->opt->min_mirrors);
	nm_set(n, NM_DEGRADED, s.in_sync < n->opt->mirrors.count);
	nm_set(n, NM_FAILED, s.failed || n->failed);
}

static void collect_link(struct node *n, unsigned i, const struct link_stats *s)
{
	const uint64_t values[NL_COUNT] = {
		[NL_LIVE] = s->state == LINK_LIVE,
		[NL_ACKED] = s->acked_lsn,
		[NL_APPLIED] = s->applied_lsn,
		[NL_SENT_LSN] = s->sent_lsn,
		[NL_LAG_RECORDS] = s->lag_records,
		[NL_LAG_BYTES] = s->lag_bytes,
		[NL_SENT_BYTES] = s->sent_bytes,
		[NL_SENT_RECORDS] = s->sent_records,
		[NL_RECONNECTS] = s->reconnects,
		[NL_FROM_LOG] = s->from_log_records,
		[NL_RESYNC_DONE] = s->resync_done_bytes,
		[NL_RESYNC_PLANNED] = s->resync_total_bytes,
		[NL_RESYNC_RATE] = s->resync_rate_bytes,
		[NL_RESYNC_INSTALLED] = s->resync_installed_bytes,
		[NL_LANES] = s->lanes,
		[NL_LANES_DOWN] = s->lanes_down,
		[NL_LANES_REPLACED] = s->lanes_replaced,
		[NL_LANES_ACTIVE] = s->lanes_active,
		[NL_LANES_DRAINING] = s->lanes_draining,
		[NL_MTU] = s->mtu_bytes,
		[NL_RTT] = s->rtt_ns,
		[NL_HELD_FROM] = s->held_from_lsn,
		[NL_PACE] = s->pace_bytes,
		[NL_LOAD_AGE] = s->load_age_ns,
		[NL_LOAD_LAG] = s->load_apply_lag,
		[NL_LOADS] = s->loads,
		[NL_LOADS_REBUILT] = s->loads_rebuilt,
	};
	unsigned k;

	for (k = 0; k < NL_COUNT; k++)
		metric_set(n->figures->link[i].figure[k], values[k]);
	metric_set_real(n->figures->link[i].figure[NL_LOAD_CPU], s->load_cpu_permille / 1000.0);
	metric_set_real(n->figures->link[i].figure[NL_LOAD_LOG], s->load_log_permille / 1000.0);
	metric_set_real(n->figures->link[i].figure[NL_LOAD_RING], s->load_ring_permille / 1000.0);
	for (k = 0; k < LINK_STATES; k++)
		metric_set(n->figures->link[i].state[k], s->state == (enum link_state)k);
}

static void collect_links(struct node *n)
{
	struct link_stats stats[OPTIONS_MIRRORS_MAX];
	unsigned count = primary_stats(n->primary, stats, OPTIONS_MIRRORS_MAX);

	for (unsigned i = 0; i < count; i++)
		collect_link(n, i, &stats[i]);
}

static void collect_mirror(struct node *n)
{
	struct mirror_stats s;

	mirror_stats(n->mirror, &s);
	nm_set(n, NM_REPLICA_CONNECTED, s.connected);
	nm_set(n, NM_REPLICA_IN_SYNC, s.in_sync);
	nm_set(n, NM_REPLICA_RESYNCING, s.resyncing);
	nm_set(n, NM_REPLICA_RECEIVED, s.received_lsn);
	nm_set(n, NM_REPLICA_DURABLE, s.durable_lsn);
	nm_set(n, NM_REPLICA_APPLIED, s.applied_lsn);
	nm_set(n, NM_REPLICA_RECORDS, s.records);
	nm_set(n, NM_REPLICA_BYTES, s.bytes);
	nm_set(n, NM_REPLICA_BATCHES, s.batches);
	nm_set(n, NM_REPLICA_REORDERED, s.reordered);
	nm_set(n, NM_REPLICA_RESYNC_DONE, s.resync_done_bytes);
	nm_set(n, NM_REPLICA_RESYNC_PLANNED, s.resync_total_bytes);
	nm_set(n, NM_REPLICA_RESYNC_INSTALLED, s.resync_installed_bytes);
	nm_set(n, NM_REPLICA_LANES, s.lanes);
	nm_set(n, NM_REPLICA_MTU, s.mtu_bytes);
	nm_set(n, NM_FAILED, s.failed || n->failed);
}

static void node_collect(void *ctx)
{
	struct node *n = ctx;

	collect_process(n);
	collect_store(n);
	collect_log(n);
	collect_ckpt(n);
	collect_memory(n);
	node_rdma_collect(n);
	nm_set(n, NM_EPOCH, epoch_term(n->epoch));
	nm_set(n, NM_EPOCH_START, epoch_start(n->epoch));
	nm_set(n, NM_RECOVERY_REPLAYED, n->recovered.replayed);
	nm_set(n, NM_RECOVERY_LOAD, n->recovered.load_ns);
	nm_set(n, NM_RECOVERY_REPLAY, n->recovered.replay_ns);
	if (n->commit)
		collect_commit(n);
	if (n->primary)
		collect_links(n);
	if (n->mirror)
		collect_mirror(n);
}

static void register_links(struct node *n)
{
	char addr[sizeof(n->opt->mirrors.list[0].host) + 16];
	unsigned i, k;

	for (i = 0; n->opt->role == OPTIONS_MOUNT && i < n->opt->mirrors.count; i++) {
		addr_format(&n->opt->mirrors.list[i], addr, sizeof(addr));
		for (k = 0; k < NL_COUNT; k++)
			n->figures->link[i].figure[k] = metrics_series(
				n->metrics, &node_link_metric_defs[k], "mirror", addr, NULL);
		for (k = 0; k < LINK_STATES; k++)
			n->figures->link[i].state[k] =
				metrics_series(n->metrics, &node_link_state_def, "mirror", addr,
					       "state", link_state_name((enum link_state)k), NULL);
	}
}

static void register_classes(struct node *n)
{
	char class[24];
	size_t at = 1;

	for (unsigned i = 0; at <= SLAB_SLOT_MAX; i++) {
		size_t bytes = slab_class_bytes(at);

		snprintf(class, sizeof(class), "%zu", bytes);
		n->figures->class[i].slots =
			metrics_series(n->metrics, &node_slab_slots_def, "class", class, NULL);
		n->figures->class[i].used =
			metrics_series(n->metrics, &node_slab_used_slots_def, "class", class, NULL);
		n->figures->class[i].bytes =
			metrics_series(n->metrics, &node_slab_used_bytes_def, "class", class, NULL);
		at = bytes + 1;
	}
}

int node_metrics_open(struct node *n)
{
	bool primary = n->opt->role == OPTIONS_MOUNT;

	n->metrics = metrics_create();
	n->figures = calloc(1, sizeof(*n->figures));
	if (!n->metrics || !n->figures)
		return -ENOMEM;
	metric_set(metrics_series(n->metrics, &node_build_def, "version", PACKAGE_VERSION, "role",
				  primary ? "primary" : "mirror", NULL),
		   1);
	for (unsigned i = 0; i < NM_COUNT; i++)
		if (node_metric_defs[i].roles &
		    (primary ? NODE_METRICS_PRIMARY : NODE_METRICS_MIRROR))
			n->figures->figure[i] =
				metrics_series(n->metrics, &node_metric_defs[i].def, NULL);
	n->figures->ckpt_duration = metrics_series(n->metrics, &node_ckpt_duration_def, NULL);
	register_links(n);
	register_classes(n);
	tuner_metrics_init(&n->tuner, n->metrics);
	tuner_metrics_setting(&n->tuner, TUNER_METRICS_LANES, n->opt->lanes);
	if (primary) /* a mirror's is its session's */
		tuner_metrics_setting(&n->tuner, TUNER_METRICS_POLL_US, n->opt->poll_us);
	tuner_metrics_setting(&n->tuner, TUNER_METRICS_BATCH, PRIMARY_BATCH_MAX);
	tuner_metrics_setting(&n->tuner, TUNER_METRICS_RESERVE_BYTES, n->opt->mr_cache_bytes);
	node_rdma_attend(n);
	nm_set(n, NM_STARTED, clock_real_ns() / NSEC_PER_SEC);
	return metrics_add_collector(n->metrics, node_collect, n);
}

void node_metrics_close(struct node *n)
{
	if (n->metrics)
		metrics_remove_collector(n->metrics, n);
	metrics_destroy(n->metrics);
	free(n->figures);
}

void node_metrics_ckpt(struct node *n, int err)
{
	struct ckpt_stats s;

	if (err) {
		metric_add(n->figures->figure[NM_CKPT_FAILURES], 1);
		return;
	}
	ckpt_stats(n->ckpt, &s);
	metric_observe(n->figures->ckpt_duration, s.duration_ns);
}
