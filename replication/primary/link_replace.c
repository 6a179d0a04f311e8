/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dead lanes of a live session are made anew (link.h): nothing is sent meanwhile, what the dead
 * lanes may have lost is sent again afterwards, and the mirror stays where it is in the commit
 * queue's set.
 *
 *   we post nothing more, and say which lanes are dead and how much was posted on each other one
 *   the mirror takes all of that, so nothing is on its way any more, and says what it has
 *   each dead lane is connected anew (transport_ops.lane_connect)
 *   we send all that the mirror does not have from the log, to the places in the ring it had before
 *
 * Where that does not come about in time, too often, or not at all, the session ends, and another
 * catches the mirror up. The link's thread, but for note.
 */
#include "replication/primary/link.h"

#include "common/clock.h"
#include "replication/frame.h"
#include "replication/lanes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define REPLACE_NS (2 * NSEC_PER_SEC)
#define REPLACE_POLL_NS (1 * NSEC_PER_MSEC)
/* So many times in so long, then the session ends: something is wrong that new lanes don't cure. */
#define REPLACE_MOST 32
#define REPLACE_MOST_NS (10 * NSEC_PER_SEC)
/* So many times in a row, for as long as replace_ns at least, and no record gets through: the way
 * takes connections and heartbeats, but not what is larger. Lanes that die of one failure of the
 * network are sooner at an end. */
#define REPLACE_VAIN_MOST 3

/* One time. */
struct replacing {
	uint64_t deadline_ns;
	const char *why; /* of a transport; NULL: the errno says it */
	bool told;       /* last_error says already why it failed */
};

bool link_replace_can(const struct link *l)
{
	return l->tops->lane_connect != NULL;
}

bool link_replace_note(struct link *l, const struct transport_event *ev)
{
	/* a device that goes must be let go of; a peer that talks nonsense would do so again */
	if (!link_replace_can(l) || ev->err == -ENODEV || ev->err == -EPROTO)
		return false;
	l->replace.dead |= lanes_bit(ev->lane);
	l->pump_wanted = true; /* whoever borrowed the endpoint gives it back */
	return true;
}

bool link_replace_knows(const struct link *l)
{
	return l->replace.dead == lanes_all(l->tops->lanes(l->ep));
}

/* How long the mirror may take: before writers would have to do without it. */
static uint64_t replace_ns(const struct link *l)
{
	uint64_t half = l->primary->cfg.timeout_ns / 2;

	return half < REPLACE_NS ? half : REPLACE_NS;
}

bool link_replace_overdue(const struct link *l, uint64_t suspended_ns)
{
	return suspended_ns > replace_ns(l);
}

static int replace_count(struct link *l, uint64_t now)
{
	struct link_replace *r = &l->replace;

	if (now - r->counted_since_ns > REPLACE_MOST_NS) {
		r->counted_since_ns = now;
		r->count = 0;
	}
	return ++r->count > REPLACE_MOST ? -EAGAIN : 0;
}

static bool replace_is_vain(struct link *l, uint64_t now)
{
	struct link_replace *r = &l->replace;
	uint64_t sent = atomic_load_explicit(&l->sent_lsn, memory_order_relaxed);

	if (!r->generation || sent <= r->lsn || l->last_ack.received_lsn > r->lsn) {
		r->lsn = l->last_ack.received_lsn;
		r->vain = 0;
		r->vain_since_ns = now;
		return false;
	}
	return ++r->vain >= REPLACE_VAIN_MOST && now - r->vain_since_ns >= replace_ns(l);
}

/* Acknowledgements come as ever, and what was posted may still have to go out. */
static int replace_poll(struct link *l, struct replacing *r)
{
	int err = link_session_poll(l, REPLACE_POLL_NS);

	r->told = err != 0;
	if (!err && link_stopping(l))
		err = -ECANCELED;
	if (!err && clock_mono_ns() >= r->deadline_ns)
		err = -ETIMEDOUT;
	return err;
}

