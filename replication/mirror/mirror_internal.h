/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_MIRROR_INTERNAL_H
#define KVFS_REPLICATION_MIRROR_INTERNAL_H
/*
 * State of the mirror's side; private to mirror*.c and resync_recv.c.
 *
 * mirror.c          life cycle, figures
 * mirror_listen.c   "kv-listen": accepts, proves, decides whether a caller may take over
 * mirror_promise.c  whom it obeys
 * mirror_setup.c    "kv-mirror": from a caller to lanes: admission, welcome, resync
 * mirror_session.c  "kv-mirror": the poll loop, acknowledgements
 * mirror_rx.c       notice → checked record → LSN order
 * mirror_apply.c    run → log → store
 * mirror_replace.c  lanes that died are made anew
 * mirror_load.c     what the primary is told of our load
 * mirror_mtu.c      packets' size on the way
 *
 * lock guards what the two threads share; it is a leaf and never held over a call out. All else is
 * kv-mirror's.
 */
#include "common/clock.h"
#include "replication/ack.h"
#include "replication/frame.h"
#include "replication/handshake.h"
#include "replication/lanes.h"
#include "replication/load.h"
#include "replication/mirror/mirror.h"
#include "replication/transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>

#define MIRROR_LISTEN_MAX 8
#define MIRROR_RUN_RECORDS 512
#define MIRROR_ERROR_BYTES 400
/* Records leave the ring before they are checked: as long as a run has not taken this much memory
 * it is open. */
#define MIRROR_COPY_BYTES (4U << 20)
/* The last of a run begins below that; behind it there is room to check one that may not join. */
#define MIRROR_COPY_CAPACITY (MIRROR_COPY_BYTES + 2 * (RECORD_BYTES_MAX + TRANSPORT_IMM_UNIT))
#define MIRROR_ANSWER_NS (5 * NSEC_PER_SEC) /* for a caller to take what we say */
#define MIRROR_LOAD_NS (250 * NSEC_PER_MSEC)
#define MIRROR_RING_BYTES_DEFAULT (64ULL << 20)

/* A caller that has proved the key, on its way from kv-listen to kv-mirror. */
struct mirror_caller {
	int fd;
	struct handshake handshake;
	struct handshake_join join;
	char peer[300];
};

/* A checked record above the next expected LSN. */
struct mirror_slot {
	uint64_t lsn;   /* 0: empty */
	uint32_t unit;  /* place in the ring */
	uint32_t bytes;
};

/* Records in LSN order, not yet in the store. */
struct mirror_run {
	uint8_t *copies;   /* MIRROR_COPY_CAPACITY */
	size_t copied;     /* taken by this run's records */
	unsigned count;
	unsigned applied;  /* the first so many are in the store */
	bool logged;       /* all are in the log: they must be applied, whatever becomes of the
			    * session; nothing joins it any more */
	uint64_t first_lsn;
	uint64_t ring_end; /* cumulative position behind the last */
	uint64_t bytes;
	struct record records[MIRROR_RUN_RECORDS];
	struct iovec iov[MIRROR_RUN_RECORDS];
};

/* Since the primary was last told, told_ns: process CPU time then, most since. */
struct mirror_load {
	uint64_t told_ns, cpu_ns, most_lag, most_ring, sequence;
	uint8_t buf[sizeof(struct repl_load)];
};

/* Lanes to be made anew. */
struct mirror_replace {
	int fd;                   /* the control connection; -1: it is gone */
	uint64_t dead;            /* bit a lane whose end was reported */
	uint64_t deadline_ns;     /* by when they must be; while dead or asked */
	uint32_t generation;      /* of the last made anew in this session */
	bool asked;               /* the primary said lost, and we have not answered */
	struct lanes_lost lost;
	uint32_t taken[TRANSPORT_LANES_MAX]; /* notices on each since it was made, modulo 2^32 */
	struct frame_reader reader;
};

struct mirror {
	struct oplog *log;
	struct ckpt *ckpt;
	struct mirror_config cfg;
	const struct mirror_ops *ops;
	void *ctx;

	int listen_fds[MIRROR_LISTEN_MAX];
	struct addr listen_addrs[MIRROR_LISTEN_MAX];
	unsigned listen_count;
	uint16_t listen_port;
	int stop_fd;                     /* eventfd that ends kv-listen's poll */
	pthread_t listener, worker;
	bool listener_started, worker_started;
	atomic_bool stopping;
	atomic_bool leave;               /* kv-mirror: end the session (replaced, or stopping) */

