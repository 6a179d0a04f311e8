/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_NODE_H
#define KVFS_FS_NODE_H
/*
 * A running node, primary or mirror: the opened volume, its memory, and the checkpoint thread.
 *
 * Start: volume (locked) → region pool, slab, store → newest checkpoint → log replay → log ready
 * for appends → commit queue and links (primary) or listener (mirror). Stop is the reverse, with a
 * last checkpoint.
 *
 * Threads: node_open, node_start_primary, node_start_mirror, node_stop and node_close from the main
 * thread. "kv-ckpt" makes checkpoints and, once a second, asks the log's medium for write errors,
 * the region pool for what an RDMA device refused, and the system for RDMA devices that are new.
 * Errors: one sentence in why, for the one who started it.
 */
#include "common/thread.h"
#include "fs/node/node_metrics.h"
#include "fs/node/node_rdma.h"
#include "fs/node/options.h"
#include "fs/store/image.h"
#include "fs/store/store.h"
#include "log/ckpt.h"
#include "log/oplog.h"
#include "log/volume.h"
#include "replication/commit/commit.h"
#include "replication/mirror/mirror.h"
#include "replication/primary/primary.h"
#include "tuner/tuner_metrics.h"

#include <limits.h>
#include <stdatomic.h>

#define NODE_WHY_BYTES (PATH_MAX + 512) /* a sentence with a path */

/* What a node stands on: others than the volume's own media, the host's memory and the transports
 * of the addresses, with the faults a test wants. Outlives the node. */
struct node_media {
	const struct logdev_ops *log;         /* NULL: libpmemlog pools */
	const struct ckpt_hooks *ckpt;        /* NULL: the system's calls */
	const struct ckpt_file_ops *super;    /* write, fsync; NULL: the system's calls */
	void *super_ctx;
	const struct region_backend_ops *memory; /* NULL: what memory= says */
	const struct transport_ops *transport;   /* primary; NULL: as the address says */
};

struct view; /* a mirror's read-only view: what changed (mirror_view.h) */

struct node {
	const struct options *opt;
	const struct node_media *media; /* NULL but in tests */
	struct volume *vol;
	struct region_pool *regions;
	struct slab *slab;
	struct store *store;         /* a resync replaces it under store_swap */
	struct ckpt *ckpt;
	struct oplog *log;
	struct commit *commit;       /* primary; NULL on a mirror */
	struct primary *primary;     /* NULL without mirrors */
	struct mirror *mirror;
	struct view *view;           /* set before the mirror starts */
	struct metrics *metrics;     /* what everything here counts in */
	struct node_metrics *figures;
	struct tuner_metrics tuner;
	struct node_rdma rdma;
	struct node_tuner *tuning;   /* node_tuner.h; NULL: no mirrors, or not started */
	const char *metrics_address; /* HOST:PORT of the endpoint; NULL: off */
	_Atomic uint64_t epoch; /* TERM.START (log/epoch.h); primary: constant; mirror: of the last
				   record applied */
	uint64_t arena_bytes, inodes_max;
	pthread_mutex_t super_lock;  /* primary: writers of the superblock's in-sync set; a leaf,
					held over the write */
	pthread_rwlock_t store_swap; /* mirror: readers of the view, against resync */

	/* Checkpoint thread. lock protects what follows, changed is broadcast on each change. */
	pthread_t ckpt_thread;
	bool ckpt_started;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t ckpt_wanted, ckpt_done; /* tickets: wanted above done means work */
	int ckpt_error;                  /* of the last finished one */
	int ckpt_said;                   /* kv-ckpt's: the error that was spoken of, 0: none */
	uint64_t ckpt_again_ns;          /* after one that failed: not before */
	void (*ckpt_made)(void *ctx);    /* kv-ckpt has made one; may be NULL. Blocks no longer than
					  * the log */
	void *ckpt_made_ctx;
	bool ckpt_running, stopping;
	uint64_t ckpt_done_bytes, ckpt_total_bytes;
	pthread_mutex_t ckpt_busy;   /* held while a checkpoint or a resync changes the directory */