static int replace_ask(struct link *l, uint64_t deadline_ns)
{
	struct lanes_lost lost = { .lanes = l->replace.dead, .generation = l->replace.generation };
	struct repl_lanes_lost w;

	link_send_suspend(l, lost.posted);
	lanes_lost_encode(&lost, &w);
	return frame_send(l->control_fd, REPL_LANES_LOST, &w, sizeof(w), deadline_ns,
			  &l->primary->stopping);
}

/* The mirror's answer, if it is there whole. -EAGAIN: it is not. */
static int replace_answer(struct link *l, struct frame_reader *reader,
			  struct lanes_ready *ret_ready)
{
	struct frame f;
	int err = frame_read_some(l->control_fd, reader, &f);

	if (err)
		return err;
	if (f.type != REPL_LANES_READY)
		return -EPROTO;
	err = lanes_ready_decode(frame_reader_payload(reader), f.len, l->tops->lanes(l->ep),
				 ret_ready);
	if (!err && ret_ready->generation != l->replace.generation)
		err = -EPROTO;
	return err;
}

static int replace_await(struct link *l, struct replacing *r, struct lanes_ready *ret_ready)
{
	uint64_t asked = l->replace.dead;
	struct frame_reader reader = { .got = 0 };
	int err;

	do
		err = replace_answer(l, &reader, ret_ready);
	while (err == -EAGAIN && (err = replace_poll(l, r)) == 0);
	return !err && asked & ~ret_ready->lanes ? -EPROTO : err;
}

/* Lanes that were dead to the mirror only end here, too. */
static int replace_settle(struct link *l, struct replacing *r, uint64_t lanes)
{
	int err = 0;

	for (unsigned i = 0; i < l->tops->lanes(l->ep); i++)
		if (lanes & ~l->replace.dead & lanes_bit(i))
			l->tops->kill_lane(l->ep, i);
	while (!err && lanes & ~l->replace.dead)
		err = replace_poll(l, r);
	return err;
}

static int replace_lanes(struct link *l, struct replacing *r, uint64_t lanes)
{
	struct transport_relane lane = { .generation = l->replace.generation,
					 .deadline_ns = r->deadline_ns };
	int err = 0;

	for (; !err && lane.lane < l->tops->lanes(l->ep); lane.lane++) {
		if (!(lanes & lanes_bit(lane.lane)))
			continue;
		err = l->tops->lane_connect(l->ep, l->control_fd, &lane, &r->why);
		if (!err)
			atomic_fetch_add_explicit(&l->lanes_replaced, 1, memory_order_relaxed);
	}
	return err;
}

static int replace_steps(struct link *l, struct replacing *r)
{
	struct lanes_ready ready;
	int err = replace_ask(l, r->deadline_ns);

	if (!err)
		err = replace_await(l, r, &ready);
	if (!err) {
		err = link_session_ack(l, &ready.ack);
		r->told = err != 0;
	}
	if (!err)
		err = replace_settle(l, r, ready.lanes);
	if (!err)
		err = replace_lanes(l, r, ready.lanes);
	if (!err)
		err = link_send_resume(l, ready.lanes, ready.ack.received_lsn, ready.ring_pos);
	if (err)
		return err;
	l->replace.dead &= ~ready.lanes;
	/* the rest of them is lost */
	l->beats_sent = ready.ack.heartbeats;
	if (ready.lanes & lanes_bit(REPL_SYNC_LANE))
		l->told_sync = !l->in_sync;
	return 0;
}

int link_replace(struct link *l)
{
	uint64_t now = clock_mono_ns();
	struct replacing r = { .deadline_ns = now + replace_ns(l) };
	char cause[sizeof(l->last_error)];
	int err = replace_count(l, now);
	bool vain = replace_is_vain(l, now);

	/* nobody else writes it while we have the endpoint */
	memcpy(cause, l->last_error, sizeof(cause));
	if (err || vain) {
		link_fail(l, -ENOTCONN, "%.300s; new lanes %s", cause,
			  vain ? "carry nothing either" : "failed as well, time and again");
		return link_transport_failed(l, -ENOTCONN);
	}
	l->replace.generation++;
	err = replace_steps(l, &r);
	if (!err || err == -ECANCELED || r.told)
		return err;
	return link_fail(l, -ENOTCONN, "%.250s; no new lane: %.100s", cause,
			 r.why ? r.why : strerror(-err));
}
