/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_LINK_H
#define KVFS_REPLICATION_LINK_H
/*
 * One mirror as the primary sees it; private to primary.c, link*.c and resync_send.c.
 *
 * link.c          thread, state machine, dialling, back-off
 * link_setup.c    from a control connection to lanes
 * link_session.c  one connection: events, acknowledgements, in-sync set, heartbeats
 * link_hold.c     keeping the log for a mirror that is behind, and slowing the writers for it
 * link_lend.c     threads that serve requests poll a live link in its thread's place
 * link_keep.c     ops whose memory a transport still reads
 * link_transport.c  which transport: what the address says, or what both ends have
 * link_send.c     placing records in the mirror's ring and posting them: live from the leader
 * link_pump.c     the same from the log, for what the leader could not
 * link_replace.c  lanes that died are made anew
 * link_load.c     what the mirror says of its own load
 * link_metrics.c  how long acknowledgements take, retries
 * primary_knobs.c  what may be changed while links run
 *
 * Threads: the link's own ("kv-link-N") does everything but link_post(), which the commit queue's
 * leader calls, and the polls of a link that it has lent. send_lock is all that it shares with the
 * leader, who only tries it. When it fails, the leader sets missed, and the link's thread looks at
 * missed after each unlock. Lock order: send_lock and lend_lock are leaves.
 */
#include "replication/ack.h"
#include "replication/handshake.h"
#include "replication/load.h"
#include "replication/primary/link_metrics.h"
#include "replication/primary/primary.h"
#include "replication/transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>

#define LINK_BATCH_POSTS PRIMARY_BATCH_MAX
#define LINK_BATCH_IOV (LINK_BATCH_POSTS * 4)
#define LINK_READ_BYTES (2U << 20) /* more than RECORD_BYTES_MAX */
#define LINK_HEARTBEAT_NS (150ULL * 1000 * 1000)
#define LINK_LOAD_SILENT_NS (2ULL * 1000 * 1000 * 1000)
#define LINK_LOAD_SILENT_MAX_NS (32 * LINK_LOAD_SILENT_NS)
#define LINK_ERROR_BYTES 400

struct primary {
	struct commit *commit;
	struct oplog *log;
	struct ckpt *ckpt;
	struct primary_config cfg;
	struct epochs epochs;   /* constant */
	struct link *links;
	uint32_t instance;      /* 24 random bits: a mirror knows our links from each other */
	atomic_bool stopping;
	/* primary_knobs in one word (primary_knobs.c); relaxed: it stands alone */
	_Atomic uint64_t knobs;
	/* link_lend.c: helpers; those that look just now, sequentially consistent with owner */
	_Atomic unsigned helpers, helping;

	pthread_mutex_t lock;   /* states and texts of all links, their ep for waking */
	pthread_cond_t changed; /* with lock: a link's state changed, or stopping */
	char why[LINK_ERROR_BYTES + 320]; /* lock: primary_wait_live's sentence */
};

/* Positions and the batch under construction; all of it under send_lock. */
struct link_sender {
	bool streaming;         /* between session start and end */
	int err;                /* of a post: ends the session */
	/* the log holds what was not sent: the link's thread sends it (hint without lock) */
	atomic_bool behind;
	uint64_t next_lsn;      /* to be sent next */
	uint64_t ring_bytes;
	/* cumulative position, skipped bytes included; others look at it without the lock */
	_Atomic uint64_t ring_head;
	uint64_t window_records;
	unsigned lanes, lane;   /* lane: of the last batch */
	/* a lane is dead: nothing is posted until it is made anew; since then */
	bool suspended;
	uint64_t suspended_ns;
	/* of the batch that failed: some of it may have gone; 0: none did */
	uint64_t perhaps_lsn, perhaps_head;
	/* notices on each lane since it was made, modulo 2^32 */
	uint32_t posted[TRANSPORT_LANES_MAX];
	bool unacked;           /* since_ns and since_lsn hold */
	uint64_t since_ns;      /* since_lsn is unacknowledged since then */
	uint64_t since_lsn;
	bool waiting;           /* the log is ahead of next_lsn, and what follows holds */
	uint64_t waiting_lsn, waiting_since_ns; /* waiting_lsn is to be sent since then */
	/* nothing was sent since then: next_lsn is still stuck_lsn */
	uint64_t stuck_lsn, stuck_since_ns;
	struct transport_post posts[LINK_BATCH_POSTS];
	struct iovec iov[LINK_BATCH_IOV];
	uint64_t head_after[LINK_BATCH_POSTS];
	uint32_t bytes[LINK_BATCH_POSTS];
	bool holds;             /* the transport sends from the ops' memory */
	/* REPL_WINDOW_RECORDS, by LSN: sent, and not yet in the mirror's memory; NULL: none */
	struct op **held;
	uint64_t held_lsn;      /* nothing at or below it is held */
};

