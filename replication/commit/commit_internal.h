/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_COMMIT_INTERNAL_H
#define KVFS_REPLICATION_COMMIT_INTERNAL_H
/*
 * State of the commit queue, shared by commit.c (queue, leadership), commit_append.c (the
 * leader's group), commit_link.c (mirrors, commit point), commit_room.c (log room) and
 * commit_timer.c (deadlines).
 *
 * lock is held for a few instructions, never over a call out of this module. The leader flag is the
 * right to call the log's append and switch; it is taken and given back under the lock.
 */
#include "replication/commit/commit.h"

#include <pthread.h>
#include <stdatomic.h>

#define COMMIT_LINKS_MAX 16
#define COMMIT_BATCH_OPS 128
#define COMMIT_BATCH_IOV 512
#define COMMIT_BATCH_BYTES (8U << 20)
#define COMMIT_HOLD_PERCENT 60 /* of the active pool: fuller, and no pool is held for a mirror */
#define COMMIT_EARLY_NS (100ULL * 1000 * 1000) /* older pending ops: mirrors don't answer */
#define COMMIT_TICK_NS (100ULL * 1000 * 1000)

struct commit_link {
	struct commit *commit;
	const struct commit_link_ops *ops;
	void *ctx;
	uint64_t received_lsn, durable_lsn; /* lock */
	bool in_sync;                       /* lock */
	/* lock: not in sync yet, but the commit point waits for it */
	bool joining;
	unsigned posting;                   /* lock: leaders inside ops->post */
};

struct commit {
	struct oplog *log;
	struct commit_config cfg;

	/* Written under the store's lock and the lock; read under either. */
	_Atomic uint64_t next_lsn;

	pthread_mutex_t lock;
	/* lock: leader gone, durable moved, room made, post ended */
	pthread_cond_t changed;
	unsigned sleepers;               /* lock: threads waiting on changed */
	pthread_cond_t moved;            /* with lock: the commit point, or failed */
	unsigned point_waiters;          /* lock: threads waiting on moved */
	/* stopping; the timer's own: on changed, each write would wake it */
	pthread_cond_t ended;
	struct cds_list_head incoming;   /* lock: enqueued, not appended */
	struct cds_list_head appending;  /* lock: the leader's group, on its way into the log */
	struct cds_list_head pending;    /* lock: appended, above the commit point */
	struct cds_list_head waiters;    /* lock: by LSN */
	bool leader;                     /* lock */
	bool leader_wanted;              /* lock: commit_switch_log waits for its turn */
	bool switching;                  /* lock: it switches: room is what it left of it */
	/* The leader's: in the log and answered, to be posted with the next group; a reference to
	 * each. Room for that group. */
	struct op *owed[2 * COMMIT_BATCH_OPS];
	unsigned owed_count;
	_Atomic uint64_t owed_since_ns;  /* of the first of them; 0: none; written by the leader */
	bool pay_wanted;                 /* lock: what is owed goes without a next group */
	bool stopping;                   /* lock */
	bool failed;                     /* lock */
	struct commit_link *links[COMMIT_LINKS_MAX]; /* lock */
	unsigned link_count;             /* lock */
	uint64_t timeouts;               /* lock */

	/* written under lock; release: pairs with readers' acquire */
	_Atomic uint64_t point;
	_Atomic uint64_t durable_lsn;    /* written by the leader */
	_Atomic uint64_t appended_records, appended_bytes, appends; /* leader */

	/* Log room. room: bytes the log can take (written under lock); admitted:
	 * reserved of them. */
	_Atomic uint64_t room, admitted;
	uint64_t slack;                  /* constant: what may stay unused at a pool's end */
	uint64_t reserve;                /* constant: of room, for urgent records only */
	_Atomic bool checkpoint_wanted;
	_Atomic uint64_t pace_bytes;     /* a second; 0: no pace; written under lock */
	uint64_t pace_turn_ns;           /* lock: when the next paced admission has its turn */
	uint64_t checkpoint_begun;       /* lock: how many have */
	uint64_t checkpoint_ended;       /* lock: which of them ended last, with checkpoint_err */
	int checkpoint_err;              /* lock */

	uint64_t too_few_since_ns;       /* the timer's; 0: enough mirrors are in sync */
	_Atomic bool read_only;          /* written by the timer under lock */
	pthread_t timer;
	bool timer_started;
};

/* Under the lock: moves the commit point, and what it releases to done. */
void commit_advance_locked(struct commit *c, struct cds_list_head *done);
/* Without the lock: answers and lets go of the ops on the list. */
void commit_finish(struct cds_list_head *done, int err);

/* The leader's group: what it moved from incoming to appending. */
struct commit_batch {
	struct op *ops[COMMIT_BATCH_OPS];
	struct op *early[COMMIT_BATCH_OPS]; /* answered before the mirrors have them */
	unsigned early_count;
	int iov_end[COMMIT_BATCH_OPS]; /* of each op, in iov */
	struct iovec iov[COMMIT_BATCH_IOV];
	unsigned count;
	int iovcnt;
	uint64_t bytes;
	uint64_t admitted;
};

/* Under the lock: fills the group, as far as it goes. */
void commit_batch_take_locked(struct commit *c, struct commit_batch *b);
/* Appends, posts and completes one group; may_owe: or leaves it to be posted with the next. False:
 * the log failed and leadership is gone. */
bool commit_batch_run(struct commit *c, struct commit_batch *b, bool may_owe);
/* Of a queue that failed: the links send it from the log. The leader's. */
void commit_owed_forget(struct commit *c);
/* leads: the caller is the leader, whose group could not be appended; it stops being one. err 0:
 * the queue ends, which is nobody's failure. Without locks. */
void commit_fail_as(struct commit *c, bool leads, int err);

/* Thread: arg is the queue. */
void *commit_timer(void *arg);
/* Under the lock: wakes threads that wait on changed, if any. */
void commit_wake_locked(struct commit *c);
/* Under the lock: waits on changed until deadline_ns. -ETIMEDOUT. */
int commit_sleep_locked(struct commit *c, uint64_t deadline_ns);
void commit_room_init(struct commit *c);
/* Under the lock, after an append, a switch or a checkpoint: room and the need for a checkpoint. */
void commit_room_update_locked(struct commit *c);
/* Under the lock, the leader: nothing more is admitted than fits into the other pool. False: more
 * has been, and no pool may be left before it is full. After true commit_room_update_locked. */
bool commit_room_give_up_rest_locked(struct commit *c);
/* Whether the log's other pool is left alone for a mirror: never so long that writers lack room. */
static inline bool commit_heeds_hold(const struct oplog_usage *u)
{
	return u->held &&
	       u->active_used_bytes / COMMIT_HOLD_PERCENT <= u->active_capacity_bytes / 100;
}

static inline bool commit_is_read_only(const struct commit *c)
{
	return atomic_load_explicit(&c->read_only, memory_order_relaxed);
}

#endif
