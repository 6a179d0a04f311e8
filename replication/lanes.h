/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_LANES_H
#define KVFS_REPLICATION_LANES_H
/* What primary and mirror say to each other when lanes are made anew (repl_format.h). Pure; any
 * thread. */
#include "replication/ack.h"

#include <stdint.h>

struct lanes_lost {
	uint64_t lanes; /* bit n: lane n */
	uint32_t generation;
	uint32_t posted[REPL_LANES_MAX];
};

struct lanes_ready {
	uint64_t lanes, ring_pos;
	uint32_t generation;
	struct ack ack;
};

void lanes_lost_encode(const struct lanes_lost *l, struct repl_lanes_lost *ret_w);
void lanes_ready_encode(const struct lanes_ready *r, struct repl_lanes_ready *ret_w);

/* Of a session with so many lanes. -EPROTO: another length, no lane or one that there is not,
 * generation 0, no acknowledgement, a position that is not a record's. */
int lanes_lost_decode(const void *in, size_t len, unsigned lanes, struct lanes_lost *ret_l);
int lanes_ready_decode(const void *in, size_t len, unsigned lanes, struct lanes_ready *ret_r);

static inline uint64_t lanes_bit(unsigned lane)
{
	return 1ULL << lane;
}

/* All of so many, at most REPL_LANES_MAX. */
static inline uint64_t lanes_all(unsigned lanes)
{
	return lanes_bit(lanes) - 1;
}

#endif