/* Rate of a mirror that the log is held for; the link's thread's. */
struct link_hold {
	bool on;
	uint64_t began_ns, moved_ns;      /* the mirror last took something then */
	uint64_t sent_ns;                 /* of a resync: its image was sent */
	uint64_t sample_ns, sample_done;
	uint64_t last_done, rate;         /* a second: records in a catch-up, bytes in a resync */
};

/* Written by who has ep, all but the last two under primary.lock, which others need to read. */
struct link_load {
	struct load newest;       /* of the session; any: there is one */
	bool any;
	uint64_t heard_ns;        /* of it, or when the session began */
	uint64_t taken, rebuilt;  /* of all sessions */
	uint64_t silent_since_ns; /* heard, or the transport was told, or the session began */
	uint64_t patience_ns;     /* so much silence, and the transport is told */
};

/* Lanes to be made anew; dead is who has ep's, the rest the link's thread's. */
struct link_replace {
	uint64_t dead;        /* bit a lane whose end was reported */
	uint32_t generation;  /* of the last made anew in this session */
	unsigned count;       /* since counted_since_ns */
	uint64_t counted_since_ns;
	/* times in a row, since vain_since_ns, that nothing came past lsn although it was sent */
	unsigned vain;
	uint64_t vain_since_ns, lsn;
};

enum link_owner { LINK_OWN, LINK_LENT, LINK_BORROWED };

struct link {
	struct primary *primary;
	unsigned index;
	struct addr addr;
	pthread_t thread;
	bool started;

	/* primary.lock */
	enum link_state state;
	int refused_err;
	uint64_t hold_lsn;      /* written by the link's thread: the log is held from here on;
				   UINT64_MAX: it is not */
	uint64_t hold_pace;     /* bytes a second for the writers, 0: as they like */
	uint32_t peer_node;     /* of the last welcome, 0: none yet */
	char last_error[LINK_ERROR_BYTES];
	char ended_why[LINK_ERROR_BYTES]; /* of the last session; "": none has ended */
	uint64_t ended_ns;                /* when, since 1970 */
	char transport[8];
	char interface[LINK_INTERFACE_BYTES];
	char transport_note[256];
	char mtu_note[TRANSPORT_MTU_NOTE_BYTES]; /* of the last session whose ends told theirs */
	struct transport_ep *wake_ep; /* the same as ep while waking it is safe */
	int setup_fd;           /* the control connection of a set-up under way, which ends with
				   it; -1: none */

	/* An address without a prefix; the link's thread's. */
	uint64_t verbs_retry_ns; /* verbs failed: not before */
	uint64_t verbs_wait_ns, verbs_looked_ns;
	uint64_t verbs_since_ns; /* a session over verbs has its lanes since; 0: there is none */
	bool verbs_trial;        /* one over tcp was ended for a try */

	/* Lanes that did not all open; the link's thread's. */
	unsigned lanes_limit;          /* ask for no more, 0: as configured */
	unsigned lanes_failed;         /* attempts in a row with the same number of lanes */
	uint64_t lanes_limit_until_ns; /* then for all again */

	/* Session; set up and torn down by the link's thread while no post can run. */
	const struct transport_ops *tops;
	struct transport_ep *ep;
	int control_fd;
	struct link_replace replace;
	struct commit_link *commit_link;
	struct handshake_welcome welcome;
	bool in_sync, joining;
	/* what there was when it last fell out: writers wait for it again when it has all of it */
	uint64_t rejoin_lsn;
	struct link_load load;
	bool told_sync;         /* what the mirror was last told of in_sync */
	uint64_t last_heard_ns, last_beat_ns;
	uint64_t beats_sent, beats_seen;
	struct ack last_ack;

	/* Who polls ep, and what a poll changes; the link's thread's but for the time of a loan. */
	pthread_mutex_t lend_lock;
	pthread_cond_t returned;       /* with lend_lock: to the link's thread */
	_Atomic enum link_owner owner; /* written under lend_lock */
	bool recalled;                 /* lend_lock: the borrower is to give it back */
	int lend_err;                  /* lend_lock: what a borrower met; ends the session */

