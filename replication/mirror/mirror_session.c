/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "kv-mirror": one session after the other, each from the caller that kv-listen hands over to its
 * end. All the mirror's state belongs to this thread, so a new caller waits until the old session
 * has ended.
 */
#include "replication/mirror/mirror_internal.h"

#include "common/byteorder.h"
#include "common/clock.h"
#include "common/thread.h"
#include "replication/frame.h"
#include "replication/transport/transport_verbs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MIRROR_ANSWER_NS (5 * NSEC_PER_SEC)
/* The primary may have to make a checkpoint before it can begin a resync. */
#define MIRROR_START_NS (600 * NSEC_PER_SEC)
#define MIRROR_IDLE_NS (50 * NSEC_PER_MSEC)
#define MIRROR_RETRY_NS (2 * NSEC_PER_MSEC)
#define MIRROR_SILENT_MIN_NS (3 * NSEC_PER_SEC)
#define MIRROR_EVENTS 256
#define MIRROR_ATTEND_ROUNDS 64 /* between looks at the clock that nothing else asks for */

static bool mirror_leaving(const struct mirror *m)
{
	/* acquire: pairs with the release in mirror_hand_over and mirror_destroy */
	return atomic_load_explicit(&m->leave, memory_order_acquire);
}

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

static int mirror_refuse(struct mirror *m, struct mirror_caller *c, enum repl_refusal code, int err,
			 const char *text)
{
	handshake_refuse(&c->handshake, c->fd, code, text, clock_mono_ns() + MIRROR_ANSWER_NS);
	return mirror_fail(m, err, "refused %s: %s", c->peer, text);
}

static enum addr_kind mirror_transport_kind(enum repl_transport t)
{
	switch (t) {
	case REPL_TRANSPORT_SHM:
		return ADDR_SHM;
	case REPL_TRANSPORT_VERBS:
		return ADDR_VERBS;
	case REPL_TRANSPORT_TCP:
		break;
	}
	return ADDR_TCP;
}

static int mirror_check_epoch(struct mirror *m, struct mirror_caller *c)
{
	char text[REPL_TEXT_BYTES];
	enum repl_refusal code = mirror_promise_check(m, &c->join, text);

	if (!code)
		return 0;
	handshake_refuse(&c->handshake, c->fd, code, text, clock_mono_ns() + MIRROR_ANSWER_NS);
	return mirror_promise_refused(m, c, text);
}

static int mirror_promise(struct mirror *m, const struct handshake_join *j)
{
	struct mirror_promise p = { .epoch = j->epoch, .node_id = j->node_id, .life = j->life };
	char text[EPOCH_TEXT_BYTES];
	int err;

	if (p.epoch == m->promised.epoch && p.node_id == m->promised.node_id &&
	    p.life == m->promised.life)
		return 0;
	err = m->ops->promise_epoch(m->ctx, &p);
	if (err)
		return mirror_fail(m, err, "cannot store the promise of epoch %s: %s",
				   epoch_format(j->epoch, text), strerror(-err));
	pthread_mutex_lock(&m->lock);
	m->promised = p;
	pthread_mutex_unlock(&m->lock);
	return 0;
}

/* Takes the caller or refuses it; promises its epoch first where that is new. */
static int mirror_admit(struct mirror *m, struct mirror_caller *c)
{
	const struct handshake_join *j = &c->join;
	char text[REPL_TEXT_BYTES], found[VERBS_TEXT_BYTES];
	int err;

	if (m->stopped)
		return mirror_refuse(m, c, REPL_REFUSE_FAILED, -EIO, "the mirror has stopped");
	m->tops = m->cfg.transport ? m->cfg.transport
				   : transport_for(mirror_transport_kind(j->transport));
	if (!m->tops)
		return mirror_refuse(m, c, REPL_REFUSE_TRANSPORT, -ENOTSUP,
				     "this mirror has no such transport");
	if (m->tops == &transport_verbs_ops &&
	    verbs_available(m->cfg.rdma_device, found, sizeof(found)) != 0) {
		snprintf(text, sizeof(text), "this mirror has %.100s", found);
		return mirror_refuse(m, c, REPL_REFUSE_TRANSPORT, -ENOTSUP, text);
	}
	err = mirror_check_epoch(m, c);
	if (err)
		return err;
	if (j->arena_bytes > m->cfg.arena_bytes) {
		snprintf(text, sizeof(text),
			 "the mirror's arena (%llu MiB) is smaller than the primary's (%llu MiB)",
			 (unsigned long long)(m->cfg.arena_bytes >> 20),
			 (unsigned long long)(j->arena_bytes >> 20));
		return mirror_refuse(m, c, REPL_REFUSE_ARENA, -ENOSPC, text);
	}
	/* not in sync with what it can't execute: until then there is no session */
	err = mirror_apply_rest(m);
	if (err == -ENOSPC) {
		pthread_mutex_lock(&m->lock);
		snprintf(text, sizeof(text), "%.*s", (int)sizeof(text) - 1, m->last_error);
		pthread_mutex_unlock(&m->lock);
		return mirror_refuse(m, c, REPL_REFUSE_NO_MEMORY, err, text);
	}
	if (err)
		return err;
	err = mirror_promise(m, j);
	if (err)
		return err;
	m->epoch = j->epoch;
	m->primary_lsn = j->last_lsn;
	m->protocol = j->protocol;
	m->silent_ns = j->timeout_ms * NSEC_PER_MSEC;
	if (m->silent_ns < MIRROR_SILENT_MIN_NS)
		m->silent_ns = MIRROR_SILENT_MIN_NS;
	return 0;
}

