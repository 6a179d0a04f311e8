/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "kv-listen": accepts connections, lets callers prove the volume key, and hands one to kv-mirror.
 * A connection that says nothing costs a place among MIRROR_PENDING_MAX for a few seconds and
 * delays nobody.
 */
#include "replication/mirror_internal.h"

#include "common/clock.h"
#include "replication/control.h"
#include "replication/dial.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIRROR_PENDING_MAX 16
#define MIRROR_SILENT_NS (5 * NSEC_PER_SEC)
#define MIRROR_HANDSHAKE_NS (3 * NSEC_PER_SEC)

/* Accepted, has said nothing yet. */
struct mirror_pending {
	int fd;
	enum addr_kind kind;
	uint64_t deadline_ns;
};

int mirror_listen_open(struct mirror *m, const char **ret_why)
{
	static _Thread_local char why[400];
	char text[300];
	uint16_t port;
	int err;

	if (m->cfg.listen_count == 0 || m->cfg.listen_count > MIRROR_LISTEN_MAX) {
		*ret_why = "a mirror needs between 1 and 8 addresses to listen on";
		return -EINVAL;
	}
	for (unsigned i = 0; i < m->cfg.listen_count; i++) {
		const struct addr *a = &m->cfg.listen[i];

		err = dial_listen(a, &m->listen_fds[i], &port);
		if (err) {
			addr_format(a, text, sizeof(text));
			snprintf(why, sizeof(why), "cannot listen on %s: %s", text, strerror(-err));
			*ret_why = why;
			return err;
		}
		m->listen_addrs[i] = *a;
		m->listen_count++;
		if (port && !m->listen_port)
			m->listen_port = port;
	}
	return 0;
}

void mirror_listen_close(struct mirror *m)
{
	for (unsigned i = 0; i < m->listen_count; i++) {
		close(m->listen_fds[i]);
		if (m->listen_addrs[i].kind == ADDR_SHM)
			unlink(m->listen_addrs[i].host);
	}
	m->listen_count = 0;
}

void mirror_caller_free(struct mirror_caller *c)
{
	if (!c)
		return;
	close(c->fd);
	sodium_memzero(&c->handshake, sizeof(c->handshake));
	free(c);
}

/* Whether the caller may have the mirror, and if so hands it over. Takes c when it returns 0. */
static enum repl_refusal mirror_hand_over(struct mirror *m, struct mirror_caller *c)
{
	struct mirror_caller *old = NULL;
	enum repl_refusal code = 0;

	pthread_mutex_lock(&m->lock);
	if (m->failed) {
		code = REPL_REFUSE_FAILED;
	} else if (m->connected && c->join.node_id != m->primary_node &&
		   c->join.epoch <= m->session_epoch) {
		code = REPL_REFUSE_BUSY;
	} else {
		old = m->caller;
		m->caller = c;
		/* release: pairs with kv-mirror's look at leave; the caller itself is under the lock */
		atomic_store_explicit(&m->leave, true, memory_order_release);
		if (m->wake_ep)
			m->wake_tops->wake(m->wake_ep);
		pthread_cond_broadcast(&m->changed);
	}
	pthread_mutex_unlock(&m->lock);
	mirror_caller_free(old);
	return code;
}

static void mirror_refuse_text(struct mirror *m, enum repl_refusal code, char *out, size_t cap)
{
	pthread_mutex_lock(&m->lock);
	if (code == REPL_REFUSE_FAILED)
		snprintf(out, cap, "the mirror has stopped: %.90s", m->last_error);
	else
		snprintf(out, cap, "the mirror is busy with another primary");
	pthread_mutex_unlock(&m->lock);
}

/* The transport must be one that this kind of connection can set up. */
static bool mirror_transport_fits(enum addr_kind kind, enum repl_transport transport)
{
	return (kind == ADDR_SHM) == (transport == REPL_TRANSPORT_SHM);
}

