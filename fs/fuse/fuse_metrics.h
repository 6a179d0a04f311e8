/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_FUSE_METRICS_H
#define KVFS_FS_FUSE_METRICS_H
/*
 * Requests in the metric registry: how many of each kind, how long from the worker's read to the
 * answer, how long changes wait for their commit, bytes. A worker brackets each request with begin
 * and end; a request that is answered later, perhaps by another thread, takes its timing along in
 * its fs_op (defer).
 */
#include "common/metrics.h"
#include "replication/commit/op.h"

#define FS_METRICS_KINDS 28

struct fuse_buf;

struct fs_metrics {
	struct metric *duration[FS_METRICS_KINDS]; /* kvfs_operation_duration_seconds by op */
	struct metric *total[FS_METRICS_KINDS]; /* kvfs_operations_total by op: from the durations'
						   counts */
	struct metric *read_bytes, *write_bytes, *failed, *in_flight;
	struct metric *commit_wait, *record_bytes;
	struct metric *view_told, *doubt_told; /* kvfs_cache_invalidations_total by reason */
};

struct fs_timing {
	uint64_t began_ns;  /* the worker had read the request, or it came to wait for one */
	uint64_t due_from_ns; /* the request's deadline counts from here */
	uint64_t queued_ns; /* the operation was made: its wait for log room and commit begins */
	uint8_t kind;
	bool is_request; /* false: nobody waits for an answer */
};

void fs_metrics_init(struct fs_metrics *fm, struct metrics *m);

/* Worker: around the handler of the request in buf. came_ns: when it came, 0: just now. */
void fs_metrics_begin(struct fs_metrics *fm, const struct fuse_buf *buf, uint64_t came_ns);
void fs_metrics_end(struct fs_metrics *fm);
/* In place of end: the request is handled once more, and counts then. */
void fs_metrics_again(struct fs_metrics *fm);

/* In a handler: the timing of an operation made now, and that its complete() will call
 * fs_metrics_answered. */
struct fs_timing fs_metrics_timing(bool is_request);
/* In a handler that did part of a long request: its deadline counts from now. */
void fs_metrics_progress(void);
void fs_metrics_defer(void);

/* An operation's request was answered, with err. op: its record, if it has one (head_len), is
 * committed. */
void fs_metrics_answered(struct fs_metrics *fm, const struct fs_timing *timing, const struct op *op,
			 int err);

#endif
