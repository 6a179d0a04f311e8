/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_LINK_METRICS_H
#define KVFS_REPLICATION_LINK_METRICS_H
/*
 * How long a mirror takes: from a record's post to the acknowledgement the protocol asks for, on
 * every transport, and how often something had to be sent again. Private to link*.c.
 *
 * A batch's post time is noted in a small ring before the post, since its acknowledgement may be
 * quicker than the post's return. Written under the link's send_lock, read by the link's thread:
 * head and tail each have one writer. Full (the mirror owes LINK_TIMES batches): those batches go
 * unmeasured.
 */
#include "common/metrics.h"

#define LINK_TIMES 1024

struct link_time {
	_Atomic uint64_t last_lsn; /* of the batch; LSNs of a batch are consecutive */
	_Atomic uint64_t ns;
	_Atomic uint32_t records;
};

struct link_metrics {
	struct metrics *metrics;
	char addr[300];
	struct metric *latency; /* rdma_write_latency of the session's transport */
	struct metric *wire;	/* kvfs_stage_duration_seconds{stage="wire"} */
	struct metric *retry;	/* qp_retry_count */
	struct metric *resent, *put_off, *connects; /* kvfs_mirror_retries_total by cause */
	uint64_t transport_retries;		    /* of the session, as last asked */
	_Atomic uint32_t head, tail;
	struct link_time at[LINK_TIMES];
};

/* m may be NULL. */
void link_metrics_init(struct link_metrics *t, struct metrics *m, const char *addr);
/* A session begins, no post can run. */
void link_metrics_begin(struct link_metrics *t, const char *transport);

/* Under send_lock, before a post of records up to last_lsn, at now_ns; and after it, when taken of
 * them went (0 for an error). */
void link_metrics_post(struct link_metrics *t, uint64_t last_lsn, unsigned records,
		       uint64_t now_ns);
void link_metrics_posted(struct link_metrics *t, uint64_t last_lsn, unsigned records,
			 unsigned taken);

/* The link's thread: everything up to lsn is acknowledged. */
void link_metrics_acked(struct link_metrics *t, uint64_t lsn, uint64_t now_ns);

/* The transport has sent so many things again in this session. */
void link_metrics_transport(struct link_metrics *t, uint64_t retries);
void link_metrics_connect_failed(struct link_metrics *t);

#endif
