/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's state as the JSON object of "status" (kvfs status --json prints it as it is). Figures
 * come from a snapshot of the metric registry, by the names in the tables below; texts from their
 * modules. Control threads.
 */
#include "config.h"
#include "fs/admin/control.h"

#include "common/clock.h"
#include "common/json_text.h"
#include "fs/admin/metrics_json.h"
#include "fs/node/node_tuner.h"
#include "replication/memory/region.h"
#include "replication/transport/transport_verbs.h"

#include <string.h>
#include <unistd.h>

#define JI(v) ((json_int_t)(v))

/* A figure of the registry as a member of an object. */
struct status_figure {
	const char *key, *metric;
	bool is_flag;
};

static const struct status_figure status_store[] = {
	{ "inodes", "kvfs_inodes", false },
	{ "inodes_max", "kvfs_inodes_max", false },
	{ "names", "kvfs_names", false },
	{ "orphans", "kvfs_orphans", false },
	{ "value_bytes", "kvfs_value_bytes", false },
	{ NULL, NULL, false },
};
static const struct status_figure status_log[] = {
	{ "used_bytes", "kvfs_log_used_bytes", false },
	{ "capacity_bytes", "kvfs_log_capacity_bytes", false },
	{ "active_used_bytes", "kvfs_log_active_used_bytes", false },
	{ "active_capacity_bytes", "kvfs_log_active_capacity_bytes", false },
	{ "active_pool", "kvfs_log_active_pool", false },
	{ "can_switch", "kvfs_log_can_switch", true },
	{ "first_lsn", "kvfs_log_first_lsn", false },
	{ "last_lsn", "kvfs_log_last_lsn", false },
	{ NULL, NULL, false },
};
static const struct status_figure status_ckpt[] = {
	{ "lsn", "kvfs_checkpoint_lsn", false },
	{ "running", "kvfs_checkpoint_running", true },
	{ "done_bytes", "kvfs_checkpoint_done_bytes", false },
	{ "planned_bytes", "kvfs_checkpoint_planned_bytes", false },
	{ "written_bytes", "kvfs_checkpoint_last_written_bytes", false },
	{ "duration_ns", "kvfs_checkpoint_last_duration_seconds", false },
	{ "total_written_bytes", "kvfs_checkpoint_written_bytes_total", false },
	{ "count", "kvfs_checkpoints_total", false },
	{ "failures", "kvfs_checkpoint_failures_total", false },
	{ NULL, NULL, false },
};
static const struct status_figure status_memory[] = {
	{ "arena_bytes", "kvfs_arena_bytes", false },
	{ "region_used_bytes", "kvfs_region_used_bytes", false },
	{ "region_ready_bytes", "kvfs_region_ready_bytes", false },
	{ "region_reserve_bytes", "kvfs_region_reserve_bytes", false },
	{ "region_hits", "kvfs_region_hits_total", false },
	{ "region_misses", "kvfs_region_misses_total", false },
	{ "value_used_bytes", "kvfs_slab_used_slot_bytes", false },
	{ "free_slot_bytes", "kvfs_slab_free_slot_bytes", false },
	{ "free_region_bytes", "kvfs_slab_free_region_bytes", false },
	{ NULL, NULL, false },
};
static const struct status_figure status_commit[] = {
	{ "min_mirrors", "kvfs_mirrors_needed", false },
	{ "commit_point", "kvfs_commit_point_lsn", false },
	{ "durable_lsn", "kvfs_commit_durable_lsn", false },
	{ "next_lsn", "kvfs_commit_next_lsn", false },
	{ "appended_records", "kvfs_log_appended_records_total", false },
	{ "appended_bytes", "kvfs_log_appended_bytes_total", false },
	{ "appends", "kvfs_log_appends_total", false },
	{ "timeouts", "kvfs_commit_timeouts_total", false },
	{ "in_sync", "kvfs_mirrors_in_sync", false },
	{ "links", "kvfs_mirrors_connected", false },
	{ "failed", "kvfs_failed", true },
	{ "waiting_for_log", "kvfs_commit_waiting_for_log", true },
	{ "read_only", "kvfs_commit_read_only", true },
	{ NULL, NULL, false },
};
static const struct status_figure status_link[] = {
	{ "acked_lsn", "kvfs_mirror_acked_lsn", false },
	{ "applied_lsn", "kvfs_mirror_applied_lsn", false },
	{ "sent_lsn", "kvfs_mirror_sent_lsn", false },
	{ "lag_records", "kvfs_mirror_lag_records", false },
	{ "lag_bytes", "kvfs_mirror_lag_bytes", false },
	{ "sent_bytes", "kvfs_mirror_sent_bytes_total", false },
	{ "sent_records", "kvfs_mirror_sent_records_total", false },
	{ "reconnects", "kvfs_mirror_reconnects_total", false },
	{ "retries", "qp_retry_count", false },
	{ "from_log_records", "kvfs_mirror_from_log_records_total", false },
	{ "resync_done_bytes", "kvfs_mirror_resync_done_bytes", false },
	{ "resync_total_bytes", "kvfs_mirror_resync_planned_bytes", false },
	{ "resync_rate_bytes", "kvfs_mirror_resync_bytes_per_second", false },
	{ "resync_installed_bytes", "kvfs_mirror_resync_installed_bytes", false },
	{ "held_from_lsn", "kvfs_mirror_held_from_lsn", false },
	{ "pace_bytes", "kvfs_mirror_pace_bytes_per_second", false },
	{ "lanes", "kvfs_mirror_lanes", false },
	{ "lanes_active", "kvfs_mirror_lanes_active", false },
	{ "lanes_draining", "kvfs_mirror_lanes_draining", false },
	{ "lanes_down", "kvfs_mirror_lanes_down_total", false },
	{ "lanes_replaced", "kvfs_mirror_lanes_replaced_total", false },
	{ "mtu_bytes", "kvfs_mirror_mtu_bytes", false },
	{ "rtt_ns", "kvfs_mirror_round_trip_seconds", false },
	{ NULL, NULL, false },
};
static const struct status_figure status_mirror[] = {
	{ "connected", "kvfs_replica_connected", true },
	{ "in_sync", "kvfs_replica_in_sync", true },
	{ "resyncing", "kvfs_replica_resyncing", true },
	{ "failed", "kvfs_failed", true },
	{ "received_lsn", "kvfs_replica_received_lsn", false },
	{ "durable_lsn", "kvfs_replica_durable_lsn", false },
	{ "applied_lsn", "kvfs_replica_applied_lsn", false },
	{ "records", "kvfs_replica_records_total", false },
	{ "bytes", "kvfs_replica_bytes_total", false },
	{ "batches", "kvfs_replica_batches_total", false },
	{ "reordered", "kvfs_replica_reordered_total", false },
	{ "resync_done_bytes", "kvfs_replica_resync_done_bytes", false },
	{ "resync_total_bytes", "kvfs_replica_resync_planned_bytes", false },
	{ "resync_installed_bytes", "kvfs_replica_resync_installed_bytes", false },
	{ "lanes", "kvfs_replica_lanes", false },
	{ "mtu_bytes", "kvfs_replica_mtu_bytes", false },
	{ NULL, NULL, false },
};
static const struct status_figure status_recovery[] = {
	{ "replayed_records", "kvfs_recovery_replayed_records", false },
	{ "load_ns", "kvfs_recovery_load_seconds", false },
	{ "replay_ns", "kvfs_recovery_replay_seconds", false },
	{ NULL, NULL, false },
};

