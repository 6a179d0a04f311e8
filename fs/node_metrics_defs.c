/* SPDX-License-Identifier: Apache-2.0 */
/* Names and descriptions of a node's figures: see node_metrics.h. Constants only. */
#include "fs/node_metrics.h"

#define P NODE_METRICS_PRIMARY
#define M NODE_METRICS_MIRROR
#define B NODE_METRICS_BOTH
#define DEF(n, h, k, in_ns) { .name = (n), .help = (h), .kind = (k), .ns = (in_ns) }
#define GAUGE(i, roles, n, h) [i] = { DEF(n, h, METRICS_GAUGE, false), roles }
#define GAUGE_NS(i, roles, n, h) [i] = { DEF(n, h, METRICS_GAUGE, true), roles }
#define COUNTER(i, roles, n, h) [i] = { DEF(n, h, METRICS_COUNTER, false), roles }
#define COUNTER_NS(i, roles, n, h) [i] = { DEF(n, h, METRICS_COUNTER, true), roles }
#define LINK_GAUGE(i, n, h) [i] = DEF(n, h, METRICS_GAUGE, false)
#define LINK_GAUGE_NS(i, n, h) [i] = DEF(n, h, METRICS_GAUGE, true)
#define LINK_COUNTER(i, n, h) [i] = DEF(n, h, METRICS_COUNTER, false)

