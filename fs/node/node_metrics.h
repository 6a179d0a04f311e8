/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_NODE_METRICS_H
#define KVFS_FS_NODE_METRICS_H
/*
 * A node's figures in its metric registry. Modules count for themselves; a collector copies that in
 * when a snapshot is taken. What is measured on the data path (latencies, requests) its modules
 * observe in place.
 *
 * The collector takes the modules' locks, each for a moment; on a mirror it does not wait for a
 * resync but leaves the store's figures as they were. Snapshots only while the node runs: after
 * node_start_primary() or node_start_mirror(), before node_stop().
 */
#include "common/metrics.h"

struct node;
struct node_metrics;

/* n->opt is set. -ENOMEM. */
int node_metrics_open(struct node *n);
void node_metrics_close(struct node *n); /* the last thing: all threads that count are gone */

/* A checkpoint ended; err as node_ckpt_run returns it. */
void node_metrics_ckpt(struct node *n, int err);

/* Bits of the defs table: who has the figure. */
enum { NODE_METRICS_PRIMARY = 1, NODE_METRICS_MIRROR = 2, NODE_METRICS_BOTH = 3 };

/* One for each row of node_metric_defs, in its order. */
enum node_metric {
	NM_FAILED, NM_EPOCH, NM_EPOCH_START, NM_LSN, NM_CPU, NM_RESIDENT, NM_STARTED,
	NM_INODES, NM_INODES_MAX, NM_NAMES, NM_ORPHANS, NM_VALUE_BYTES,
	NM_LOG_USED, NM_LOG_CAPACITY, NM_LOG_ACTIVE_USED,
	NM_LOG_ACTIVE_CAPACITY, NM_LOG_ACTIVE_POOL, NM_LOG_CAN_SWITCH, NM_LOG_FIRST_LSN,
	NM_LOG_LAST_LSN, NM_CKPT_LSN, NM_CKPT_RUNNING, NM_CKPT_DONE, NM_CKPT_PLANNED,
	NM_CKPT_LAST_BYTES, NM_CKPT_LAST_DURATION, NM_CKPT_WRITTEN, NM_CKPT_COUNT,
	NM_CKPT_FAILURES, NM_CKPT_LAST_FAILED, NM_ARENA, NM_REGION_USED, NM_REGION_READY,
	NM_REGION_RESERVE, NM_REGION_HITS, NM_REGION_MISSES, NM_REGION_REGISTERED, NM_MR_HITS,
	NM_MR_MISSES, NM_HIT_RATE, NM_SLOT_USED,
	NM_SLOT_FREE, NM_REGION_FREE, NM_COMMIT_POINT, NM_COMMIT_DURABLE, NM_COMMIT_NEXT,
	NM_APPENDED_RECORDS, NM_APPENDED_BYTES, NM_APPENDS, NM_TIMEOUTS, NM_WAITING_FOR_LOG,
	NM_READ_ONLY, NM_IN_SYNC, NM_CONNECTED, NM_CONFIGURED, NM_NEEDED, NM_DEGRADED,
	NM_REPLICA_CONNECTED, NM_REPLICA_IN_SYNC, NM_REPLICA_RESYNCING,
	NM_REPLICA_RECEIVED, NM_REPLICA_DURABLE, NM_REPLICA_APPLIED,
	NM_REPLICA_RECORDS, NM_REPLICA_BYTES, NM_REPLICA_BATCHES, NM_REPLICA_REORDERED,
	NM_REPLICA_RESYNC_DONE, NM_REPLICA_RESYNC_PLANNED, NM_REPLICA_RESYNC_INSTALLED,
	NM_REPLICA_LANES, NM_REPLICA_MTU,
	NM_RECOVERY_REPLAYED, NM_RECOVERY_LOAD, NM_RECOVERY_REPLAY,
	NM_COUNT
};

/* The same for figures of each mirror, with the label mirror="ADDR". */
enum node_link_metric {
	NL_LIVE, NL_ACKED, NL_APPLIED, NL_SENT_LSN, NL_LAG_RECORDS, NL_LAG_BYTES,
	NL_SENT_BYTES, NL_SENT_RECORDS, NL_RECONNECTS, NL_FROM_LOG, NL_RESYNC_DONE,
	NL_RESYNC_PLANNED, NL_RESYNC_RATE, NL_RESYNC_INSTALLED, NL_LANES, NL_LANES_DOWN,
	NL_LANES_REPLACED, NL_LANES_ACTIVE, NL_LANES_DRAINING, NL_MTU, NL_RTT, NL_HELD_FROM,
	NL_PACE, NL_LOAD_AGE,
	NL_LOAD_CPU, NL_LOAD_LOG, NL_LOAD_RING, NL_LOAD_LAG, NL_LOADS, NL_LOADS_REBUILT,
	NL_COUNT
};

/* node_metrics_defs.c */
struct node_metric_def {
	struct metrics_def def;
	unsigned roles;
};
extern const struct node_metric_def node_metric_defs[NM_COUNT];
extern const struct metrics_def node_link_metric_defs[NL_COUNT];
extern const struct metrics_def node_link_state_def;    /* also state="…": 1 for the present one */
extern const struct metrics_def node_slab_slots_def;
extern const struct metrics_def node_slab_used_slots_def, node_slab_used_bytes_def;
extern const struct metrics_def node_build_def, node_ckpt_duration_def;

#endif
