/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "kv-mirror": one session after the other, each from the caller that kv-listen hands over to its
 * end. All the mirror's state belongs to this thread, so a new caller waits until the old session
 * has ended.
 */
#include "replication/mirror/mirror_internal.h"

#include "common/clock.h"
#include "common/thread.h"
#include "replication/transport/transport_verbs.h"

#include <errno.h>
#include <string.h>

#define MIRROR_IDLE_NS (50 * NSEC_PER_MSEC)
#define MIRROR_RETRY_NS (2 * NSEC_PER_MSEC)
#define MIRROR_EVENTS 256
#define MIRROR_ATTEND_ROUNDS 64 /* between looks at the clock that nothing else asks for */

struct ack mirror_ack_make(const struct mirror *m)
{
	return (struct ack){
		.sequence = m->ack_sequence + 1,
		.received_lsn = m->received_lsn,
		.durable_lsn = m->durable_lsn,
		.applied_lsn = m->applied_lsn,
		.ring_freed = m->ring_freed,
		.heartbeats = m->heartbeats,
	};
}

void mirror_ack_send(struct mirror *m)
{
	struct ack a = mirror_ack_make(m);
	uint64_t sequence = a.sequence;
	uint8_t *buf = m->ack_bufs[sequence % REPL_ACK_SLOTS];
	struct iovec iov = { .iov_base = buf, .iov_len = sizeof(struct repl_ack) };
	struct transport_post post = {
		.iov = &iov,
		.iovcnt = 1,
		.remote_off = ack_slot_offset(sequence),
		.imm = TRANSPORT_IMM_ACK,
		.control = true,
	};

	ack_encode(&a, buf);
	m->ack_due = m->tops->post(m->ep, 0, &post, 1) != 1;
	if (m->ack_due)
		return;
	m->ack_sequence = sequence;
	m->ring_freed_told = m->ring_freed;
}

static int mirror_notice(struct mirror *m, uint32_t imm)
{
	if (imm < TRANSPORT_IMM_CONTROL_FIRST)
		return mirror_rx_notice(m, imm);
	switch (imm) {
	case TRANSPORT_IMM_HEARTBEAT:
		m->heartbeats++;
		m->ack_due = true;
		return 0;
	case REPL_IMM_GOODBYE:
		m->goodbye = true;
		return 0;
	case REPL_IMM_IN_SYNC:
	case REPL_IMM_OUT_OF_SYNC:
		return mirror_note_state(m, &m->epochs, imm == REPL_IMM_IN_SYNC);
	default:
		return mirror_fail(m, -EPROTO, "unexpected notice %#x", imm);
	}
}

static int mirror_lane_down(struct mirror *m, const struct transport_event *ev)
{
	const char *why = m->tops->lane_why ? m->tops->lane_why(m->ep, ev->lane) : NULL;
	int err;

	if (m->goodbye)
		return 0;
	err = mirror_fail(m, -ENOTCONN, "lane %u failed: %s", ev->lane,
			  why ? why : strerror(-ev->err));
	return mirror_replace_note(m, ev) ? 0 : err;
}

static int mirror_event(struct mirror *m, const struct transport_event *ev)
{
	switch (ev->kind) {
	case TRANSPORT_EVENT_NOTICE:
		m->replace.taken[ev->lane]++;
		return mirror_notice(m, ev->imm);
	case TRANSPORT_EVENT_LANE_DOWN:
		return mirror_lane_down(m, ev);
	case TRANSPORT_EVENT_PEER_DOWN:
		if (m->goodbye || mirror_replace_knows(m))
			return 0; /* whether it is more than that the control connection tells */
		return mirror_fail(m, -ENOTCONN, "the primary is gone: %s", strerror(-ev->err));
	case TRANSPORT_EVENT_WRITABLE:
		break;
	}
	return 0;
}