	pthread_mutex_t lock;
	pthread_cond_t changed;          /* with lock: caller, stopping */
	struct mirror_caller *caller;    /* lock: waiting for kv-mirror, owned by this slot */
	struct transport_ep *wake_ep;    /* lock: the session's, while waking it is safe */
	const struct transport_ops *wake_tops;
	int setup_fd;                    /* lock: the control connection of a set-up under way,
					    which ends with it; -1: none */
	bool connected, resyncing, failed, in_sync; /* lock; written by kv-mirror */
	uint32_t primary_node;           /* lock; of the session, 0: none */
	uint32_t primary_link;           /* lock; of the session: which of the primary's */
	uint64_t session_epoch;          /* lock; of the session or the last one */
	struct mirror_promise promised;  /* lock; written by kv-mirror, which reads it without */
	struct mirror_promise warned;    /* lock: the refused caller that was last spoken of */
	char primary[300], transport[8], last_error[MIRROR_ERROR_BYTES]; /* lock */
	unsigned mtu_bytes;              /* lock; of the session's way; 0: unknown */
	char mtu_note[TRANSPORT_MTU_NOTE_BYTES]; /* lock; written by kv-mirror */

	/* kv-mirror's own from here on. */
	const struct transport_ops *tops;
	struct transport_ep *ep;
	bool stopped;                    /* mirror_fail_for_good */
	unsigned protocol;
	uint64_t epoch;
	struct epochs epochs;            /* of our log */
	struct epochs primary_epochs;    /* of the session's primary */
	uint64_t primary_lsn;            /* the primary's last when it joined */
	bool tells_progress;             /* the primary takes RESYNC_PROGRESS */
	uint64_t last_epoch;             /* of the record durable_lsn */
	uint64_t run_epoch;              /* of the record received_lsn */
	uint8_t *ring;
	uint64_t ring_bytes;
	uint64_t ring_pos;               /* cumulative position of the record expected next */
	uint64_t received_lsn;           /* contiguous: last of log and run */
	uint64_t durable_lsn, applied_lsn;
	uint64_t ring_freed, ring_freed_told;
	uint64_t heartbeats, ack_sequence, silent_ns, last_heard_ns;
	bool ack_due;                    /* not sent yet, or nobody took it */
	bool goodbye;                    /* the primary left in good order */
	unsigned rounds;                 /* of the poll loop */
	uint64_t stalled_since_ns;       /* 0: not waiting for room in the log or the store */
	uint64_t appended_since_look;    /* bytes; the log's fill is looked at now and then */
	uint64_t asked_ns;               /* while stalled: when a checkpoint was last asked for */
	unsigned wanted_pool;            /* active pool + 1 a checkpoint was asked for, 0: none */
	struct mirror_slot *slots;       /* REPL_WINDOW_RECORDS, by LSN */
	struct mirror_run run;
	struct mirror_load load;
	struct mirror_replace replace;
	/* one a sequence number, as the window's slots: a transport may read them after post
	 * returned */
	uint8_t ack_bufs[REPL_ACK_SLOTS][sizeof(struct repl_ack)];

	struct metric *stage_mirror, *stage_apply; /* set before the threads start */
	uint64_t round_ns;               /* when this round's notices were seen; 0: not measured */

	/* Figures: written by kv-mirror, read by anyone; relaxed. */
	_Atomic uint64_t seen_received, seen_durable, seen_applied;
	_Atomic uint64_t records, bytes, batches, reordered;
	_Atomic uint64_t resync_done, resync_total, resync_installed;
	_Atomic unsigned lanes;
};

/* kv-mirror is to end its session. */
static inline bool mirror_leaving(const struct mirror *m)
{
	/* acquire: pairs with the release in mirror_hand_over and mirror_destroy */
	return atomic_load_explicit(&m->leave, memory_order_acquire);
}

/* mirror.c: keeps the sentence for status, returns err. */
__attribute__((format(printf, 3, 4)))
int mirror_fail(struct mirror *m, int err, const char *fmt, ...);
/* The same of a caller that proved nothing: dropped while there is a session. kv-listen. */
void mirror_fail_at_door(struct mirror *m, const char *peer, const char *why);
/* The same file: what a session waits for ends, and it looks at leave, which is set. With lock. */
void mirror_interrupt_locked(struct mirror *m);
/* There is nothing wrong any more, unless the mirror has stopped for good. */
void mirror_forget_error(struct mirror *m);
/* As mirror_fail, no session will be accepted any more, and the owner is told. kv-mirror only. */
__attribute__((format(printf, 3, 4)))
int mirror_fail_for_good(struct mirror *m, int err, const char *fmt, ...);