/* Adds the figures to j, which it returns; of the series whose first label is label. */
static json_t *status_add(json_t *j, const struct metrics_snapshot *snap,
			  const struct status_figure *f, const char *label)
{
	for (; f->key; f++) {
		uint64_t value = metrics_value(snap, f->metric, label);

		json_object_set_new(j, f->key,
				    f->is_flag ? json_boolean(value) : json_integer(JI(value)));
	}
	return j;
}

static json_t *status_volume(const struct node *n)
{
	const struct volume_super *s = &n->vol->super;
	char uuid[VOLUME_UUID_TEXT_BYTES], node[9];

	volume_uuid_format(s->uuid, uuid);
	snprintf(node, sizeof(node), "%08x", s->node_id);
	return json_pack("{s:o, s:s, s:s, s:s, s:b, s:s}", "path", json_text(n->vol->path), "uuid",
			 uuid, "label", s->label, "node_id", node, "pmem",
			 oplog_is_pmem(n->log), "state",
			 s->state == VOLUME_READY ? "ready" : "resyncing");
}

/* Mirrors without which the primary acknowledges nothing, as it stands on media. */
static json_t *status_sync_nodes(struct node *n)
{
	const struct volume_super *s = &n->vol->super;
	json_t *list = json_array();

	pthread_mutex_lock(&n->super_lock);
	for (uint32_t i = 0; i < s->sync_count; i++)
		json_array_append_new(list, json_sprintf("%08x", s->sync_nodes[i]));
	pthread_mutex_unlock(&n->super_lock);
	return list;
}