	/* From the log; the link's thread's, pump_wanted who has ep. */
	uint8_t *read_buf;
	size_t read_len, read_pos;
	uint64_t read_lsn;      /* LSN of the record at read_pos */
	bool pump_wanted;       /* the leader left us its records */
	struct link_hold hold;

	pthread_mutex_t send_lock;
	struct link_sender send;
	atomic_bool missed;     /* the leader found send_lock taken */

	/* Written by one thread at a time, read by anyone; relaxed, but freed and acked: release by
	 * who has ep, acquire by the sender. */
	_Atomic uint64_t ring_freed, acked_lsn, applied_lsn, sent_lsn;
	_Atomic uint64_t sent_bytes, sent_records, from_log_records, reconnects;
	_Atomic uint64_t resync_done, resync_total, resync_rate, resync_installed, rtt_ns;
	_Atomic unsigned lanes, lanes_down, lanes_replaced;
	_Atomic unsigned mtu_bytes; /* of the session's way; 0: unknown */
	/* the last record posted on it; written under send_lock */
	_Atomic uint64_t lane_lsn[TRANSPORT_LANES_MAX];

	struct link_metrics times;
};

static inline void link_count_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* link.c */
void *link_thread(void *arg);
void link_set_state(struct link *l, enum link_state state);
__attribute__((format(printf, 3, 4)))
int link_fail(struct link *l, int err, const char *fmt, ...); /* keeps the text, returns err */

/* link_setup.c: from an open control connection to lanes. 0; -errno, said by link_fail. */
int link_setup(struct link *l, int fd);
void link_disconnect(struct link *l);

static inline bool link_stopping(const struct link *l)
{
	return atomic_load_explicit(&l->primary->stopping, memory_order_relaxed);
}

/* link_session.c: from an open control connection to its end. Always an error, -ECANCELED when
 * stopping. */
int link_session_run(struct link *l, int fd);

/* Takes what came, waiting up to timeout_ns for it. -errno: the session is over. Whoever has ep. */
int link_session_poll(struct link *l, uint64_t timeout_ns);

/* An acknowledgement, wherever it came. -errno: it is nonsense. Whoever has ep. */
int link_session_ack(struct link *l, const struct ack *a);

/* link_replace.c. can: at all. note: a LANE_DOWN came; false: this one ends the session. knows:
 * that all lanes are dead. overdue: posts have failed for so long, and no lane was reported.
 * Whoever has ep. */
bool link_replace_can(const struct link *l);
bool link_replace_note(struct link *l, const struct transport_event *ev);
bool link_replace_knows(const struct link *l);
bool link_replace_overdue(const struct link *l, uint64_t suspended_ns);
/* Makes the dead lanes anew. -errno, with last_error: the session ends. The link's thread. */
int link_replace(struct link *l);

/* link_lend.c. lend: for at most timeout_ns, or until it comes back; *ret_err: what a borrower met,
 * or 0; false: somebody has to wait for what is on its way. The link's thread. recall: any thread.
 * posted: after posting to it, by the poster, without send_lock. */
bool link_lend(struct link *l, uint64_t timeout_ns, int *ret_err);
void link_recall(struct link *l);
void link_posted(struct link *l);

/* link_load.c. notice: a REPL_IMM_LOAD came. tick: every SESSION_TICK_NS. Whoever has ep. */
void link_load_begin(struct link *l);
void link_load_notice(struct link *l);
void link_load_tick(struct link *l, uint64_t now_ns);
void link_load_stats_locked(const struct link *l, struct link_stats *s);

/* link_hold.c. done: what the mirror has taken so far: the LSN it acknowledged, in a resync bytes
 * of the image, of total. install: the image was sent at sent_ns, and the mirror installs it. */
void link_hold_begin(struct link *l, uint64_t from_lsn, uint64_t done);
void link_hold_catchup(struct link *l, uint64_t acked_lsn, uint64_t now);
void link_hold_resync(struct link *l, uint64_t done, uint64_t total, uint64_t now);
/* The image is sent: the mirror installs it, and tells how far it is, or does not. */
void link_hold_install_begin(struct link *l, uint64_t now);
void link_hold_install(struct link *l, uint64_t done, uint64_t total, uint64_t now);
void link_hold_end(struct link *l);

