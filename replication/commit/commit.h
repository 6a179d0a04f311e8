/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_COMMIT_H
#define KVFS_REPLICATION_COMMIT_H
/*
 * The commit queue: group commit to the local log, then to the mirrors, and the commit point.
 *
 *   enqueue (under the store's lock: LSN order is state order)
 *     → drive: one thread at a time (the leader, whoever comes) appends everything queued with one
 *       oplog_append, hands it to each link, and moves the commit point
 *     → complete: from the leader, or from the link thread whose acknowledgement moved the point
 *
 * An op that is early (a key is emptied: what comes next is as a rule its new value) is answered
 * when it is in the local log, while enough mirrors are in sync and answer: its record goes to them
 * before any later one, so the answer to any later change includes it.
 *
 * Nobody sleeps here for another thread or for a mirror. A timer thread ("kv-commit") fails what is
 * past its deadline. Log room is reserved before a change is applied (commit_admit), so a queued
 * record always fits.
 */
#include "log/oplog.h"
#include "replication/commit/op.h"

#include <stdbool.h>

struct commit;
struct commit_link; /* a mirror, as the commit queue sees it */

enum commit_protocol { COMMIT_PROTOCOL_A, COMMIT_PROTOCOL_B, COMMIT_PROTOCOL_C };

struct commit_config {
	enum commit_protocol protocol;
	unsigned min_mirrors;
	uint64_t timeout_ns;     /* of each operation */
	uint64_t epoch;
	uint64_t next_lsn;       /* first LSN to give */
	bool early_answers;      /* op.early is heeded */
	/* The log wants a checkpoint (about 70 % full, or full). May hold the queue's
	 * lock: only signals. */
	void (*want_checkpoint)(void *ctx);
	/* The log failed: no further operation will succeed. Once. */
	void (*failed)(void *ctx, int err);
	/* NULL: changes wait for mirrors each time. Otherwise, when fewer than min_mirrors have
	 * been in sync for timeout_ns, no change is admitted until enough are; says when that
	 * begins and ends. The timer thread's, without locks. */
	void (*turned_read_only)(void *ctx, bool read_only);
	void *ctx;
};

int commit_create(struct oplog *log, const struct commit_config *cfg, struct commit **ret_c);
/* Fails what is queued with -EIO, joins the timer thread. Links must be gone. */
void commit_destroy(struct commit *c);

/*
 * Reserves log room for a record of bytes before its change is applied, so that no LSN is given to
 * what the log cannot take. Waits (without locks held by the caller) for a checkpoint to make room,
 * until deadline_ns. urgent (deletes, truncations) may use the part of the log that is kept for
 * them.
 * -EIO: no room in time, or the log failed; -ENOSPC: no room because checkpoints fail for lack of
 * disk space; -EROFS: too few mirrors (turned_read_only). The reservation passes to the op
 * (op->admitted_bytes) or goes back by commit_unadmit().
 */
int commit_admit(struct commit *c, uint32_t bytes, bool urgent, uint64_t deadline_ns);
/* Room for another one of the largest records, urgent or not, and no writer has to slow down. */
bool commit_is_roomy(const struct commit *c);
/* Room for many urgent records. */
bool commit_has_urgent_room(const struct commit *c);
/* without waiting: false, no room */
bool commit_admit_now(struct commit *c, uint32_t bytes, bool urgent);
void commit_unadmit(struct commit *c, uint32_t bytes);

/*
 * Slows admissions that are not urgent to bytes_per_s in all, 0: no more, so that a mirror which is
 * being caught up gets there. Each waits for its turn no longer than its deadline; commit_admit_now
 * fails meanwhile. Any thread.
 */
void commit_pace(struct commit *c, uint64_t bytes_per_s);
/* The log is held for fewer records than before (oplog_hold): there may be room. Any thread,
 * without locks. */
void commit_log_released(struct commit *c);

/* The LSN the next enqueued op gets. Under the store's lock. */
uint64_t commit_next_lsn(const struct commit *c);
uint64_t commit_epoch(const struct commit *c);
enum commit_protocol commit_protocol_of(const struct commit *c);

