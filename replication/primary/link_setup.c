/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link's way from an open control connection to lanes: handshake, the log's history, a resync
 * where the log no longer reaches, the transport. The link's thread.
 */
#include "replication/primary/link.h"

#include "common/byteorder.h"
#include "common/clock.h"
#include "replication/dial.h"
#include "replication/frame.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define SETUP_HANDSHAKE_NS (5 * NSEC_PER_SEC)
#define SETUP_RING_BYTES_MIN (4ULL << 20)
/* Failures in a row of any kind before a link asks for fewer lanes, and how long it does then. */
#define SETUP_LANES_TRIES 2
#define SETUP_LANES_LIMIT_NS (300 * NSEC_PER_SEC)

/* A node serves one session of a primary: through two links it would throw itself out for ever. */
static int setup_claim_node(struct link *l)
{
	struct primary *p = l->primary;
	const struct link *other = NULL;
	char text[sizeof(l->addr.host) + 16];

	pthread_mutex_lock(&p->lock);
	for (unsigned i = 0; i < p->cfg.mirror_count && !other; i++)
		if (i != l->index && p->links[i].peer_node == l->welcome.node_id)
			other = &p->links[i];
	if (!other)
		l->peer_node = l->welcome.node_id;
	pthread_mutex_unlock(&p->lock);
	if (!other)
		return 0;
	addr_format(&other->addr, text, sizeof(text));
	return link_fail(l, -ENOTUNIQ, "it is the same node as mirror %s, given twice", text);
}

static int setup_handshake(struct link *l, int fd)
{
	const struct primary_config *cfg = &l->primary->cfg;
	struct handshake h = { .key = cfg->key, .cancel = &l->primary->stopping };
	struct handshake_join join = {
		.epoch = cfg->epoch,
		.arena_bytes = cfg->arena_bytes,
		.last_lsn = oplog_last_lsn(l->primary->log),
		.node_id = cfg->node_id,
		.timeout_ms = (uint32_t)(cfg->timeout_ns / NSEC_PER_MSEC) + 1,
		.lanes = (uint16_t)primary_lanes_open(cfg, l->tops),
		.transport = link_transport_number(l),
		.protocol = commit_protocol_of(l->primary->commit),
		.link = l->primary->instance << 8 | (l->index & 0xFF),
		.life = cfg->life,
	};
	int err = handshake_dial(&h, fd, cfg->uuid, &join, clock_mono_ns() + SETUP_HANDSHAKE_NS,
				 &l->welcome);

	if (err) {
		link_fail(l, err, "%s", h.why);
		return err == -ENOTSUP ? link_transport_failed(l, err) : err;
	}
	if (l->welcome.ring_bytes < SETUP_RING_BYTES_MIN)
		return link_fail(l, -EPROTO, "the mirror's ring is too small");
	return setup_claim_node(l);
}

/* The history that the mirror's log will have: with it the mirror finds what only it holds, and
 * keeps it. */
static int setup_send_epochs(struct link *l, int fd)
{
	uint8_t buf[EPOCHS_BYTES_MAX];
	size_t len = epochs_encode(&l->primary->epochs, buf);
	int err = frame_send(fd, REPL_EPOCHS, buf, len, clock_mono_ns() + SETUP_HANDSHAKE_NS,
			     &l->primary->stopping);

	return err ? link_fail(l, err, "cannot send the log's history: %s", strerror(-err)) : 0;
}

/* How many lanes to ask for. */
static unsigned setup_lanes(const struct link *l)
{
	unsigned lanes = primary_lanes_open(&l->primary->cfg, l->tops);

	if (l->welcome.lanes < lanes)
		lanes = l->welcome.lanes;
	if (l->lanes_limit && l->lanes_limit < lanes && clock_mono_ns() < l->lanes_limit_until_ns)
		lanes = l->lanes_limit;
	return lanes;
}

static bool setup_is_shortage(int err)
{
	return err == -EMFILE || err == -ENFILE || err == -ENOMEM || err == -ENOBUFS ||
	       err == -ENOSPC || err == -EAGAIN;
}

/* A device, a peer or a limit of descriptors may have room for some lanes and not for all: a mirror
 * with fewer is better than none. First those that were opened ahead are given up, then others. The
 * peer's shortage shows as any error here, so it takes more than one. True: try again at once. */