const struct node_metric_def node_metric_defs[NM_COUNT] = {
	GAUGE(NM_FAILED, B, "kvfs_failed", "1: it has failed and takes no change any more."),
	GAUGE(NM_EPOCH, B, "kvfs_epoch", "Epoch of the newest record."),
	GAUGE(NM_EPOCH_START, B, "kvfs_epoch_start", "Which start of a primary in that epoch."),
	GAUGE(NM_LSN, B, "kvfs_lsn", "LSN of the state in memory."),
	COUNTER_NS(NM_CPU, B, "process_cpu_seconds_total",
		"User and system CPU time of the process."),
	GAUGE(NM_RESIDENT, B, "process_resident_memory_bytes",
		"Resident memory, the arena's pages included."),
	GAUGE(NM_STARTED, B, "process_start_time_seconds", "Start, in seconds since 1970."),
	GAUGE(NM_INODES, B, "kvfs_inodes", "Keys and directories."),
	GAUGE(NM_INODES_MAX, B, "kvfs_inodes_max", "Most keys and directories (inodes=)."),
	GAUGE(NM_NAMES, B, "kvfs_names", "Names in directories."),
	GAUGE(NM_ORPHANS, B, "kvfs_orphans", "Unlinked and still open."),
	GAUGE(NM_VALUE_BYTES, B, "kvfs_value_bytes", "Bytes of all values."),
	GAUGE(NM_LOG_USED, B, "kvfs_log_used_bytes", "Bytes of records in both log pools."),
	GAUGE(NM_LOG_CAPACITY, B, "kvfs_log_capacity_bytes", "Size of both log pools."),
	GAUGE(NM_LOG_ACTIVE_USED, B, "kvfs_log_active_used_bytes",
		"Bytes of records in the active pool."),
	GAUGE(NM_LOG_ACTIVE_CAPACITY, B, "kvfs_log_active_capacity_bytes",
		"Size of the active pool."),
	GAUGE(NM_LOG_ACTIVE_POOL, B, "kvfs_log_active_pool", "Which pool is active, 0 or 1."),
	GAUGE(NM_LOG_CAN_SWITCH, B, "kvfs_log_can_switch",
		"1: a checkpoint covers the other pool."),
	GAUGE(NM_LOG_FIRST_LSN, B, "kvfs_log_first_lsn", "First record the log holds, 0 for none."),
	GAUGE(NM_LOG_LAST_LSN, B, "kvfs_log_last_lsn", "Last record the log holds."),
	GAUGE(NM_CKPT_LSN, B, "kvfs_checkpoint_lsn", "LSN of the newest durable checkpoint."),
	GAUGE(NM_CKPT_RUNNING, B, "kvfs_checkpoint_running", "1: one is being written."),
	GAUGE(NM_CKPT_DONE, B, "kvfs_checkpoint_done_bytes",
		"Written of the one that runs or ran last."),
	GAUGE(NM_CKPT_PLANNED, B, "kvfs_checkpoint_planned_bytes",
		"Size of the one that runs or ran last."),
	GAUGE(NM_CKPT_LAST_BYTES, B, "kvfs_checkpoint_last_written_bytes",
		"Written by the last one."),
	GAUGE_NS(NM_CKPT_LAST_DURATION, B, "kvfs_checkpoint_last_duration_seconds",
		"Time of the last one."),
	COUNTER(NM_CKPT_WRITTEN, B, "kvfs_checkpoint_written_bytes_total",
		"Written by all checkpoints."),
	COUNTER(NM_CKPT_COUNT, B, "kvfs_checkpoints_total", "Checkpoints made."),
	COUNTER(NM_CKPT_FAILURES, B, "kvfs_checkpoint_failures_total", "Checkpoints that failed."),
	GAUGE(NM_CKPT_LAST_FAILED, B, "kvfs_checkpoint_last_failed", "1: the last one failed."),
	GAUGE(NM_ARENA, B, "kvfs_arena_bytes", "Memory for values (arena=)."),
	GAUGE(NM_REGION_USED, B, "kvfs_region_used_bytes",
		"Of it, in regions that the slab has taken."),
	GAUGE(NM_REGION_READY, B, "kvfs_region_ready_bytes",
		"Regions mapped and registered ahead of need."),
	GAUGE(NM_REGION_RESERVE, B, "kvfs_region_reserve_bytes",
		"What is to be ready (mr_cache_size=)."),
	COUNTER(NM_REGION_HITS, B, "kvfs_region_hits_total", "Regions taken that were ready."),
	COUNTER(NM_REGION_MISSES, B, "kvfs_region_misses_total",
		"Regions prepared while a write waited."),
	GAUGE(NM_HIT_RATE, B, "mr_cache_hit_rate",
		"Share of regions taken that were ready, since the start; 1 while none was taken."),
	GAUGE(NM_SLOT_USED, B, "kvfs_slab_used_slot_bytes",
		"Usable bytes of slots in use, all classes."),
	GAUGE(NM_SLOT_FREE, B, "kvfs_slab_free_slot_bytes",
		"Usable bytes of free slots in taken regions."),
	GAUGE(NM_REGION_FREE, B, "kvfs_slab_free_region_bytes",
		"Bytes of regions without a used slot."),
	GAUGE(NM_COMMIT_POINT, P, "kvfs_commit_point_lsn",
		"Everything up to here is acknowledged."),
	GAUGE(NM_COMMIT_DURABLE, P, "kvfs_commit_durable_lsn", "Last record in the local log."),
	GAUGE(NM_COMMIT_NEXT, P, "kvfs_commit_next_lsn", "LSN of the next change."),
	COUNTER(NM_APPENDED_RECORDS, P, "kvfs_log_appended_records_total",
		"Records appended to the log."),
	COUNTER(NM_APPENDED_BYTES, P, "kvfs_log_appended_bytes_total",
		"Bytes appended to the log."),
	COUNTER(NM_APPENDS, P, "kvfs_log_appends_total", "Appends, each of one or more records."),
	COUNTER(NM_TIMEOUTS, P, "kvfs_commit_timeouts_total",
		"Changes and reads that failed for lack of mirrors or log room within timeout=."),
	GAUGE(NM_WAITING_FOR_LOG, P, "kvfs_commit_waiting_for_log",
		"1: changes wait for room in the log."),
	GAUGE(NM_IN_SYNC, P, "kvfs_mirrors_in_sync", "Mirrors that a commit waits for."),
	GAUGE(NM_CONNECTED, P, "kvfs_mirrors_connected", "Mirrors with a session."),
	GAUGE(NM_CONFIGURED, P, "kvfs_mirrors_configured", "Mirrors given (mirror=)."),
	GAUGE(NM_NEEDED, P, "kvfs_mirrors_needed",
		"Mirrors in sync that a change needs (min_mirrors=)."),
	GAUGE(NM_DEGRADED, P, "kvfs_degraded", "1: fewer mirrors are in sync than were given."),
	GAUGE(NM_REPLICA_CONNECTED, M, "kvfs_replica_connected", "1: a primary is connected."),
	GAUGE(NM_REPLICA_IN_SYNC, M, "kvfs_replica_in_sync",
		"1: the primary waits for this mirror before it acknowledges."),
	GAUGE(NM_REPLICA_RESYNCING, M, "kvfs_replica_resyncing",
		"1: a checkpoint is being received."),
	GAUGE(NM_REPLICA_RECEIVED, M, "kvfs_replica_received_lsn",
		"Last record received in order."),
	GAUGE(NM_REPLICA_DURABLE, M, "kvfs_replica_durable_lsn",
		"Last record in this mirror's log."),
	GAUGE(NM_REPLICA_APPLIED, M, "kvfs_replica_applied_lsn", "Last record executed."),
	COUNTER(NM_REPLICA_RECORDS, M, "kvfs_replica_records_total",
		"Records received and executed."),
	COUNTER(NM_REPLICA_BYTES, M, "kvfs_replica_bytes_total", "Their bytes."),
	COUNTER(NM_REPLICA_BATCHES, M, "kvfs_replica_batches_total",
		"Runs in which they were executed."),
	COUNTER(NM_REPLICA_REORDERED, M, "kvfs_replica_reordered_total",
		"Records that came before an older one."),
	GAUGE(NM_REPLICA_RESYNC_DONE, M, "kvfs_replica_resync_done_bytes", "Received of a resync."),
	GAUGE(NM_REPLICA_RESYNC_PLANNED, M, "kvfs_replica_resync_planned_bytes",
		"Size of a resync."),
	GAUGE(NM_REPLICA_LANES, M, "kvfs_replica_lanes", "Lanes of the primary's session."),
	GAUGE(NM_RECOVERY_REPLAYED, B, "kvfs_recovery_replayed_records",
		"Records replayed at the start."),
	GAUGE_NS(NM_RECOVERY_LOAD, B, "kvfs_recovery_load_seconds",
		"Time to load the checkpoint then."),
	GAUGE_NS(NM_RECOVERY_REPLAY, B, "kvfs_recovery_replay_seconds",
		"Time to replay the log then."),
};

