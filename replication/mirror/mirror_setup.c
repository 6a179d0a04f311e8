/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a caller that has proved the key to lanes: it is admitted or refused, told where our log
 * ends, caught up by a resync if need be. All in "kv-mirror"; the counterpart of link_setup.c.
 */
#include "replication/mirror/mirror_internal.h"

#include "common/byteorder.h"
#include "common/clock.h"
#include "replication/frame.h"
#include "replication/transport/transport_verbs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The primary may have to make a checkpoint before it can begin a resync. */
#define MIRROR_START_NS (600 * NSEC_PER_SEC)
#define MIRROR_SILENT_MIN_NS (3 * NSEC_PER_SEC)

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
	err = mirror_promise_admit(m, c);
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
	err = mirror_promise_store(m, j);
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
	mirror_mtu_note(m);
	return 0;
}

int mirror_setup(struct mirror *m, struct mirror_caller *c)
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
	return err;
}

void mirror_close_lanes(struct mirror *m)
{
	pthread_mutex_lock(&m->lock);
	m->wake_ep = NULL;
	m->transport[0] = '\0';
	m->mtu_bytes = 0;
	pthread_mutex_unlock(&m->lock);
	m->tops->close(m->ep);
	m->ep = NULL;
	atomic_store_explicit(&m->lanes, 0, memory_order_relaxed);
}
