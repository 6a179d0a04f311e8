/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_OPLOG_H
#define KVFS_LOG_OPLOG_H
/*
 * The operation log: two pools ("log.0", "log.1") used in turn, each beginning with a GENERATION
 * record. Appends go to the active pool. oplog_switch() begins the other one when a checkpoint
 * starts; the old pool becomes reusable once oplog_covered() says that a durable checkpoint covers
 * its last record, and is rewound only when the log next switches to it (so the checkpoint
 * before the newest stays recoverable as long as possible).
 *
 * Threads: one appender at a time (caller's lock: append, switch). covered, read and the getters:
 * any thread. Nothing here waits except for the medium.
 */
#include "common/metrics.h"
#include "log/logdev.h"
#include "log/record.h"

struct oplog;

#define OPLOG_POOLS 2

struct oplog_config {
	uint8_t uuid[16];
	uint32_t node_id;
	uint32_t format_version;
	uint64_t reserve_bytes; /* end of the last free pool that only `urgent` appends may use */
	struct metrics *metrics; /* NULL: appends are not measured */
};

struct oplog_range {
	uint64_t first_lsn; /* first record readable, 0 when the log is empty */
	uint64_t last_lsn;  /* last valid record; base - 1 when empty */
	uint64_t epoch;     /* of the last record or generation record */
	/* bytes after last_lsn were invalid: checkpoint and rewind before use */
	bool torn_tail;
	uint64_t taken_in_bytes; /* whole records behind the end that the pool named */
};

/* Makes both pools, total_bytes for the two, both empty. Errors as logdev create. */
int oplog_create(const struct logdev_ops *ops, int dirfd, uint64_t total_bytes);

/*
 * Opens both pools and finds the valid range; appends nothing but records that are there already,
 * behind the end that the newest pool names.
 * -EBADMSG with *ret_why set to a text, static or valid in this thread until its next call: a
 * pool's generation record is invalid or of another volume, there is a hole between the pools, or
 * valid records lie behind an invalid one. Other errors as logdev open.
 */
int oplog_open(const struct logdev_ops *ops, int dirfd, const struct oplog_config *cfg,
	       struct oplog **ret_log, struct oplog_range *ret_range, const char **ret_why);

/* Where a pool's records end so far, and when the pool was begun. */
struct oplog_end {
	uint64_t last_lsn, epoch, begun_ns;
};
/* A record is accepted by a pool when it is at most this much older: it may have waited. */
#define OPLOG_LATE_NS 1000000000ULL

/*
 * Whether r, decoded where the records so far end, is the next. Not named: it lies behind the end
 * that the pool names, where bytes of a former life may lie (a device-DAX is not wiped as a whole):
 * it must not be older than the pool. Pure.
 */
bool oplog_continues(const struct record *r, const struct oplog_end *end, bool named);

/*
 * Looks in base[from, stored), where a pool's valid records end with last_lsn of epoch, for a
 * record that can only be of this log. 1: it is at *ret_offset; 0: there is none; -EIO as below.
 */
int oplog_find_beyond(const uint8_t *base, uint64_t from, uint64_t stored, uint64_t last_lsn,
		      uint64_t epoch, uint64_t *ret_offset, uint64_t *ret_lsn);

/* record_decode() in a mapped pool: also -EIO, the medium can't give these bytes back. The pool's
 * device was opened (logdev_bus_catch). */
int oplog_decode(const uint8_t *base, uint64_t len, struct record *ret_r, size_t *ret_bytes);

/*
 * Calls apply for each valid record with LSN > after_lsn in LSN order.
 * apply's non-zero return ends the walk and is returned.
 * -ENODATA: the log begins above after_lsn + 1 (*ret_missing_first/last say what is missing).
 * -EBADMSG: a record that was valid at open no longer is; -EIO: it can't be read. Before
 * oplog_start, by one thread.
 */
