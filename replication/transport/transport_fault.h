/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_TRANSPORT_FAULT_H
#define KVFS_REPLICATION_TRANSPORT_FAULT_H
/*
 * The fault injector of the transport seam: wraps an endpoint of another transport and does to its
 * posts, lanes and receiver what a bad network and a bad peer do, within the contract of
 * transport.h. What happens follows from the plan's seed and the order of calls. For tests; a whole
 * program can be put on it with transport_fault_use().
 */
#include "replication/transport/transport.h"

/* Posts that the injector itself holds back on a lane at most. They have not taken a credit of the
 * inner transport yet, so up to twice TRANSPORT_CREDITS can be on the way when there are delays. */
#define TRANSPORT_FAULT_HELD_MAX (TRANSPORT_CREDITS - TRANSPORT_CREDITS_CONTROL)

/* All zero: no faults. Counts run over all lanes, from 1; 0: never. */
struct transport_fault_plan {
	uint64_t seed;
	/* of posts: held back, and what follows on their lane with them, for a random time up to
	 * delay_max_ns: lanes overtake each other */
	unsigned delay_permille;
	uint64_t delay_max_ns;
	unsigned corrupt_permille; /* of posts: one bit of their bytes is flipped */
	unsigned short_permille;   /* of post calls: credits withheld; a WRITABLE follows */
	uint64_t kill_lane_at;     /* the n-th post ends its lane, in mid-batch; it is lost */
	uint64_t kill_lane_every;  /* each n-th does */
	uint64_t peer_gone_at;     /* the n-th post ends all lanes */
	uint64_t stall_at;         /* after the n-th notice, poll takes nothing from the wire */
	uint64_t stall_ns;         /* for so long */
	unsigned lanes_max;        /* connect fails for more lanes than that; 0: for none */
	/* what a post call takes at least, whatever it posts: a dear doorbell; 0: nothing */
	uint64_t post_ns;
};

/* Takes over inner, whatever its transport; closed with the result. -ENOMEM, -EAGAIN (no thread):
 * inner is untouched. */
int transport_fault_wrap(struct transport_ep *inner, const struct transport_fault_plan *plan,
			 struct transport_ep **ret_ep);

/* What accept and connect of transport_fault_ops use from now on. Not while one of them runs. */
void transport_fault_use(const struct transport_ops *inner,
			 const struct transport_fault_plan *plan);

extern const struct transport_ops transport_fault_ops;

#endif