const struct metrics_def node_link_metric_defs[NL_COUNT] = {
	LINK_GAUGE(NL_LIVE, "kvfs_mirror_live", "1: live, in the set that a commit waits for."),
	LINK_GAUGE(NL_ACKED, "kvfs_mirror_acked_lsn",
		"Last record acknowledged as in the mirror's log."),
	LINK_GAUGE(NL_APPLIED, "kvfs_mirror_applied_lsn",
		"Last record acknowledged as executed there."),
	LINK_GAUGE(NL_SENT_LSN, "kvfs_mirror_sent_lsn", "Last record sent to it."),
	LINK_GAUGE(NL_LAG_RECORDS, "kvfs_mirror_lag_records",
		"Records in the local log and not acknowledged by it."),
	LINK_GAUGE(NL_LAG_BYTES, "kvfs_mirror_lag_bytes",
		"The same in bytes, estimated by the mean record."),
	LINK_COUNTER(NL_SENT_BYTES, "kvfs_mirror_sent_bytes_total", "Bytes of records sent to it."),
	LINK_COUNTER(NL_SENT_RECORDS, "kvfs_mirror_sent_records_total", "Records sent to it."),
	LINK_COUNTER(NL_RECONNECTS, "kvfs_mirror_reconnects_total", "Sessions with it that ended."),
	LINK_COUNTER(NL_FROM_LOG, "kvfs_mirror_from_log_records_total",
		"Of the records sent, those read from the log."),
	LINK_GAUGE(NL_RESYNC_DONE, "kvfs_mirror_resync_done_bytes", "Sent of the last resync."),
	LINK_GAUGE(NL_RESYNC_PLANNED, "kvfs_mirror_resync_planned_bytes",
		"Size of the last resync."),
	LINK_GAUGE(NL_RESYNC_RATE, "kvfs_mirror_resync_bytes_per_second",
		"Speed of the last resync."),
	LINK_GAUGE(NL_LANES, "kvfs_mirror_lanes", "Lanes of its session."),
	LINK_COUNTER(NL_LANES_DOWN, "kvfs_mirror_lanes_down_total", "Lanes that failed."),
	LINK_GAUGE_NS(NL_RTT, "kvfs_mirror_round_trip_seconds",
		"Round trip of the last heartbeat."),
	LINK_GAUGE(NL_HELD_FROM, "kvfs_mirror_held_from_lsn",
		"The log is kept for the mirror from here on; 0: it is not."),
	LINK_GAUGE(NL_PACE, "kvfs_mirror_pace_bytes_per_second",
		"What catching up leaves to the writers; 0: they are not slowed."),
};

const struct metrics_def node_link_state_def =
	DEF("kvfs_mirror_state",
	    "1 for the state that the link to the mirror is in.", METRICS_GAUGE, false);
const struct metrics_def node_slab_slots_def =
	DEF("kvfs_slab_slots",
	    "Slots in pages of the class, used or free; class: usable bytes of one.", METRICS_GAUGE, false);
const struct metrics_def node_slab_used_slots_def =
	DEF("kvfs_slab_used_slots",
	    "Slots of the class in use.", METRICS_GAUGE, false);
const struct metrics_def node_slab_used_bytes_def =
	DEF("kvfs_slab_used_bytes",
	    "Usable bytes of the class's slots in use.", METRICS_GAUGE, false);
const struct metrics_def node_build_def =
	DEF("kvfs_build_info",
	    "Version and role of this kvfs; always 1.", METRICS_GAUGE, false);
const struct metrics_def node_ckpt_duration_def = {
	.name = "kvfs_checkpoint_duration_seconds",
	.help = "Time of checkpoints, from 1 ms.",
	.kind = METRICS_HISTOGRAM,
	.ns = true,
	.first_bits = 20, /* 1 ms to 9 hours */
};