/* Takes the op: op->lsn is commit_next_lsn(). Under the store's lock, which makes LSN
 * order state order. */
void commit_enqueue(struct commit *c, struct op *op);

/* Appends, sends and completes what is queued, unless another thread is doing so. Without locks. */
void commit_drive(struct commit *c);
/* The same, but a last group that needs no mirror to be answered (op.early) may be left to go to
 * the mirrors together with the next one, where each link's posts are dear. Who called this sees to
 * it that commit_drive() is called some time after commit_owed_since(); else the links send it from
 * the log, 50 ms later or so. */
void commit_drive_owing(struct commit *c);
uint64_t commit_owed_since(const struct commit *c); /* clock_mono_ns(); 0: nothing is owed */

/* Ends the queue as a failed append does: what is queued and all that comes gets -EIO. For a medium
 * whose error shows elsewhere (oplog_check). */
void commit_fail(struct commit *c, int err);
/* The same as nobody's failure, before the links go: what no log or mirror has acknowledged is not
 * to be answered with success because its mirror is gone. */
void commit_end(struct commit *c);

/* Completes op (head_len 0, lsn set) when the commit point is at least op->lsn: at once, by this
 * thread, when it already is. Drives, as commit_drive(), when what it waits for may be owed.
 * Without locks. */
void commit_wait(struct commit *c, struct op *op);

uint64_t commit_point(const struct commit *c);
uint64_t commit_durable_lsn(const struct commit *c); /* last LSN in the local log */

/* Waits (no longer than timeout) until the local log holds lsn. -ETIMEDOUT, -EIO. */
int commit_wait_durable(struct commit *c, uint64_t lsn, uint64_t timeout_ns);
/* The same until lsn is committed: for who makes many records and is not to run ahead. */
int commit_wait_committed(struct commit *c, uint64_t lsn, uint64_t timeout_ns);

/* Makes the log switch pools between two appends. -EBUSY: not covered, or held for a mirror;
 * -EIO. */
int commit_switch_log(struct commit *c);

/* A checkpoint begins; one at a time. One that began before a writer asked may lack the disk space
 * that is there by now: its failure is not that writer's. */
void commit_checkpoint_begin(struct commit *c);

/* It ended. err 0, after oplog_covered(): room was made, waiting writers go on. Otherwise why it
 * failed, for commit_admit()'s error. */
void commit_checkpoint_done(struct commit *c, int err);

/* Links. post is called by the leader, in LSN order, after the local append, without commit locks
 * held; ops are consecutive. It must not block; what it does not take the link reads from the log
 * later. It takes a reference (op_get) on ops whose memory it still needs after returning. */
struct commit_link_ops {
	void (*post)(void *ctx, struct op *const *ops, unsigned n);
	bool dear; /* it wakes a sleeper, or costs system calls: what may wait goes with the next */
};
int commit_link_add(struct commit *c, const struct commit_link_ops *ops, void *ctx,
		    struct commit_link **ret_l);
void commit_link_remove(struct commit_link *l); /* returns when no post is running */
/* In the in-sync set or not. Joining while the acknowledged LSN is below the commit point is
 * -EAGAIN, but holds the commit point from then on, so that under a steady load the link gets
 * there: call again at its next acknowledgements, or give up with false. */
int commit_link_set_sync(struct commit_link *l, bool in_sync);
/* Cumulative acknowledgement: in the mirror's memory, in its log. Completes what it commits, in
 * this thread. */
void commit_link_ack(struct commit_link *l, uint64_t received_lsn, uint64_t durable_lsn);

void op_get(struct op *op);
void op_put(struct op *op);

struct commit_stats {
	uint64_t commit_point, durable_lsn, next_lsn;
	uint64_t appended_records, appended_bytes, appends; /* groups */
	uint64_t timeouts;
	unsigned in_sync, links;
	bool failed, waiting_for_log, read_only;
	uint64_t pace_bytes; /* a second; 0: writers are not slowed */
};
void commit_stats(struct commit *c, struct commit_stats *ret_stats);

#endif