/* link_send.c */
void link_unlock(struct link *l); /* send_lock; who has ep */
void link_send_begin(struct link *l, uint64_t next_lsn);
void link_send_end(struct link *l);
extern const struct commit_link_ops link_commit_ops;
extern const struct commit_link_ops link_commit_dear_ops; /* tcp */
/* Nothing is posted from now on; how much was, of each lane. resume: lanes are new; sends again,
 * from the log, what follows lsn, whose place is followed by ring_pos. -EPROTO: that can't be. */
void link_send_suspend(struct link *l, uint32_t *ret_posted);
int link_send_resume(struct link *l, uint64_t lanes, uint64_t lsn, uint64_t ring_pos);
/* A notice without bytes, on the next lane. False: no credit just now. */
bool link_send_notice(struct link *l, uint32_t imm);
/* The same for what the mirror is told of its being in sync: always on one lane, so that it stays
 * in order. */
bool link_send_sync(struct link *l, bool in_sync);
/* How long the mirror has owed us something. The first two are ages of samples, at least half of
 * the oldest one's; 0: nothing of the kind. */
struct link_ages {
	uint64_t unacked_ns; /* sent, and not acknowledged */
	uint64_t unsent_ns;  /* in the log, and not sent: no credits, no room in the ring */
	uint64_t stuck_ns;   /* no record at all could be sent though the log has some */
	uint64_t suspended_ns; /* a lane failed a post */
};
/* Error of an earlier post, or 0. The link's thread, now and then. */
int link_send_check(struct link *l, uint64_t acked_lsn, uint64_t now_ns,
		    struct link_ages *ret_ages);
/* Whether an acknowledgement speaks only of what was sent. Waits for a post that is under way. */
bool link_send_covers(struct link *l, uint64_t lsn, uint64_t ring_pos);

/* link_send.c, for link_pump.c; under send_lock. add: one record of iovcnt pieces, already at
 * iov[iov_at], as post n; false: no room for it just now. post: the n records; how many went. */
bool link_batch_add_locked(struct link *l, unsigned n, unsigned iov_at, unsigned iovcnt,
			   uint32_t bytes);
unsigned link_batch_post_locked(struct link *l, unsigned n);

/* link_pump.c. pump: sends from the log what the leader could not, as far as ring, window and
 * credits allow; -EBADMSG: the log is damaged; errors of oplog_read. wanted: whether there is
 * anything to do; a look without the lock. Whoever has ep. */
int link_pump(struct link *l);
bool link_pump_wanted(const struct link *l);

/* primary_knobs.c. What the configuration says, before any link runs. */
void primary_init_knobs(struct primary *p);
/* Lanes that get new records, of opened: at least 1. */
unsigned link_lanes_active(const struct link *l, unsigned opened);
unsigned link_batch_max(const struct link *l);
/* Opened lanes beyond the active ones that still have something unacknowledged. */
unsigned link_lanes_draining(const struct link *l);

/* link_keep.c. locked: under send_lock, before the op may be released. release: up to lsn, without
 * the lock. end: no transport reads any more. */
int link_keep_begin(struct link *l);
void link_keep_locked(struct link *l, struct op *op);
void link_keep_release(struct link *l, uint64_t lsn);
void link_keep_end(struct link *l);

/* link_transport.c */
void link_transport_choose(struct link *l); /* sets tops; NULL: not built in */
enum repl_transport link_transport_number(const struct link *l);
/* Lanes could not be opened, or carry nothing, or the mirror does not offer it: what to return
 * instead of err. */
int link_transport_failed(struct link *l, int err);
/* Goes without the verbs that have failed, for a while. */
bool link_transport_fell_back(const struct link *l);
/* For opening the lanes. For a try that nobody needs no longer than writers can wait for it. */
uint64_t link_transport_setup_ns(const struct link *l);
void link_transport_connected(struct link *l); /* the lanes are open */
/* A session is over: what only the mirror's next start could mend may be mended. */
void link_transport_ended(struct link *l);
/* RDMA may be had again by a link that goes without: asked now and then. */
bool link_transport_better(struct link *l, uint64_t now_ns);
/* Asks the transport for the MTU; warns, once, where the ends differ. */
void link_transport_mtu(struct link *l);

/* resync_send.c: whether the mirror needs one, and the transfer. */
bool resync_needed(struct link *l);
int resync_send(struct link *l, int fd);

#endif
