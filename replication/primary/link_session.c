/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection to a mirror, from its lanes (link_setup.c) to its end, all on the link's thread.
 * Where a lost lane can't be made anew (link_replace.c) it ends it: posts on that lane may be gone,
 * and the next handshake says from which LSN to send again.
 */
#include "replication/primary/link.h"

#include "common/clock.h"
#include "replication/transport/transport_verbs.h"

#include <errno.h>
#include <string.h>

#define SESSION_TICK_NS (50 * NSEC_PER_MSEC)
#define SESSION_GOODBYE_NS (200 * NSEC_PER_MSEC)
/* Out of sync and without any acknowledgement for so long, on top of the timeout (its log
 * may be full). */
#define SESSION_STUCK_NS (120 * NSEC_PER_SEC)
#define SESSION_EVENTS 64

static int session_begin(struct link *l)
{
	uint64_t last_lsn = l->welcome.last_lsn;
	int err;

	l->in_sync = l->told_sync = false;
	l->replace = (struct link_replace){ .dead = 0 };
	l->last_ack = (struct ack){ .received_lsn = last_lsn, .durable_lsn = last_lsn };
	l->beats_sent = l->beats_seen = 0;
	l->last_heard_ns = clock_mono_ns();
	l->last_beat_ns = 0;
	link_metrics_begin(&l->times, l->tops->name);
	err = link_keep_begin(l);
	if (err)
		return link_fail(l, err, "no memory for the records under way");
	link_send_begin(l, last_lsn + 1);
	err = commit_link_add(l->primary->commit,
			      l->tops == &transport_tcp_ops ? &link_commit_dear_ops
							    : &link_commit_ops,
			      l, &l->commit_link);
	if (err) {
		link_send_end(l);
		return link_fail(l, err, "too many mirrors");
	}
	commit_link_ack(l->commit_link, last_lsn, last_lsn);
	link_hold_begin(l, last_lsn + 1, last_lsn);
	link_set_state(l, LINK_CATCHUP);
	return 0;
}

/* The mirror must know what we reckon with; without a credit just now it is told a little later. */
static void session_tell_sync(struct link *l)
{
	if (l->told_sync != l->in_sync && link_send_sync(l, l->in_sync))
		l->told_sync = l->in_sync;
}

/* While this runs the commit point still waits for the mirror: so what is acknowledged without it
 * is so after it was noted. */
static void session_note_sync(struct link *l, bool in)
{
	struct primary *p = l->primary;
	int err = p->cfg.note_sync ? p->cfg.note_sync(p->cfg.ctx, l->welcome.node_id, in) : 0;

	if (err && !in)
		commit_fail(p->commit, err);
}

static void session_count_retries(struct link *l)
{
	if (l->tops->retries)
		link_metrics_transport(&l->times, l->tops->retries(l->ep));
}

/* Keeps why it ended: what follows, such as a vain call, replaces last_error at once. */
static void session_note_end(struct link *l)
{
	pthread_mutex_lock(&l->primary->lock);
	memcpy(l->ended_why, l->last_error, sizeof(l->ended_why));
	l->ended_ns = clock_real_ns();
	pthread_mutex_unlock(&l->primary->lock);
}

static void session_end(struct link *l)
{
	session_count_retries(l);
	link_send_end(l);
	/* A primary that stops acknowledges nothing more: the mirror stays one that has
	 * everything. */
	if (l->in_sync && !link_stopping(l))
		session_note_sync(l, false);
	l->in_sync = false;
	l->joining = false;
	commit_link_remove(l->commit_link);
	l->commit_link = NULL;
}

static void session_try_join(struct link *l)
{
	if (l->in_sync || atomic_load_explicit(&l->send.behind, memory_order_relaxed) ||
	    atomic_load_explicit(&l->acked_lsn, memory_order_relaxed) < l->rejoin_lsn)
		return;
	l->joining = commit_link_set_sync(l->commit_link, true) != 0;
	if (l->joining)
		return;
	l->in_sync = true;
	session_note_sync(l, true);
	session_tell_sync(l);
	link_hold_end(l);
	link_set_state(l, LINK_LIVE);
}

static void session_fall_out(struct link *l)
{
	uint64_t acked_lsn;

	if (!l->in_sync && !l->joining)
		return;
	if (l->in_sync) {
		l->in_sync = false;
		session_tell_sync(l);
		session_note_sync(l, false);
	}
	commit_link_set_sync(l->commit_link, false);
	l->joining = false;
	l->rejoin_lsn = commit_durable_lsn(l->primary->commit);
	acked_lsn = atomic_load_explicit(&l->acked_lsn, memory_order_relaxed);
	link_hold_begin(l, acked_lsn + 1, acked_lsn);
	link_set_state(l, LINK_CATCHUP);
}

