/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_MIRROR_H
#define KVFS_REPLICATION_MIRROR_H
/*
 * The mirror's side: listens, proves and checks the volume key, then in one thread ("kv-mirror"):
 * poll the lanes, check each record (epoch, LSN, CRC), put the records of all lanes in LSN order,
 * append the contiguous run to the log in one go, acknowledge, apply, report ring space freed.
 *
 * One primary at a time; a new connection with a higher or equal epoch from the same primary node
 * replaces the old one. A second thread ("kv-listen") accepts and authenticates, with a deadline
 * per connection.
 */
#include "common/metrics.h"
#include "log/ckpt.h"
#include "log/epoch.h"
#include "log/oplog.h"
#include "replication/transport/addr.h"

struct mirror;
struct transport_ops;

/* The primary that is obeyed; node_id and life 0: not known. */
struct mirror_promise {
	uint64_t epoch;
	uint32_t node_id;
	uint32_t life; /* of that epoch: log/epoch.h */
};

/* Who is told how much of a resync's image is installed. */
struct mirror_progress {
	/* Never waits. Other than 0: to be given up, with that error. May be NULL. */
	int (*note)(void *ctx, uint64_t done_bytes, uint64_t total_bytes);
	void *ctx;
};

struct mirror_ops {
	/* Executes a record (LSN order), all of it or nothing. -ENOSPC, -ENOMEM: there is no memory
	 * for it now, it is tried again. Any other error means divergence: the mirror stops and
	 * says so. */
	int (*apply)(void *ctx, const struct record *r);
	/* Called after each applied run, with its last LSN. */
	void (*applied)(void *ctx, uint64_t lsn);
	/* The log is about 70 % full: make a checkpoint (asynchronously). When append finds no room
	 * the mirror waits (deadline) for this to help. epoch: below that of no record to come, and
	 * not below the log's: for a switch of its pools. */
	void (*want_checkpoint)(void *ctx, uint64_t epoch);
	/* Before a resync of a mirror that is ahead of its primary, or may have diverged: records
	 * after_lsn + 1 to last_lsn (the last of epoch) are about to be forgotten. Keep durably
	 * what the log holds of them; after an error there is no resync. May be NULL. */
	int (*resync_keep)(void *ctx, uint64_t after_lsn, uint64_t last_lsn, uint64_t epoch);
	/* Resync. begin: forget everything in memory and on media (the superblock says incomplete
	 * from now on), returns with the checkpoint directory empty and the log at LSN 1.
	 * install: the checkpoint's files are in place and durable: load it, restart the log at its
	 * LSN + 1, mark the superblock ready. It tells p now and then how far it is, and
	 * ends with what p answers. After an error nothing of the image is left in memory, as after
	 * begin. */
	int (*resync_begin)(void *ctx);
	int (*resync_install)(void *ctx, const struct mirror_progress *p, uint64_t *ret_lsn);
	/* Records will come that go on where the log ends, and be acknowledged: what is held must
	 * survive a restart from now on, also when a resync was cut short before. May be NULL. */
	int (*resume)(void *ctx);
	/* Durably promise to obey that primary, before records of its epoch are accepted. */
	int (*promise_epoch)(void *ctx, const struct mirror_promise *p);
	/* Durably: the log's history, which may reach beyond its end, and the epoch whose primary
	 * says that this mirror is in sync, 0: it is not (any more, or not known). */
	int (*note_state)(void *ctx, const struct epochs *epochs, uint64_t sync_epoch);
	/* The mirror has stopped for good; why is a sentence for people. At most once, in
	 * kv-mirror. May be NULL. */
	void (*failed)(void *ctx, const char *why);
	/* Something about the primary's connection that people ought to see to; kv-mirror. May be
	 * NULL. */
	void (*warn)(void *ctx, const char *text);
};

struct mirror_config {
	uint8_t uuid[16];
	uint8_t key[32];
	uint32_t node_id;
	struct mirror_promise promised; /* as last stored */
	uint64_t sync_epoch;        /* as last noted */
	const struct epochs *epochs; /* history of the log; copied */
	uint64_t last_lsn;          /* what log and store hold */
	uint64_t arena_bytes;
	uint64_t ring_bytes;        /* 0: 64 MiB */
	unsigned lanes_max;
	unsigned poll_us;           /* or TRANSPORT_POLL_US_DEFAULT */
	struct metrics *metrics;    /* NULL: nothing is measured */
	unsigned ack_timeout;       /* verbs: see transport_params */
	const char *rdma_device;    /* verbs: see transport_params; valid until mirror_destroy */
	const struct addr *listen;
	unsigned listen_count;
	/* NULL: as the address says; tests: the fault injector */
	const struct transport_ops *transport;
};

int mirror_create(struct oplog *log, struct ckpt *ckpt, const struct mirror_config *cfg,
		  const struct mirror_ops *ops, void *ctx, struct mirror **ret_m,
		  const char **ret_why);
void mirror_destroy(struct mirror *m);

struct mirror_stats {
	bool connected, resyncing, failed;
	bool in_sync;               /* as the primary last said, and as it stands on media */
	char primary[300], transport[8], last_error[400];
	uint64_t epoch, received_lsn, durable_lsn, applied_lsn;
	uint64_t records, bytes, batches, reordered;
	uint64_t resync_done_bytes, resync_total_bytes; /* received of the last resync */
	uint64_t resync_installed_bytes;                /* of the same total */
	unsigned lanes;
	unsigned mtu_bytes;         /* of the way; 0: unknown, or there is no session */
	char mtu_note[256];         /* over RDMA both ends' MTUs differ; "": they do not */
	uint16_t listen_port;       /* of the first tcp address, for port 0 */
};
void mirror_stats(struct mirror *m, struct mirror_stats *ret_stats);

#endif
