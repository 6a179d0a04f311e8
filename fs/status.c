/* SPDX-License-Identifier: Apache-2.0 */
/* A node's state as the JSON object of "status" (kvfs status --json prints it as it is). Control threads. */
#include "config.h"
#include "fs/control.h"

#include "replication/region.h"

#include <string.h>
#include <unistd.h>

#define JI(v) ((json_int_t)(v))

static json_t *status_volume(const struct node *n)
{
	const struct volume_super *s = &n->vol->super;
	char uuid[37];
	unsigned i, at = 0;

	for (i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			uuid[at++] = '-';
		snprintf(uuid + at, 3, "%02x", s->uuid[i]);
		at += 2;
	}
	return json_pack("{s:s, s:s, s:s, s:I, s:b, s:s}", "path", n->vol->path, "uuid", uuid, "label", s->label,
			 "node_id", JI(s->node_id), "pmem", oplog_is_pmem(n->log), "state",
			 s->state == VOLUME_READY ? "ready" : "resyncing");
}

/* Mirrors without which the primary acknowledges nothing, as it stands on media. */
static json_t *status_sync_nodes(struct node *n)
{
	const struct volume_super *s = &n->vol->super;
	json_t *list = json_array();

	pthread_mutex_lock(&n->super_lock);
	for (uint32_t i = 0; i < s->sync_count; i++)
		json_array_append_new(list, json_integer(s->sync_nodes[i]));
	pthread_mutex_unlock(&n->super_lock);
	return list;
}

static json_t *status_log(struct node *n)
{
	struct oplog_usage u;

	oplog_usage(n->log, &u);
	return json_pack("{s:I, s:I, s:I, s:I, s:i, s:b, s:I, s:I}", "used_bytes", JI(u.used_bytes), "capacity_bytes",
			 JI(u.capacity_bytes), "active_used_bytes", JI(u.active_used_bytes), "active_capacity_bytes",
			 JI(u.active_capacity_bytes), "active_pool", (int)u.active_pool, "can_switch",
			 u.can_switch, "first_lsn", JI(oplog_first_lsn(n->log)), "last_lsn",
			 JI(oplog_last_lsn(n->log)));
}

static json_t *status_ckpt(struct node *n)
{
	struct ckpt_stats s;
	json_t *j;

	ckpt_stats(n->ckpt, &s);
	pthread_mutex_lock(&n->lock);
	j = json_pack("{s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:i}", "lsn", JI(n->ckpt_lsn), "running",
		      n->ckpt_running, "done_bytes", JI(n->ckpt_done_bytes), "planned_bytes", JI(n->ckpt_total_bytes),
		      "written_bytes", JI(s.written_bytes), "duration_ns", JI(s.duration_ns), "total_written_bytes",
		      JI(s.total_written_bytes), "count", JI(s.total_count), "direct_io", s.direct_io, "io_uring",
		      s.io_uring, "last_error", n->ckpt_error);
	pthread_mutex_unlock(&n->lock);
	return j;
}

static json_t *status_memory(struct node *n)
{
	struct region_stats r;
	struct slab_stats s;

	region_pool_stats(n->regions, &r);
	slab_stats(n->slab, &s);
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:s, s:I, s:I}", "arena_bytes",
			 JI(n->arena_bytes),
			 "region_used_bytes", JI(r.used_bytes), "region_ready_bytes", JI(r.ready_bytes),
			 "region_reserve_bytes", JI(r.reserve_bytes), "region_hits", JI(r.hits), "region_misses",
			 JI(r.misses), "value_used_bytes", JI(s.used_bytes), "free_slot_bytes", JI(s.free_slot_bytes),
			 "free_region_bytes", JI(s.free_region_bytes), "hugepages", r.hugepages,
			 "registered_bytes", JI(r.registered_bytes), "register_error",
			 r.register_err ? strerror(-r.register_err) : "", "mr_hits", JI(r.found), "mr_misses",
			 JI(r.not_found));
}

static json_t *status_store(struct node *n, uint64_t *ret_lsn)
{
	struct store_stats s;

	pthread_rwlock_rdlock(&n->store_swap);
	store_lock(n->store);
	store_stats_locked(n->store, &s);
	*ret_lsn = store_lsn_locked(n->store);
	store_unlock(n->store);
	pthread_rwlock_unlock(&n->store_swap);
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "inodes", JI(s.inodes), "inodes_max", JI(n->inodes_max), "names",
			 JI(s.names), "orphans", JI(s.orphans), "value_bytes", JI(s.value_bytes));
}

