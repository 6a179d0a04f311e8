/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding and decoding of what is said about dead lanes: see lanes.h. */
#include "replication/lanes.h"

#include "replication/transport/transport.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

static_assert(REPL_LANES_MAX == TRANSPORT_LANES_MAX, "lanes of a session");
static_assert(REPL_LANES_MAX < 64, "a bit a lane");

void lanes_lost_encode(const struct lanes_lost *l, struct repl_lanes_lost *ret_w)
{
	*ret_w = (struct repl_lanes_lost){
		.lanes = htobe64(l->lanes),
		.generation = htobe32(l->generation),
	};
	for (unsigned i = 0; i < REPL_LANES_MAX; i++)
		ret_w->posted[i] = htobe32(l->posted[i]);
}

void lanes_ready_encode(const struct lanes_ready *r, struct repl_lanes_ready *ret_w)
{
	*ret_w = (struct repl_lanes_ready){
		.lanes = htobe64(r->lanes),
		.ring_pos = htobe64(r->ring_pos),
		.generation = htobe32(r->generation),
	};
	ack_encode(&r->ack, &ret_w->ack);
}

static int lanes_check(uint64_t dead, uint32_t generation, uint32_t zero, unsigned lanes)
{
	return dead == 0 || (dead & ~lanes_all(lanes)) != 0 || generation == 0 || zero != 0 ?
		       -EPROTO : 0;
}

int lanes_lost_decode(const void *in, size_t len, unsigned lanes, struct lanes_lost *ret_l)
{
	struct repl_lanes_lost w;
	struct lanes_lost l;

	if (len != sizeof(w))
		return -EPROTO;
	memcpy(&w, in, sizeof(w));
	l.lanes = be64toh(w.lanes);
	l.generation = be32toh(w.generation);
	for (unsigned i = 0; i < REPL_LANES_MAX; i++)
		l.posted[i] = be32toh(w.posted[i]);
	if (lanes_check(l.lanes, l.generation, w.zero, lanes) < 0)
		return -EPROTO;
	*ret_l = l;
	return 0;
}

int lanes_ready_decode(const void *in, size_t len, unsigned lanes, struct lanes_ready *ret_r)
{
	struct repl_lanes_ready w;
	struct lanes_ready r;

	if (len != sizeof(w))
		return -EPROTO;
	memcpy(&w, in, sizeof(w));
	r.lanes = be64toh(w.lanes);
	r.ring_pos = be64toh(w.ring_pos);
	r.generation = be32toh(w.generation);
	if (lanes_check(r.lanes, r.generation, w.zero, lanes) < 0 ||
	    ack_decode(&w.ack, sizeof(w.ack), &r.ack) < 0 ||
	    r.ring_pos % TRANSPORT_IMM_UNIT != 0 || r.ring_pos < r.ack.ring_freed)
		return -EPROTO;
	*ret_r = r;
	return 0;
}