static int mirror_welcome(struct mirror *m, struct mirror_caller *c)
{
	struct epochs_entry e;
	bool known = epochs_at(&m->epochs, m->durable_lsn, &e) && e.epoch == m->last_epoch;
	struct handshake_welcome w = {
		.last_lsn = m->durable_lsn,
		.last_epoch = m->last_epoch,
		.last_node = known ? e.node_id : 0,
		.last_life = known ? e.life : 0,
		.promised_epoch = m->promised.epoch,
		.ring_bytes = m->cfg.ring_bytes,
		.arena_bytes = m->cfg.arena_bytes,
		.node_id = m->cfg.node_id,
		.window_records = REPL_WINDOW_RECORDS,
		.lanes = m->cfg.lanes_max,
	};
	int err = handshake_welcome(&c->handshake, c->fd, &w, clock_mono_ns() + MIRROR_ANSWER_NS);

	return err ? mirror_fail(m, err, "%s: %s", c->peer, c->handshake.why) : 0;
}

static int mirror_await_frame(struct mirror *m, int fd, void *buf, size_t cap,
			      struct frame *ret_frame)
{
	int err =
	    frame_recv(fd, buf, cap, clock_mono_ns() + MIRROR_START_NS, &m->leave, ret_frame);

	return err ? mirror_fail(m, err, "the primary did not begin: %s", strerror(-err)) : 0;
}

/* The history that our log is to have. */
static int mirror_await_epochs(struct mirror *m, int fd)
{
	uint8_t buf[EPOCHS_BYTES_MAX];
	struct frame f;
	int err = mirror_await_frame(m, fd, buf, sizeof(buf), &f);

	if (err)
		return err;
	if (f.type != REPL_EPOCHS || epochs_decode(buf, f.len, &m->primary_epochs) != 0)
		return mirror_fail(m, -EPROTO, "the primary sends no history of its log");
	return 0;
}

/* What the primary wants first: a resync, or the lanes at once. From START on we are being caught
 * up. */
static int mirror_await_start(struct mirror *m, int fd)
{
	uint8_t buf[REPL_SMALL_BYTES_MAX];
	struct frame f;
	int err;

	for (;;) {
		err = mirror_await_frame(m, fd, buf, sizeof(buf), &f);
		if (err)
			return err;
		if (f.type == REPL_START)
			break;
		if (f.type != REPL_RESYNC_BEGIN)
			return mirror_fail(m, -EPROTO, "unexpected message %d", (int)f.type);
		err = resync_receive(m, fd, buf, f.len);
		if (err)
			return err;
	}
	if (f.len != sizeof(struct repl_start) || get_be64(buf) != m->durable_lsn + 1)
		return mirror_fail(m, -EPROTO, "the primary begins at the wrong LSN");
	err = mirror_note_state(m, &m->primary_epochs, false);
	if (err)
		return err;
	err = m->ops->resume ? m->ops->resume(m->ctx) : 0;
	return err ? mirror_fail(m, err, "cannot go on: %s", strerror(-err)) : 0;
}

/* Set-up waits for the peer on the control connection, which ends when we are to leave. */
static void mirror_setup_interruptible(struct mirror *m, int fd)
{
	pthread_mutex_lock(&m->lock);
	m->setup_fd = fd;
	if (fd >= 0 && mirror_leaving(m))
		mirror_interrupt_locked(m);
	pthread_mutex_unlock(&m->lock);
}

static int mirror_open_lanes(struct mirror *m, int fd)
{
	struct transport_params params = {
		.lanes = m->cfg.lanes_max,
		.window_bytes = m->cfg.ring_bytes,
		.deadline_ns = clock_mono_ns() + transport_setup_ns(m->cfg.lanes_max),
		.poll_us = m->cfg.poll_us == TRANSPORT_POLL_US_DEFAULT ? m->tops->poll_us :
									 m->cfg.poll_us,
		.ack_timeout = m->cfg.ack_timeout,
		.device = m->cfg.rdma_device,
	};
	const char *why = NULL;
	int err;

	mirror_setup_interruptible(m, fd);
	err = m->tops->accept(fd, &params, &m->ep, &why);
	mirror_setup_interruptible(m, -1);
	if (err)
		return mirror_fail(m, err, "cannot open lanes: %s", why ? why : strerror(-err));
	m->ring = m->tops->window(m->ep, &m->ring_bytes);
	pthread_mutex_lock(&m->lock);
	m->wake_ep = m->ep;
	m->wake_tops = m->tops;
	snprintf(m->transport, sizeof(m->transport), "%s", m->tops->name);
	pthread_mutex_unlock(&m->lock);
	atomic_store_explicit(&m->lanes, m->tops->lanes(m->ep), memory_order_relaxed);
	return 0;
}

static void mirror_close_lanes(struct mirror *m)
{
	pthread_mutex_lock(&m->lock);
	m->wake_ep = NULL;
	m->transport[0] = '\0';
	pthread_mutex_unlock(&m->lock);
	m->tops->close(m->ep);
	m->ep = NULL;
	atomic_store_explicit(&m->lanes, 0, memory_order_relaxed);
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
	int err = mirror_admit(m, c);

	if (!err)
		err = mirror_welcome(m, c);
	if (!err)
		err = mirror_await_epochs(m, c->fd);
	if (!err)
		err = mirror_await_start(m, c->fd);
	if (!err)
		err = mirror_open_lanes(m, c->fd);
	if (err)
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