int oplog_replay(struct oplog *log, uint64_t after_lsn,
		 int (*apply)(void *ctx, const struct record *r), void *ctx,
		 uint64_t *ret_missing_first, uint64_t *ret_missing_last);

/*
 * Makes the log ready for appends that begin at next_lsn. The active pool goes on when its tail is
 * clean and ends at next_lsn - 1; otherwise (empty, torn, or not contiguous) both pools are rewound
 * and pool 0 begins a new generation: the caller has a durable checkpoint at next_lsn - 1 then.
 * -EIO; -EINVAL: next_lsn is 0 or epoch is below the log's.
 */
int oplog_start(struct oplog *log, uint64_t next_lsn, uint64_t epoch);

/*
 * Forgets every record, whatever the log holds, and begins at next_lsn: what was there is replaced
 * by a durable checkpoint at next_lsn - 1 (none for 1). epoch may be below the log's. By the
 * appender, while nobody calls oplog_covered. -EIO; -EINVAL: next_lsn is 0.
 */
int oplog_restart(struct oplog *log, uint64_t next_lsn, uint64_t epoch);

/*
 * Appends whole, sealed records (LSNs first_lsn .. first_lsn + count - 1, contiguous with the last
 * append) as one durable unit. -ENOSPC: the active pool is full and nothing was written (switch
 * when possible, else wait for a checkpoint); without urgent the reserve counts as full.
 * -EIO: the log is dead, no later append succeeds. -EINVAL, nothing written: the first record's LSN
 * is not the next, or its epoch is below the log's (recovery would stop there).
 */
int oplog_append(struct oplog *log, const struct iovec *iov, int iovcnt, uint64_t first_lsn,
		 uint32_t count, bool urgent);

/* Begins the other pool. -EBUSY when no checkpoint covers it yet, -EIO; -EINVAL: epoch below the
 * log's. Waits for readers that are copying from that pool. */
int oplog_switch(struct oplog *log, uint64_t epoch);

/* Says that a durable checkpoint covers every record up to lsn. */
void oplog_covered(struct oplog *log, uint64_t lsn);

/*
 * Asks that records from lsn on stay readable; UINT64_MAX: none. It shows in oplog_usage, and
 * whoever switches pools of his own accord heeds it; oplog_switch itself does not, since records
 * that were promised room must find it. Any thread.
 */
void oplog_hold(struct oplog *log, uint64_t lsn);

/*
 * Copies whole records from from_lsn on into buf, as many as fit and exist.
 * -ESTALE: from_lsn was rewound (the reader needs a snapshot); -EAGAIN: not appended yet;
 * -EMSGSIZE: the next record alone is larger than cap (RECORD_BYTES_MAX always fits); -EBADMSG: the
 * bytes in the pool are damaged; -EIO: the medium can't give them back. Checksums are not checked
 * again here.
 */
int oplog_read(struct oplog *log, uint64_t from_lsn, void *buf, size_t cap,
	       size_t *ret_len, uint64_t *ret_last_lsn);

uint64_t oplog_first_lsn(struct oplog *log);
uint64_t oplog_last_lsn(struct oplog *log);

struct oplog_usage {
	uint64_t used_bytes, capacity_bytes;       /* both pools */
	uint64_t active_used_bytes, active_capacity_bytes;
	unsigned active_pool;
	uint64_t active_base_lsn; /* the other pool's records, if it has any, end before it */
	bool covered;    /* the other pool is, by a durable checkpoint, or empty */
	bool held;       /* oplog_hold asks for records of the other pool */
	bool can_switch; /* covered, and not held */
	bool all_covered; /* a durable checkpoint has every record of both pools */
};
void oplog_usage(struct oplog *log, struct oplog_usage *ret_usage);

/* Error the medium raised since the last call (pool checks); may block. */
int oplog_check(struct oplog *log);
bool oplog_is_pmem(struct oplog *log);

void oplog_close(struct oplog *log);

#endif