static void mirror_serve_caller(struct mirror *m, const struct mirror_pending *p)
{
	struct mirror_caller *c = calloc(1, sizeof(*c));
	uint64_t deadline = clock_mono_ns() + MIRROR_HANDSHAKE_NS;
	enum repl_refusal code;
	char text[REPL_TEXT_BYTES];
	int err;

	if (!c) {
		close(p->fd);
		return;
	}
	c->fd = p->fd;
	c->handshake.key = m->cfg.key;
	c->handshake.cancel = &m->stopping;
	dial_peer_text(c->fd, c->peer, sizeof(c->peer));
	err = handshake_answer(&c->handshake, c->fd, m->cfg.uuid, deadline, &c->join);
	if (err) {
		mirror_fail(m, err, "%s: %s", c->peer, c->handshake.why);
		mirror_caller_free(c);
		return;
	}
	if (!mirror_transport_fits(p->kind, c->join.transport)) {
		handshake_refuse(&c->handshake, c->fd, REPL_REFUSE_TRANSPORT,
				 "this transport is not offered at this address", deadline);
		mirror_caller_free(c);
		return;
	}
	code = mirror_hand_over(m, c);
	if (code) {
		mirror_refuse_text(m, code, text, sizeof(text));
		handshake_refuse(&c->handshake, c->fd, code, text, deadline);
		mirror_caller_free(c);
	}
}

static void mirror_accept(struct mirror *m, unsigned i, struct mirror_pending *pending, unsigned *count)
{
	int fd = accept4(m->listen_fds[i], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	/* Full of silent ones: the oldest goes. */
	if (*count == MIRROR_PENDING_MAX) {
		close(pending[0].fd);
		memmove(pending, pending + 1, sizeof(*pending) * (MIRROR_PENDING_MAX - 1));
		(*count)--;
	}
	control_socket_tune(fd);
	pending[(*count)++] = (struct mirror_pending){
		.fd = fd,
		.kind = m->listen_addrs[i].kind,
		.deadline_ns = clock_mono_ns() + MIRROR_SILENT_NS,
	};
}

/* Serves those that spoke, drops those that are silent for too long. */
static void mirror_serve_pending(struct mirror *m, struct mirror_pending *pending, unsigned *count,
				 const struct pollfd *fds)
{
	uint64_t now = clock_mono_ns();
	unsigned kept = 0;

	for (unsigned i = 0; i < *count; i++) {
		if (fds[i].revents)
			mirror_serve_caller(m, &pending[i]);
		else if (now >= pending[i].deadline_ns)
			close(pending[i].fd);
		else
			pending[kept++] = pending[i];
	}
	*count = kept;
}

void *mirror_listen_thread(void *arg)
{
	struct mirror *m = arg;
	struct mirror_pending pending[MIRROR_PENDING_MAX];
	struct pollfd fds[1 + MIRROR_LISTEN_MAX + MIRROR_PENDING_MAX];
	unsigned count = 0;

	while (!atomic_load_explicit(&m->stopping, memory_order_relaxed)) {
		unsigned first = 1 + m->listen_count;

		fds[0] = (struct pollfd){ .fd = m->stop_fd, .events = POLLIN };
		for (unsigned i = 0; i < m->listen_count; i++)
			fds[1 + i] = (struct pollfd){ .fd = m->listen_fds[i], .events = POLLIN };
		for (unsigned i = 0; i < count; i++)
			fds[first + i] = (struct pollfd){ .fd = pending[i].fd, .events = POLLIN };
		if (poll(fds, first + count, count ? 1000 : 60000) < 0)
			continue;
		mirror_serve_pending(m, pending, &count, fds + first);
		for (unsigned i = 0; i < m->listen_count; i++)
			if (fds[1 + i].revents)
				mirror_accept(m, i, pending, &count);
	}
	for (unsigned i = 0; i < count; i++)
		close(pending[i].fd);
	return NULL;
}