/* Positions only grow, and nothing was received or freed that was not sent. What the ring's space
 * is counted from comes from here: taken as it is, a wrong one would leave no space for ever. */
static bool session_ack_makes_sense(struct link *l, const struct ack *a)
{
	const struct ack *last = &l->last_ack;

	return a->received_lsn >= last->received_lsn && a->durable_lsn >= last->durable_lsn &&
	       a->applied_lsn >= last->applied_lsn && a->ring_freed >= last->ring_freed &&
	       a->heartbeats >= last->heartbeats && a->heartbeats <= l->beats_sent &&
	       link_send_covers(l, a->received_lsn, a->ring_freed);
}

int link_session_ack(struct link *l, const struct ack *a)
{
	bool in_memory;

	if (!session_ack_makes_sense(l, a))
		return link_fail(l, -EPROTO,
				 "the mirror acknowledges nonsense (LSN %llu, ring position %llu)",
				 (unsigned long long)a->received_lsn,
				 (unsigned long long)a->ring_freed);
	l->last_ack = *a;
	if (a->heartbeats > l->beats_seen && a->heartbeats == l->beats_sent)
		atomic_store_explicit(&l->rtt_ns, clock_mono_ns() - l->last_beat_ns,
				      memory_order_relaxed);
	l->beats_seen = a->heartbeats;
	atomic_store_explicit(&l->applied_lsn, a->applied_lsn, memory_order_relaxed);
	atomic_store_explicit(&l->ring_freed, a->ring_freed, memory_order_release);
	/* before the window moves: an LSN may only take the place of one that is no longer held */
	link_keep_release(l, a->received_lsn);
	atomic_store_explicit(&l->acked_lsn, a->durable_lsn, memory_order_release);
	in_memory = commit_protocol_of(l->primary->commit) == COMMIT_PROTOCOL_B;
	link_metrics_acked(&l->times, in_memory ? a->received_lsn : a->durable_lsn,
			   l->last_heard_ns);
	commit_link_ack(l->commit_link, a->received_lsn, a->durable_lsn);
	return 0;
}

static int session_take_ack(struct link *l)
{
	uint64_t bytes;
	const uint8_t *window = l->tops->window(l->ep, &bytes);
	struct ack a;

	/* An earlier notice of this poll may have brought us past this one's acknowledgement
	 * already. */
	return ack_scan(window, l->last_ack.sequence, &a) ? link_session_ack(l, &a) : 0;
}

static int session_notice(struct link *l, const struct transport_event *ev)
{
	switch (ev->imm) {
	case TRANSPORT_IMM_ACK:
		return 0;
	case REPL_IMM_LOAD:
		link_load_notice(l);
		return 0;
	case REPL_IMM_GOODBYE:
		return link_fail(l, -ECONNRESET, "the mirror left");
	default:
		return link_fail(l, -EPROTO, "unexpected notice %#x from the mirror", ev->imm);
	}
}

static int session_lane_down(struct link *l, const struct transport_event *ev)
{
	const char *why = l->tops->lane_why ? l->tops->lane_why(l->ep, ev->lane) : NULL;

	int err;

	atomic_fetch_add_explicit(&l->lanes_down, 1, memory_order_relaxed);
	err = link_fail(l, -ENOTCONN, "lane %u failed: %s", ev->lane,
			why ? why : strerror(-ev->err));
	return link_replace_note(l, ev) ? 0 : err;
}

static int session_event(struct link *l, const struct transport_event *ev)
{
	switch (ev->kind) {
	case TRANSPORT_EVENT_NOTICE:
		return session_notice(l, ev);
	case TRANSPORT_EVENT_LANE_DOWN:
		return session_lane_down(l, ev);
	case TRANSPORT_EVENT_PEER_DOWN:
		if (link_replace_knows(l))
			return 0; /* whether it is more than that the control connection tells */
		return link_fail(l, -ENOTCONN, "the connection failed: %s", strerror(-ev->err));
	case TRANSPORT_EVENT_WRITABLE:
		return 0;
	}
	return link_fail(l, -EPROTO, "unexpected event of the transport");
}