	int register_told;           /* kv-ckpt's: what people were told of refused registrations */

	_Atomic bool failed;         /* the log's medium failed: no write succeeds any more */
	_Atomic uint64_t ckpt_lsn;   /* of the newest durable checkpoint */

	/* Asked while the start waits for mirrors: true ends it. May be NULL. Main thread. */
	bool (*interrupted)(void *ctx);
	void *interrupted_ctx;

	struct {                     /* what start-up found, for status and the info line */
		uint64_t ckpt_number, ckpt_lsn, replayed, load_ns, replay_ns, orphans;
		uint64_t taken_in_bytes; /* of the log, behind its own end */
		bool torn_tail;
	} recovered;
};

/*
 * Opens path's volume and brings its state into memory; ready for appends when it returns. media is
 * NULL but in tests. -errno with why filled: see volume_open; -ENOMEM, -EUCLEAN (log hole),
 * -EBADMSG, ...
 */
int node_open(const struct options *opt, const char *path, const struct node_media *media,
	      struct node **ret_node, char why[NODE_WHY_BYTES]);

/* Starts the commit queue and the links to the mirrors; waits for min_mirrors as connect_timeout
 * says, or -EINTR: node.interrupted. */
int node_start_primary(struct node *n, char why[NODE_WHY_BYTES]);
/* Starts listening for a primary. */
int node_start_mirror(struct node *n, char why[NODE_WHY_BYTES]);

/* node_transport.c: -ENODEV, -ENETDOWN, -EADDRNOTAVAIL: an address asks for verbs, and there is no
 * usable device. */
int node_check_verbs(struct node *n, const struct options_addrs *addrs, char why[NODE_WHY_BYTES]);
/* For addresses without a prefix: one line each with what was found and what is used. */
void node_say_transports(struct node *n);
void node_say_listening(struct node *n);

/* Ends replication and makes the last checkpoint; bounded. 0, or the checkpoint's -errno. */
int node_stop(struct node *n);
void node_close(struct node *n); /* NULL is fine */

/* The record executor of recovery. */
int node_apply(struct node *n, const struct record *r);

/* Asks for a checkpoint; never blocks. Any thread, also with the commit queue's lock. */
void node_ckpt_want(void *node);
/* A checkpoint that begins after the call; waits for its end (or the deadline). 0,
 * -ETIMEDOUT, its error. */
int node_ckpt_make(struct node *n, uint64_t timeout_ns);
int node_ckpt_start(struct node *n);
void node_ckpt_stop(struct node *n); /* finishes the one that runs */
/* Makes one now, in this thread; ckpt_busy is not held by the caller. */
int node_ckpt_run(struct node *n);

/* Forgets all that checkpoints and log hold: the log begins at LSN 1. While no checkpoint can be
 * made, and with VOLUME_RESYNCING on media, since it is not one step. */
int node_forget(struct node *n);

/*
 * Whether the mirror's volume may become a primary's, on what stands in its superblock: -ESTALE
 * with why filled when it was not in sync and force is false, -EUCLEAN in a resync (no force helps
 * there). The state of a volume that no daemon serves, or of a running mirror's own.
 */
int node_may_promote(const struct volume_super *s, bool force, char why[NODE_WHY_BYTES]);

/* Begins the next epoch of the primary, of the next term with promote, durably: before the first
 * record. The store holds what the log holds. -EIO, -ENOSPC: not begun. */
int node_begin_epoch(struct node *n, bool promote, char why[NODE_WHY_BYTES]);

/* primary_config.note_sync */
int node_note_sync(void *node, uint32_t mirror_node, bool in);

/* mirror_ops.resync_keep (node_cut.c). */
int node_cut_keep(void *node, uint64_t after_lsn, uint64_t last_lsn, uint64_t epoch);

/* The mirror's hooks (node_mirror.c). */
extern const struct mirror_ops node_mirror_ops;

/* Machine memory. */
uint64_t node_memory_bytes(void);

#endif