static json_t *status_commit(struct node *n)
{
	struct commit_stats s;

	commit_stats(n->commit, &s);
	return json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:b, s:b}", "protocol",
			 n->opt->protocol == COMMIT_PROTOCOL_A ? "A" : n->opt->protocol == COMMIT_PROTOCOL_B ? "B" : "C",
			 "min_mirrors", (int)n->opt->min_mirrors, "commit_point", JI(s.commit_point), "durable_lsn",
			 JI(s.durable_lsn), "next_lsn", JI(s.next_lsn), "appended_records", JI(s.appended_records),
			 "appended_bytes", JI(s.appended_bytes), "appends", JI(s.appends), "timeouts", JI(s.timeouts),
			 "in_sync", (int)s.in_sync, "links", (int)s.links, "failed", s.failed || n->failed,
			 "waiting_for_log", s.waiting_for_log);
}

static json_t *status_link(const struct link_stats *s)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:I}",
			 "addr", s->addr, "transport", s->transport, "transport_note", s->transport_note, "state",
			 link_state_name(s->state), "last_error",
			 s->last_error, "acked_lsn", JI(s->acked_lsn), "applied_lsn", JI(s->applied_lsn), "sent_lsn",
			 JI(s->sent_lsn), "lag_records", JI(s->lag_records), "lag_bytes", JI(s->lag_bytes), "sent_bytes",
			 JI(s->sent_bytes), "sent_records", JI(s->sent_records), "reconnects", JI(s->reconnects),
			 "from_log_records", JI(s->from_log_records), "resync_done_bytes", JI(s->resync_done_bytes),
			 "resync_total_bytes", JI(s->resync_total_bytes), "resync_rate_bytes", JI(s->resync_rate_bytes),
			 "held_from_lsn", JI(s->held_from_lsn), "pace_bytes", JI(s->pace_bytes),
			 "lanes", (int)s->lanes, "lanes_down", (int)s->lanes_down, "rtt_ns", JI(s->rtt_ns));
}

static json_t *status_links(struct node *n)
{
	struct link_stats stats[OPTIONS_MIRRORS_MAX];
	unsigned count = n->primary ? primary_stats(n->primary, stats, OPTIONS_MIRRORS_MAX) : 0, i;
	json_t *list = json_array();

	for (i = 0; i < count; i++)
		json_array_append_new(list, status_link(&stats[i]));
	return list;
}

static json_t *status_mirror(struct node *n)
{
	struct mirror_stats s;

	mirror_stats(n->mirror, &s);
	return json_pack("{s:b, s:b, s:b, s:b, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i}",
			 "connected", s.connected, "in_sync", s.in_sync, "resyncing", s.resyncing, "failed", s.failed || n->failed, "primary",
			 s.primary, "transport", s.transport, "last_error", s.last_error, "received_lsn",
			 JI(s.received_lsn), "durable_lsn", JI(s.durable_lsn), "applied_lsn", JI(s.applied_lsn),
			 "records", JI(s.records), "bytes", JI(s.bytes), "batches", JI(s.batches), "reordered",
			 JI(s.reordered), "resync_done_bytes", JI(s.resync_done_bytes), "resync_total_bytes",
			 JI(s.resync_total_bytes), "lanes", (int)s.lanes, "listen_port", (int)s.listen_port);
}

static json_t *status_recovery(const struct node *n)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "checkpoint", JI(n->recovered.ckpt_number),
			 "checkpoint_lsn", JI(n->recovered.ckpt_lsn), "load_ns", JI(n->recovered.load_ns), "replayed_records",
			 JI(n->recovered.replayed), "replay_ns", JI(n->recovered.replay_ns), "orphans",
			 JI(n->recovered.orphans), "torn_tail", n->recovered.torn_tail);
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

	return json_pack("{s:i, s:s}", "rings", (int)fs->ring_count, "no_rings_because", why ? why : "");
}

json_t *status_json(struct node *n, struct fs *fs, bool with_digest)
{
	uint64_t lsn = 0;
	json_t *store = status_store(n, &lsn);
	json_t *j = json_pack("{s:b, s:s, s:s, s:i, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "ok", 1, "version",
			      PACKAGE_VERSION, "role", n->commit ? "primary" : "mirror", "pid", (int)getpid(),
			      "mountpoint", fs && fs->mountpoint ? fs->mountpoint : "", "epoch", JI(epoch_term(n->epoch)),
			      "epoch_start", JI(epoch_start(n->epoch)), "lsn", JI(lsn), "volume", status_volume(n), "store", store, "log", status_log(n), "checkpoint",
			      status_ckpt(n), "memory", status_memory(n), "recovery", status_recovery(n));

	if (fs)
		json_object_set_new(j, "requests", status_requests(fs));
	if (n->commit) {
		json_object_set_new(j, "commit", status_commit(n));
		json_object_set_new(j, "mirrors", status_links(n));
		json_object_set_new(j, "in_sync_nodes", status_sync_nodes(n));
	}
	if (n->mirror)
		json_object_set_new(j, "mirror", status_mirror(n));
	if (with_digest)
		json_object_set_new(j, "digest", status_digest(n));
	return j;
}