/* Deadlines and heartbeats, every SESSION_TICK_NS. */
static int session_tick(struct link *l, uint64_t now)
{
	uint64_t half = l->primary->cfg.timeout_ns / 2;
	uint64_t stuck = 2 * l->primary->cfg.timeout_ns + SESSION_STUCK_NS;
	struct link_ages ages;
	int err = link_send_check(l, atomic_load_explicit(&l->acked_lsn, memory_order_relaxed), now,
				  &ages);

	verbs_devices_attend();
	if (err)
		return link_fail(l, err, "cannot post: %s", strerror(-err));
	if (link_replace_overdue(l, ages.suspended_ns))
		return link_fail(l, -ENOTCONN, "a lane takes no posts");
	if (now - l->last_heard_ns > half)
		return link_fail(l, -ETIMEDOUT, "the mirror is silent");
	if (ages.unsent_ns)
		l->pump_wanted = true; /* what the commit queue owes, or can't send any more */
	if (ages.unacked_ns > half || ages.unsent_ns > half)
		session_fall_out(l);
	if (ages.unacked_ns > stuck)
		return link_fail(l, -ETIMEDOUT, "the mirror acknowledges nothing");
	if (l->in_sync && link_transport_better(l, now))
		return link_fail(l, -EAGAIN, "RDMA can be had again");
	if (ages.stuck_ns > stuck)
		return link_fail(l, -ETIMEDOUT, "the mirror takes no more records");
	link_load_tick(l, now);
	link_hold_catchup(l, atomic_load_explicit(&l->acked_lsn, memory_order_relaxed), now);
	if (now - l->last_beat_ns >= LINK_HEARTBEAT_NS) {
		l->last_beat_ns = now;
		session_count_retries(l);
		link_transport_mtu(l); /* tcp finds a smaller one while it sends */
		if (link_send_notice(l, TRANSPORT_IMM_HEARTBEAT))
			l->beats_sent++;
	}
	return 0;
}

static int session_events(struct link *l, const struct transport_event *ev, int n)
{
	bool acks = false;
	int err;

	for (int i = 0; i < n; i++) {
		err = session_event(l, &ev[i]);
		if (err)
			return err;
		acks |= ev[i].kind == TRANSPORT_EVENT_NOTICE;
	}
	return acks ? session_take_ack(l) : 0;
}

int link_session_poll(struct link *l, uint64_t timeout_ns)
{
	struct transport_event ev[SESSION_EVENTS];
	int n = l->tops->poll(l->ep, ev, SESSION_EVENTS, timeout_ns);

	if (n < 0)
		return link_fail(l, n, "the transport failed: %s", strerror(-n));
	if (n > 0)
		l->last_heard_ns = clock_mono_ns();
	return session_events(l, ev, n);
}

static int session_pump(struct link *l)
{
	int err = link_pump(l);

	if (err == -ESTALE)
		return link_fail(l, -EAGAIN, "the log was rewound past the mirror");
	return err ? link_fail(l, err, "cannot read the log: %s", strerror(-err)) : 0;
}

/* Only what helpers can do is left to do. */
static bool session_may_lend(const struct link *l)
{
	return atomic_load_explicit(&l->primary->helpers, memory_order_relaxed) && l->in_sync &&
	       l->told_sync && l->beats_seen == l->beats_sent && !link_pump_wanted(l);
}

static int session_loop(struct link *l)
{
	uint64_t tick_ns = 0;
	int err = 0;

	while (!err) {
		uint64_t now, wait_ns = SESSION_TICK_NS;

		if (l->replace.dead) {
			err = link_replace(l);
			if (err)
				return link_stopping(l) ? -ECANCELED : err;
			continue;
		}
		if (link_pump_wanted(l)) {
			err = session_pump(l);
			if (err)
				return err;
		}
		session_try_join(l);
		session_tell_sync(l);
		if (session_may_lend(l) && link_lend(l, SESSION_TICK_NS, &err))
			wait_ns = 0;
		if (!err)
			err = link_session_poll(l, wait_ns);
		if (link_stopping(l))
			return -ECANCELED;
		now = clock_mono_ns();
		if (!err && now - tick_ns >= SESSION_TICK_NS) {
			tick_ns = now;
			err = session_tick(l, now);
		}
	}
	return err;
}

/* Lets the mirror know, and the notice out, without insisting. */
static void session_goodbye(struct link *l)
{
	struct transport_event ev[SESSION_EVENTS];
	uint64_t deadline = clock_mono_ns() + SESSION_GOODBYE_NS;

	if (!link_send_notice(l, REPL_IMM_GOODBYE))
		return;
	while (clock_mono_ns() < deadline) {
		int n = l->tops->poll(l->ep, ev, SESSION_EVENTS, 10 * NSEC_PER_MSEC);

		for (int i = 0; i < n; i++)
			if (ev[i].kind == TRANSPORT_EVENT_PEER_DOWN ||
			    ev[i].kind == TRANSPORT_EVENT_LANE_DOWN)
				return;
	}
}

static int session_run(struct link *l, int fd)
{
	int err = link_setup(l, fd);

	if (err)
		return err;
	err = session_begin(l);
	if (!err) {
		err = session_loop(l);
		session_end(l);
		if (err == -ECANCELED)
			session_goodbye(l);
		else
			session_note_end(l);
	}
	link_disconnect(l);
	return err;
}

int link_session_run(struct link *l, int fd)
{
	int err = session_run(l, fd);

	link_transport_ended(l);
	link_hold_end(l);
	return err;
}
