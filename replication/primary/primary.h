/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_PRIMARY_H
#define KVFS_REPLICATION_PRIMARY_H
/*
 * The primary's side of replication: one link, with one thread ("kv-link-N"), per configured
 * mirror.
 *
 *   DOWN → DIALING → HANDSHAKE → (RESYNC →) CATCHUP → LIVE, and from any of them back to DOWN
 *
 * LIVE: the commit queue's leader posts records to the lanes straight from slab memory. Whatever a
 * link could not take at once (no credits, ring full) its thread reads from the log: catch-up and
 * live sending differ only in where the bytes come from.
 */
#include "common/metrics.h"
#include "log/ckpt.h"
#include "log/epoch.h"
#include "log/oplog.h"
#include "replication/commit/commit.h"
#include "replication/transport/addr.h"

struct primary;
struct transport_ops;

enum link_state { LINK_DOWN, LINK_DIALING, LINK_HANDSHAKE, LINK_RESYNC, LINK_CATCHUP, LINK_LIVE,
		  LINK_REFUSED };

struct primary_config {
	uint8_t uuid[16];
	uint8_t key[32];
	uint32_t node_id;
	uint64_t epoch;
	uint32_t life;               /* of that epoch (log/epoch.h); not zero */
	const struct epochs *epochs; /* the history of the log, this epoch the last of it; copied */
	uint64_t arena_bytes;        /* a mirror with a smaller arena is refused */
	unsigned lanes, poll_us;
	/* opened, those beyond lanes parked; 0: see primary_lanes_open */
	unsigned lanes_open;
	bool lanes_ahead;            /* then some more than lanes, to choose from */
	bool lanes_default;          /* nobody asked for so many lanes */
	unsigned ack_timeout;        /* verbs: see transport_params */
	const char *rdma_device;     /* verbs: see transport_params; valid until primary_destroy */
	struct region_pool *memory;  /* where values lie, or NULL; outlives the primary */
	uint64_t timeout_ns;         /* a live mirror silent for half of it falls out */
	struct metrics *metrics;     /* NULL: nothing is measured */
	const struct addr *mirrors;
	unsigned mirror_count;
	/* NULL: as the address says; tests: the fault injector */
	const struct transport_ops *transport;
	/* Makes a fresh checkpoint if the newest is not reached by the log; blocks. For resync. */
	int (*checkpoint)(void *ctx);
	/* Durably: nothing is acknowledged without the mirror of that node; or, in false, before
	 * the first acknowledgement without it. Links' threads, one after the other or not. After
	 * an error of the latter no write is acknowledged any more. May be NULL. */
	int (*note_sync)(void *ctx, uint32_t node_id, bool in);
	/* Something about a mirror that people ought to see to. Its link's thread. May be NULL. */
	void (*warn)(void *ctx, const char *addr, const char *text);
	void *ctx;
};

/*
 * How many lanes a link opens over a transport: what somebody asked for, else lanes and, with
 * lanes_ahead, twice that or what is usual with the transport. lanes may be meant for another one
 * (a link that falls back to tcp): where it is a default no more than is usual are opened.
 */
unsigned primary_lanes_open(const struct primary_config *cfg, const struct transport_ops *ops);

int primary_create(struct commit *c, struct oplog *log, struct ckpt *ckpt,
		   const struct primary_config *cfg, struct primary **ret_p);
/* says goodbye, joins the threads; bounded by a few seconds */
void primary_destroy(struct primary *p);

/* Waits until at least n links are live. -ETIMEDOUT; -EKEYREJECTED, -EXDEV (other volume),
 * -ENOTUNIQ (the same node twice), … when a mirror refused, with a sentence in *ret_why (valid
 * until primary_destroy). */
int primary_wait_live(struct primary *p, unsigned n, uint64_t timeout_ns, const char **ret_why);

/*
 * What may be changed while the links run. lanes: of those opened, how many get new records; a lane
 * that drops out of them is parked when its last record is acknowledged, and stays open. batch:
 * records posted in one call, at most (1 to PRIMARY_BATCH_MAX). poll_us: what a link's poll spins.
 */
struct primary_knobs {
	unsigned lanes, batch, poll_us;
};
#define PRIMARY_BATCH_MAX 64
/* Any thread, after primary_create; from the next batch and the next poll on. Takes
 * primary.lock. */
void primary_set_knobs(struct primary *p, const struct primary_knobs *knobs);
/* Begins with the configuration's lanes and poll_us, and the largest batch. */
struct primary_knobs primary_get_knobs(const struct primary *p);

/*
 * Threads that serve requests may look for acknowledgements themselves while they have nothing else
 * to do, as long as these come soon: whoever does so after it has posted saves waking the links'
 * threads. One a thread, zeroed but for primary. begin: true: look until help() is false or there
 * is something else to do, without waiting between for anything but its turn, and end; back_soon:
 * it will begin again in a moment. help() completes ops. leave: before the thread ends, and before
 * primary_destroy. Without locks.
 */
struct primary_helper {
	struct primary *primary; /* NULL: never helps */
	bool in, in_vain;
	unsigned pause;
	uint64_t mean_ns, since_ns, took_ns;
};
bool primary_help_begin(struct primary_helper *h);
bool primary_help(struct primary_helper *h);
void primary_help_end(struct primary_helper *h, bool back_soon);
void primary_helper_leave(struct primary_helper *h);

#define LINK_INTERFACE_BYTES 16 /* IF_NAMESIZE */
struct link_stats {
	char addr[300];
	char transport[8];
	char interface[LINK_INTERFACE_BYTES]; /* its session leaves by it; "": none, or unknown */
	/* an address without a prefix: what was found, and what is used */
	char transport_note[256];
	enum link_state state;
	char last_error[400];
	char ended_why[400]; /* why the last session ended; "": none has */
	uint64_t ended_ns;   /* when, since 1970 */
	uint64_t acked_lsn, applied_lsn, sent_lsn, lag_records, lag_bytes;
	uint64_t sent_bytes, sent_records, reconnects, from_log_records;
	uint64_t resync_done_bytes, resync_total_bytes, resync_rate_bytes; /* bytes a second */
	uint64_t resync_installed_bytes; /* of the same total, by the mirror's own word */
	uint64_t held_from_lsn;      /* the log is kept for it from here on; 0: it is not */
	uint64_t pace_bytes; /* a second that it leaves to the writers; 0: they are not slowed */
	unsigned mtu_bytes;          /* of the way; 0: unknown, or there is no session */
	char mtu_note[256];          /* over RDMA both ends' MTUs differ; "": they do not */
	unsigned lanes, lanes_down;
	unsigned lanes_replaced; /* dead ones that were made anew within their session */
	unsigned lanes_active;   /* get new records */
	unsigned lanes_draining; /* do not, and have some that are not acknowledged */
	unsigned knobs;          /* TRANSPORT_KNOB_*, of the session's transport */
	uint64_t rtt_ns; /* of the last heartbeat */
	/* What the mirror says of its own load (load_format.h): the newest, when it came (or the
	 * session began); all 0 without a session. */
	bool load_known;
	uint64_t load_age_ns, load_apply_lag;
	unsigned load_cpu_permille, load_log_permille, load_ring_permille;
	uint64_t loads, loads_rebuilt; /* that came; new ways for them, after silence */
};
unsigned primary_stats(struct primary *p, struct link_stats *ret_stats, unsigned max);
const char *link_state_name(enum link_state s);

#endif