static json_t *status_ckpt_json(struct node *n, const struct metrics_snapshot *snap)
{
	struct ckpt_stats s;
	json_t *j = status_add(json_object(), snap, status_ckpt, NULL);

	ckpt_stats(n->ckpt, &s);
	json_object_set_new(j, "direct_io", json_boolean(s.direct_io));
	json_object_set_new(j, "io_uring", json_boolean(s.io_uring));
	pthread_mutex_lock(&n->lock);
	json_object_set_new(j, "last_error", json_integer(n->ckpt_error));
	pthread_mutex_unlock(&n->lock);
	return j;
}

static json_t *status_memory_json(struct node *n, const struct metrics_snapshot *snap)
{
	const char *remedy = NULL;
	struct region_stats r;

	region_pool_stats(n->regions, &r);
	if (r.register_err)
		remedy = verbs_remedy(r.register_err);
	return status_add(json_pack("{s:b, s:I, s:s, s:s, s:I, s:I}", "hugepages", r.hugepages,
				    "registered_bytes", JI(r.registered_bytes), "register_error",
				    r.register_err ? strerror(-r.register_err) : "",
				    "register_remedy", remedy ? remedy : "", "mr_hits",
				    JI(r.found), "mr_misses", JI(r.not_found)),
			  snap, status_memory, NULL);
}

static const char *status_protocol(unsigned protocol)
{
	return protocol == COMMIT_PROTOCOL_A ? "A" : protocol == COMMIT_PROTOCOL_B ? "B" : "C";
}

/* What the mirror told of itself; null: nothing yet. */
static json_t *status_load_json(const struct link_stats *s)
{
	if (!s->load_known)
		return json_null();
	return json_pack("{s:I, s:f, s:f, s:f, s:I, s:I, s:I}", "age_ns", JI(s->load_age_ns), "cpu",
			 s->load_cpu_permille / 1000.0, "log", s->load_log_permille / 1000.0,
			 "ring", s->load_ring_permille / 1000.0, "apply_lag_records",
			 JI(s->load_apply_lag), "received", JI(s->loads), "new_ways",
			 JI(s->loads_rebuilt));
}

static json_t *status_links_json(struct node *n, const struct metrics_snapshot *snap)
{
	struct link_stats stats[OPTIONS_MIRRORS_MAX];
	unsigned count = n->primary ? primary_stats(n->primary, stats, OPTIONS_MIRRORS_MAX) : 0, i;
	json_t *list = json_array();

	for (i = 0; i < count; i++) {
		const struct link_stats *s = &stats[i];
		json_t *j = json_pack("{s:o, s:s, s:o, s:s, s:o, s:o, s:I}", "addr",
				      json_text(s->addr), "transport", s->transport,
				      "transport_note", json_text(s->transport_note), "state",
				      link_state_name(s->state), "last_error",
				      json_text(s->last_error), "ended_why",
				      json_text(s->ended_why), "ended_ns", JI(s->ended_ns));

		json_object_set_new(j, "mtu_note", json_text(s->mtu_note));
		json_object_set_new(j, "load", status_load_json(s));
		json_array_append_new(list, status_add(j, snap, status_link, s->addr));
	}
	return list;
}