/* Durably in sync or not; our log goes on in this history. -errno with last_error set. kv-mirror
 * only. */
int mirror_note_state(struct mirror *m, const struct epochs *epochs, bool in_sync);

/* mirror_listen.c */
void *mirror_listen_thread(void *arg);
int mirror_listen_open(struct mirror *m, const char **ret_why);
void mirror_listen_close(struct mirror *m);
void mirror_caller_free(struct mirror_caller *c); /* closes its connection; NULL is fine */

/* mirror_promise.c */
/* Why a caller of that epoch, node and life may not be obeyed, with its sentence in text. 0: it
 * may. Under the lock, or in kv-mirror. */
enum repl_refusal mirror_promise_check(const struct mirror *m, const struct handshake_join *j,
				       char text[REPL_TEXT_BYTES]);
/* A caller is refused for it: keeps the sentence, and says it once a caller. Any thread. Returns
 * -ESTALE. */
int mirror_promise_refused(struct mirror *m, const struct mirror_caller *c, const char *text);
/* The same; a caller that may not be is told so: -ESTALE with last_error set. kv-mirror. */
int mirror_promise_admit(struct mirror *m, struct mirror_caller *c);
/* Promises, durably, to obey what joins with j. -errno with last_error set. kv-mirror. */
int mirror_promise_store(struct mirror *m, const struct handshake_join *j);

/* mirror_setup.c: takes the caller, as far as open lanes, or refuses it. -errno with last_error
 * set. */
int mirror_setup(struct mirror *m, struct mirror_caller *c);
void mirror_close_lanes(struct mirror *m);

/* mirror_session.c */
void *mirror_thread(void *arg);
/* Sends the acknowledgement as things stand; when nobody takes it, ack_due stays. */
void mirror_ack_send(struct mirror *m);
/* Things as they stand; it has the next sequence number, which is taken when it is sent. */
struct ack mirror_ack_make(const struct mirror *m);

/* mirror_rx.c. Errors end the session: -EBADMSG, -EPROTO, -ESTALE, with last_error set. */
/* A session begins or ends. A run that is in the log stays: it is still to be applied. */
void mirror_rx_reset(struct mirror *m);
/* Drops the run's records. */
void mirror_run_clear(struct mirror_run *run);
int mirror_rx_notice(struct mirror *m, uint32_t imm);
/* Forgets the records that wait for others: they come again. */
void mirror_rx_forget(struct mirror *m);
/* Moves what is in order now from the window to the run. */
int mirror_rx_pull(struct mirror *m);

/* mirror_apply.c: logs, acknowledges and applies the run, if there is one. 0 also when log or store
 * has no room for now (stalled_since_ns is set). Errors as above; -EIO after
 * mirror_fail_for_good. */
int mirror_flush(struct mirror *m);
/* Outside of a stream: applies what an earlier session logged. -ENOSPC, with last_error set: there
 * is no memory for it yet; -EIO after mirror_fail_for_good. */
int mirror_apply_rest(struct mirror *m);

/* mirror_replace.c. note: a LANE_DOWN came; false: this one ends the session. knows: that all lanes
 * are dead. attend: each round; what the primary says, and what is to be done. -errno: the session
 * is over, with last_error set. */
void mirror_replace_begin(struct mirror *m, int fd);
bool mirror_replace_note(struct mirror *m, const struct transport_event *ev);
bool mirror_replace_knows(const struct mirror *m);
int mirror_replace_attend(struct mirror *m, bool idle);

/* mirror_load.c. note: before a flush, while the ring is fullest. tell: once in MIRROR_LOAD_NS. */
void mirror_load_begin(struct mirror *m);
void mirror_load_note(struct mirror *m);
void mirror_load_tell(struct mirror *m, uint64_t now_ns);

/* resync_recv.c: all frames after RESYNC_BEGIN. */
int resync_receive(struct mirror *m, int fd, const void *begin, size_t len);

/* mirror_mtu.c: lanes are open. Warns where the ends differ. */
void mirror_mtu_note(struct mirror *m);

#endif