static bool setup_want_fewer(struct link *l, unsigned asked, int err)
{
	unsigned wanted = l->primary->cfg.lanes, fewer = asked / 2;

	if (asked <= 1 || err == -ECANCELED || err == -ENOTSUP || err == -EPROTONOSUPPORT)
		return false;
	if (!setup_is_shortage(err) && ++l->lanes_failed < SETUP_LANES_TRIES)
		return false;
	l->lanes_failed = 0;
	l->lanes_limit = asked > wanted && fewer < wanted ? wanted : fewer;
	l->lanes_limit_until_ns = clock_mono_ns() + SETUP_LANES_LIMIT_NS;
	/* not when all of a try's time went by: writers wait for it */
	return setup_is_shortage(err) && !(err == -EAGAIN && l->verbs_trial);
}

/* Set-up waits for the peer on the control connection, which ends when we are to stop. */
static void setup_interruptible(struct link *l, int fd)
{
	pthread_mutex_lock(&l->primary->lock);
	l->setup_fd = fd;
	if (fd >= 0 && link_stopping(l))
		(void)shutdown(fd, SHUT_RDWR);
	pthread_mutex_unlock(&l->primary->lock);
}

/* The lanes. After it the endpoint may be woken by others. */
static int setup_connect(struct link *l, int fd)
{
	struct transport_params params = {
		.lanes = setup_lanes(l),
		.window_bytes = REPL_PRIMARY_WINDOW_BYTES,
		.deadline_ns = clock_mono_ns() + link_transport_setup_ns(l),
		.poll_us = primary_get_knobs(l->primary).poll_us,
		.ack_timeout = l->primary->cfg.ack_timeout,
		.device = l->primary->cfg.rdma_device,
		.memory = l->primary->cfg.memory,
	};
	struct repl_start start = { .next_lsn = htobe64(l->welcome.last_lsn + 1) };
	char interface[LINK_INTERFACE_BYTES];
	const char *why = NULL;
	int err;

	err = frame_send(fd, REPL_START, &start, sizeof(start), params.deadline_ns,
			 &l->primary->stopping);
	if (!err) {
		setup_interruptible(l, fd);
		err = l->tops->connect(fd, &l->addr, &params, &l->ep, &why);
		setup_interruptible(l, -1);
	}
	if (err && link_stopping(l))
		return -ECANCELED;
	if (err) {
		link_fail(l, err, "cannot open %u lane%s: %s", params.lanes,
			  params.lanes == 1 ? "" : "s", why ? why : strerror(-err));
		return setup_want_fewer(l, params.lanes, err) ? -EAGAIN :
								  link_transport_failed(l, err);
	}
	if (!link_transport_fell_back(l)) /* else it says nothing of what failed */
		l->lanes_failed = 0;
	if (l->tops->remote_window_bytes(l->ep) < SETUP_RING_BYTES_MIN) {
		l->tops->close(l->ep);
		l->ep = NULL;
		return link_fail(l, -EPROTO, "the mirror's ring is too small");
	}
	dial_interface(fd, interface);
	link_load_begin(l); /* status shows none of the last session's from wake_ep on */
	pthread_mutex_lock(&l->primary->lock);
	l->wake_ep = l->ep;
	memcpy(l->interface, interface, sizeof(interface));
	/* it may have changed since params were made */
	l->tops->set_poll_us(l->ep, primary_get_knobs(l->primary).poll_us);
	snprintf(l->transport, sizeof(l->transport), "%s", l->tops->name);
	pthread_mutex_unlock(&l->primary->lock);
	atomic_store_explicit(&l->lanes, l->tops->lanes(l->ep), memory_order_relaxed);
	link_transport_connected(l);
	link_transport_mtu(l);
	return 0;
}

void link_disconnect(struct link *l)
{
	pthread_mutex_lock(&l->primary->lock);
	l->wake_ep = NULL;
	l->transport[0] = l->interface[0] = '\0';
	pthread_mutex_unlock(&l->primary->lock);
	l->tops->close(l->ep);
	l->ep = NULL;
	link_keep_end(l);
	atomic_store_explicit(&l->lanes, 0, memory_order_relaxed);
	atomic_store_explicit(&l->mtu_bytes, 0, memory_order_relaxed);
}

int link_setup(struct link *l, int fd)
{
	bool resync = false;
	int err;

	l->control_fd = fd;
	link_set_state(l, LINK_HANDSHAKE);
	link_transport_choose(l);
	if (!l->tops)
		return link_fail(l, -ENOTSUP, "this build has no such transport");
	err = setup_handshake(l, fd);
	if (!err) {
		resync = resync_needed(l);
		err = setup_send_epochs(l, fd);
	}
	if (!err && resync) {
		link_set_state(l, LINK_RESYNC);
		err = resync_send(l, fd);
	}
	return err ? err : setup_connect(l, fd);
}