static json_t *status_mirror_json(struct node *n, const struct metrics_snapshot *snap)
{
	struct mirror_stats s;
	json_t *j;

	mirror_stats(n->mirror, &s);
	j = json_pack("{s:o, s:s, s:o, s:o, s:i}", "primary", json_text(s.primary), "transport",
		      s.transport, "last_error", json_text(s.last_error), "mtu_note",
		      json_text(s.mtu_note), "listen_port", (int)s.listen_port);
	return status_add(j, snap, status_mirror, NULL);
}

static json_t *status_recovery_json(const struct node *n, const struct metrics_snapshot *snap)
{
	json_t *j = json_pack("{s:I, s:I, s:I, s:b}", "checkpoint", JI(n->recovered.ckpt_number),
			      "checkpoint_lsn", JI(n->recovered.ckpt_lsn), "orphans",
			      JI(n->recovered.orphans), "torn_tail", n->recovered.torn_tail);

	return status_add(j, snap, status_recovery, NULL);
}

/* Of the whole state, for comparing nodes; the store must be quiet. */
static json_t *status_digest(struct node *n)
{
	uint8_t digest[16];
	char text[33];
	unsigned i;

	pthread_rwlock_rdlock(&n->store_swap);
	store_digest(n->store, digest);
	pthread_rwlock_unlock(&n->store_swap);
	for (i = 0; i < sizeof(digest); i++)
		snprintf(text + 2 * i, 3, "%02x", digest[i]);
	return json_string(text);
}

/* How the kernel's requests come. */
static json_t *status_requests(const struct fs *fs)
{
	const char *why = fs->rings_why;

	return json_pack("{s:i, s:o}", "rings", (int)fs->ring_count, "no_rings_because",
			 json_text(why ? why : ""));
}

static void status_add_role(json_t *j, struct node *n, const struct metrics_snapshot *snap)
{
	if (n->commit) {
		json_object_set_new(j, "commit",
				    status_add(json_pack("{s:s}", "protocol",
							 status_protocol(n->opt->protocol)),
					       snap, status_commit, NULL));
		json_object_set_new(j, "mirrors", status_links_json(n, snap));
		json_object_set_new(j, "tuner", node_tuner_json(n));
	}
	if (n->commit)
		json_object_set_new(j, "in_sync_nodes", status_sync_nodes(n));
	if (n->mirror)
		json_object_set_new(j, "mirror", status_mirror_json(n, snap));
}

json_t *status_json(struct node *n, struct fs *fs, bool with_digest)
{
	struct metrics_snapshot snap;
	json_t *j;

	if (metrics_snapshot(n->metrics, &snap) != 0)
		return NULL;
	j = json_pack("{s:b, s:s, s:s, s:i, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}",
		      "ok", 1, "version", PACKAGE_VERSION, "role", n->commit ? "primary" : "mirror",
		      "pid", (int)getpid(), "mountpoint",
		      json_text(fs && fs->mountpoint ? fs->mountpoint : ""), "metrics",
		      json_text(n->metrics_address ? n->metrics_address : ""), "epoch",
		      JI(metrics_value(&snap, "kvfs_epoch", NULL)), "lsn",
		      JI(metrics_value(&snap, "kvfs_lsn", NULL)), "volume", status_volume(n),
		      "store", status_add(json_object(), &snap, status_store, NULL), "log",
		      status_add(json_object(), &snap, status_log, NULL), "checkpoint",
		      status_ckpt_json(n, &snap), "memory", status_memory_json(n, &snap),
		      "recovery", status_recovery_json(n, &snap));
	if (fs)
		json_object_set_new(j, "requests", status_requests(fs));
	json_object_set_new(j, "epoch_start",
			    json_integer(JI(metrics_value(&snap, "kvfs_epoch_start", NULL))));
	status_add_role(j, n, &snap);
	metrics_snapshot_free(&snap);
	if (with_digest)
		json_object_set_new(j, "digest", status_digest(n));
	return j;
}

json_t *status_metrics_json(struct node *n)
{
	struct metrics_snapshot snap;
	json_t *j;

	if (metrics_snapshot(n->metrics, &snap) != 0)
		return NULL;
	j = json_pack("{s:b, s:I, s:o}", "ok", 1, "time_ns", JI(clock_mono_ns()), "metrics",
		      metrics_json(&snap));
	metrics_snapshot_free(&snap);
	return j;
}