static int mirror_round(struct mirror *m)
{
	struct transport_event ev[MIRROR_EVENTS];
	bool soon = m->stalled_since_ns || m->run.logged || m->ack_due || m->replace.dead;
	uint64_t timeout = soon ? MIRROR_RETRY_NS : MIRROR_IDLE_NS;
	int n = m->tops->poll(m->ep, ev, MIRROR_EVENTS, timeout);
	uint64_t now;
	int err = 0, flushed;

	if (n < 0)
		return mirror_fail(m, n, "the transport failed: %s", strerror(-n));
	m->round_ns = n > 0 && m->stage_mirror ? clock_mono_ns() : 0;
	for (int i = 0; !err && i < n; i++)
		err = mirror_event(m, &ev[i]);
	mirror_load_note(m);
	/* Also after an error: what came before it is whole and in order. */
	flushed = mirror_flush(m);
	if (!err)
		err = flushed ? flushed : mirror_replace_attend(m, n == 0);
	if (err)
		return err;
	if (m->ack_due)
		mirror_ack_send(m);
	if (++m->rounds % MIRROR_ATTEND_ROUNDS == 0 || n == 0) {
		verbs_devices_attend();
		mirror_load_tell(m, clock_mono_ns());
	}
	if (n > 0 && !m->stalled_since_ns) {
		m->last_heard_ns = 0;
		return 0;
	}
	now = clock_mono_ns();
	if (n > 0 || m->last_heard_ns == 0)
		m->last_heard_ns = now;
	if (now - m->last_heard_ns > m->silent_ns)
		return mirror_fail(m, -ETIMEDOUT, "the primary is silent");
	return 0;
}

static void mirror_stream(struct mirror *m, int fd)
{
	int err = 0;

	m->heartbeats = m->ack_sequence = 0;
	m->stalled_since_ns = 0;
	m->last_heard_ns = 0;
	m->ack_due = m->goodbye = false;
	mirror_rx_reset(m);
	mirror_replace_begin(m, fd);
	mirror_load_begin(m);
	while (!err && !m->goodbye && !mirror_leaving(m))
		err = mirror_round(m);
	if (!err && !m->goodbye) {
		struct transport_post post = { .imm = REPL_IMM_GOODBYE, .control = true };

		(void)m->tops->post(m->ep, 0, &post, 1);
	}
	/* What never got room in the log is not ours: the primary sends it again. */
	m->stalled_since_ns = 0;
	mirror_rx_reset(m);
}

static void mirror_session(struct mirror *m, struct mirror_caller *c)
{
	if (mirror_setup(m, c) != 0)
		return;
	mirror_forget_error(m);
	mirror_stream(m, c->fd);
	mirror_close_lanes(m);
}

/* Waits for a caller. NULL: stopping. */
static struct mirror_caller *mirror_next_caller(struct mirror *m)
{
	struct mirror_caller *c = NULL;

	pthread_mutex_lock(&m->lock);
	m->connected = false;
	while (!m->caller && !atomic_load_explicit(&m->stopping, memory_order_relaxed)) {
		thread_cond_wait_until(&m->changed, &m->lock, clock_mono_ns() + NSEC_PER_SEC);
		pthread_mutex_unlock(&m->lock);
		verbs_devices_attend();
		pthread_mutex_lock(&m->lock);
	}
	if (!atomic_load_explicit(&m->stopping, memory_order_relaxed)) {
		c = m->caller;
		m->caller = NULL;
		m->connected = true;
		m->primary_node = c->join.node_id;
		m->primary_link = c->join.link;
		m->session_epoch = c->join.epoch;
		m->tells_progress = c->handshake.peer_compat & REPL_COMPAT_PROGRESS;
		memcpy(m->primary, c->peer, sizeof(m->primary));
		atomic_store_explicit(&m->leave, false, memory_order_relaxed);
	}
	pthread_mutex_unlock(&m->lock);
	return c;
}

void *mirror_thread(void *arg)
{
	struct mirror *m = arg;
	struct mirror_caller *c;

	while ((c = mirror_next_caller(m))) {
		mirror_session(m, c);
		mirror_caller_free(c);
	}
	return NULL;
}
