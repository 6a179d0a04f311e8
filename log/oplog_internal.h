/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_OPLOG_INTERNAL_H
#define KVFS_LOG_OPLOG_INTERNAL_H
/*
 * What the operation log's parts share: oplog.c (life cycle, append, switch, getters),
 * oplog_scan.c (what a pool holds when it is opened), oplog_read.c (replay and reading by LSN),
 * oplog_mapped.c (records read from a mapping).
 *
 * A pool's bytes below `used` are valid records and don't change until the pool is rewound; who
 * copies from them counts in `readers`, taken under the lock, and a rewind first makes the pool
 * empty (so nobody new comes), then waits for readers to reach zero. The appender writes only
 * above `used`, outside the lock, and then publishes under it.
 *
 * Locks: oplog.lock only, held for a few instructions; nothing blocks under it.
 */
#include "log/oplog.h"

#include <pthread.h>
#include <stdatomic.h>

/* Index entry: the record with this LSN begins at this offset. */
struct oplog_mark {
	uint64_t lsn;
	uint64_t offset;
};

/* A mark each so many bytes or records, whichever comes first. */
#define OPLOG_MARK_BYTES (64ULL << 10)
#define OPLOG_MARK_RECORDS 256

/*
 * Pool bytes appended or read between two logdev forget calls, and the begin of each pool that
 * always stays mapped: a page mapped anew cost 10 us and more on the virtual machine where it was
 * measured, several times the append itself. So only large logs pay it, and resident memory stays
 * within about OPLOG_KEEP_BYTES a pool.
 */
#define OPLOG_FORGET_BYTES (8ULL << 20)
#define OPLOG_KEEP_BYTES (128ULL << 20)

#define OPLOG_GENERATION_BYTES \
	(sizeof(struct record_header) + sizeof(struct record_common) + \
	 sizeof(struct record_generation))

struct oplog_pool {
	struct logdev *dev;
	const uint8_t *base;  /* constant while open */
	uint64_t capacity;    /* constant while open */
	/* All below: written by the appender with the lock, read with the lock or
	 * by the appender. */
	uint64_t generation;  /* 0: the pool is empty, or what it holds counts as nothing */
	uint64_t base_lsn;    /* of the first record; meaningless when empty */
	uint64_t last_lsn;    /* base_lsn - 1: a generation record and nothing else */
	uint64_t used;        /* bytes of valid records, the generation record among them */
	uint64_t epoch;       /* of the last record */
	bool torn;            /* invalid bytes follow */
	unsigned readers;
	struct oplog_mark *marks;
	size_t mark_count, mark_capacity;
	uint64_t forgot;      /* appender only: offset of the last forget */
};

struct oplog {
	const struct logdev_ops *ops;
	struct oplog_config cfg;
	pthread_mutex_t lock;
	pthread_cond_t readers_gone; /* a pool's readers reached zero */
	struct oplog_pool pools[OPLOG_POOLS];
	unsigned active;      /* lock; written by the appender */
	/* only rises, but in oplog_restart; release, with acquire where a switch is decided */
	_Atomic uint64_t covered_lsn;
	_Atomic uint64_t hold_lsn;    /* relaxed: only advice */
	uint64_t generation;  /* appender only: the newest given */
	_Atomic uint64_t last_lsn; /* release after publishing, with acquire in oplog_last_lsn */
	struct metric *append_time; /* kvfs_stage_duration_seconds{stage="log"} */
	atomic_bool dead;     /* set once, relaxed: only stops later calls */
};

static inline bool oplog_pool_has_records(const struct oplog_pool *p)
{
	return p->generation != 0 && p->last_lsn >= p->base_lsn;
}

/* Whether the pool may be rewound. By the appender, or with the lock. */
static inline bool oplog_pool_reusable(const struct oplog *log, const struct oplog_pool *p)
{
	return !oplog_pool_has_records(p) ||
	       p->last_lsn <= atomic_load_explicit(&log->covered_lsn, memory_order_acquire);
}

static inline bool oplog_pool_held(const struct oplog *log, const struct oplog_pool *p)
{
	return oplog_pool_has_records(p) &&
	       p->last_lsn >= atomic_load_explicit(&log->hold_lsn, memory_order_relaxed);
}

static inline struct oplog_pool *oplog_active(struct oplog *log)
{
	return &log->pools[log->active];
}

static inline struct oplog_pool *oplog_other(struct oplog *log)
{
	return &log->pools[1 - log->active];
}

/* Drops resident pages below offset when enough came since *forgot, which it moves. Any thread. */
void oplog_pool_forget(const struct logdev_ops *ops, const struct oplog_pool *p, uint64_t offset,
		       uint64_t *forgot);

/* Remembers where the record lsn begins if the last mark is far enough. Without memory it is
 * left out: reading is only slower. */
void oplog_pool_mark(struct oplog_pool *p, uint64_t lsn, uint64_t offset);

/* The nearest mark at or below lsn (the first record when there is none). Caller holds the lock or
 * is alone. */
struct oplog_mark oplog_pool_find(const struct oplog_pool *p, uint64_t lsn);

/*
 * Finds what the opened device p->dev holds and fills p. -EBADMSG with *ret_why: the generation
 * record is invalid or not ours; -EIO: not all of it can be read. One that was torn as it was
 * written counts as an empty pool.
 */
int oplog_pool_scan(const struct logdev_ops *ops, const struct oplog_config *cfg,
		    struct oplog_pool *p, const char **ret_why);

/* After ordering: -EBADMSG with *ret_why (valid in this thread) when valid records follow the
 * active pool's first invalid one, which a crash does not leave; -EIO: not known. */
int oplog_check_tail(struct oplog *log, const char **ret_why);

/* memcpy() from a mapped pool. -EIO. */
int oplog_copy(void *to, const uint8_t *from, size_t len);

/* After both: appends to the active pool, in its place, what stands whole behind the end that the
 * pool names. As logdev append; -ENOMEM. */
int oplog_take_in(struct oplog *log);

/* Orders the scanned pools: the active one, and whether the other continues into it. */
int oplog_pools_order(struct oplog *log, const char **ret_why);

#endif
