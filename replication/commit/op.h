/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_OP_H
#define KVFS_REPLICATION_OP_H
/*
 * One operation on its way to being committed: the sealed record, the memory its data lie in, and
 * what to do when the commit point passes it (or cannot). Made by fs/, owned by the commit queue
 * from commit_enqueue() until both complete() and release() have been called.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <urcu/list.h>

#define OP_DATA_IOV_MAX 18 /* RECORD_DATA_MAX in slab chunks, unaligned */

struct op;

struct op_ops {
	/* Exactly once, without locks, from any thread: err 0 (committed; an early one: in the own
	 * log), -EIO (timed out below min_mirrors, or the log failed). The answer to the request is
	 * sent here. */
	void (*complete)(struct op *op, int err);
	/* Exactly once, after complete() and when no send needs the memory any more: drops the
	 * references to data and frees op. */
	void (*release)(struct op *op);
};

struct op {
	const struct op_ops *ops;
	struct cds_list_head node;   /* commit queue's */
	uint64_t lsn;                /* its own; for a waiter (head_len 0) the LSN it waits for */
	uint64_t deadline_ns;        /* clock_mono_ns(); complete(-EIO) after it */
	uint64_t pending_ns;         /* since when it is in the own log; under the commit lock */
	_Atomic uint32_t refs;       /* commit queue and sends in flight; op_get, op_put */
	bool completed;              /* complete() was called; under the commit lock */
	bool early;                  /* needs no mirror to be answered: commit.h */
	uint32_t admitted_bytes;     /* log room this op reserved with commit_admit(), 0: none */
	uint16_t data_iovcnt;
	uint32_t head_len;
	uint32_t data_len;
	struct iovec data[OP_DATA_IOV_MAX]; /* stable until release (slots are referenced) */
	uint8_t *head;               /* sealed header, body and names */
};

#endif
