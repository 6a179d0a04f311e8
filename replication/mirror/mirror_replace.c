/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dead lanes of a session are made anew (link_replace.c has the whole course). The primary says
 * which, and how much it posted on the others. When all of that is taken and the dead ones can
 * bring nothing more, no write of old is on its way to the ring: what waits for a record that was
 * lost is forgotten, and the primary is told where to begin again. A lane that is dead to us only
 * waits until the primary notices as well, to its deadline. kv-mirror.
 */
#include "replication/mirror/mirror_internal.h"

#include "common/clock.h"

#include <errno.h>
#include <string.h>

#define REPLACE_NS (2 * NSEC_PER_SEC)
#define REPLACE_LOOK_ROUNDS 64 /* between looks at the control connection while all is well */

void mirror_replace_begin(struct mirror *m, int fd)
{
	m->replace = (struct mirror_replace){ .fd = fd };
}

static void replace_start_clock(struct mirror_replace *r)
{
	if (!r->dead && !r->asked)
		r->deadline_ns = clock_mono_ns() + REPLACE_NS;
}

bool mirror_replace_note(struct mirror *m, const struct transport_event *ev)
{
	struct mirror_replace *r = &m->replace;

	/* a device that goes must be let go of; a peer that talks nonsense would do so again */
	if (!m->tops->lane_accept || ev->err == -ENODEV || ev->err == -EPROTO)
		return false;
	replace_start_clock(r);
	r->dead |= lanes_bit(ev->lane);
	return true;
}

bool mirror_replace_knows(const struct mirror *m)
{
	return m->replace.dead == lanes_all(m->tops->lanes(m->ep));
}

static int replace_heard(struct mirror *m, const struct frame *f)
{
	struct mirror_replace *r = &m->replace;
	unsigned lanes = m->tops->lanes(m->ep);
	struct lanes_lost lost;

	if (f->type != REPL_LANES_LOST || r->asked || !m->tops->lane_accept ||
	    lanes_lost_decode(frame_reader_payload(&r->reader), f->len, lanes, &lost) != 0 ||
	    lost.generation != r->generation + 1)
		return mirror_fail(m, -EPROTO, "the primary asks for new lanes out of turn");
	replace_start_clock(r);
	r->lost = lost;
	r->asked = true;
	r->reader.got = 0;
	for (unsigned i = 0; i < lanes; i++)
		if (lost.lanes & ~r->dead & lanes_bit(i))
			m->tops->kill_lane(m->ep, i);
	return 0;
}

/* A control connection that ends matters only when lanes are needed. */
static int replace_listen(struct mirror *m)
{
	struct mirror_replace *r = &m->replace;
	struct frame f;
	int err = r->fd < 0 ? -ECONNRESET : frame_read_some(r->fd, &r->reader, &f);

	if (!err)
		return replace_heard(m, &f);
	if (err == -EAGAIN)
		return 0;
	r->fd = -1;
	return r->dead || r->asked ? mirror_fail(m, -ENOTCONN, "the primary is gone: %s",
						 strerror(-err)) : 0;
}

/* All that was posted on the living lanes is here, and all that are to go are dead. */
static bool replace_quiet(const struct mirror *m)
{
	const struct mirror_replace *r = &m->replace;

	if (!r->asked || r->lost.lanes & ~r->dead)
		return false;
	for (unsigned i = 0; i < m->tops->lanes(m->ep); i++)
		if (!(r->dead & lanes_bit(i)) && r->taken[i] != r->lost.posted[i])
			return false;
	return true;
}

static int replace_answer(struct mirror *m)
{
	struct mirror_replace *r = &m->replace;
	struct lanes_ready ready = {
		.lanes = r->dead,
		.ring_pos = m->ring_pos,
		.generation = r->lost.generation,
		.ack = mirror_ack_make(m),
	};
	struct repl_lanes_ready w;

	mirror_rx_forget(m);
	m->ack_sequence = ready.ack.sequence;
	m->ring_freed_told = m->ring_freed;
	lanes_ready_encode(&ready, &w);
	return frame_send(r->fd, REPL_LANES_READY, &w, sizeof(w), r->deadline_ns, &m->leave);
}

static int replace_lanes(struct mirror *m, const char **ret_why)
{
	struct mirror_replace *r = &m->replace;
	struct transport_relane lane = { .generation = r->lost.generation,
					 .deadline_ns = r->deadline_ns };
	int err = 0;

	for (; !err && lane.lane < m->tops->lanes(m->ep); lane.lane++) {
		if (!(r->dead & lanes_bit(lane.lane)))
			continue;
		err = m->tops->lane_accept(m->ep, r->fd, &lane, ret_why);
		r->taken[lane.lane] = 0;
	}
	return err;
}

static int replace_now(struct mirror *m)
{
	struct mirror_replace *r = &m->replace;
	const char *why = NULL;
	int err = replace_answer(m);

	if (!err)
		err = replace_lanes(m, &why);
	if (err)
		return mirror_fail(m, -ENOTCONN, "cannot make lanes anew: %s",
				   why ? why : strerror(-err));
	r->dead = 0;
	r->asked = false;
	r->generation = r->lost.generation;
	m->ack_due = true;
	pthread_mutex_lock(&m->lock);
	m->last_error[0] = '\0';
	pthread_mutex_unlock(&m->lock);
	return 0;
}

int mirror_replace_attend(struct mirror *m, bool idle)
{
	struct mirror_replace *r = &m->replace;
	int err = 0;

	if (m->goodbye)
		return 0;
	if (r->dead || r->asked || (r->fd >= 0 && (idle || m->rounds % REPLACE_LOOK_ROUNDS == 0)))
		err = replace_listen(m);
	if (err || !(r->dead || r->asked))
		return err;
	if (replace_quiet(m))
		return replace_now(m);
	/* last_error says which lane failed, and why */
	return clock_mono_ns() >= r->deadline_ns ? -ENOTCONN : 0;
}
