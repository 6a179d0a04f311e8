/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "kv-listen": accepts connections, lets callers prove the volume key, and hands one to kv-mirror.
 * It waits in poll alone, never for one caller: each pending connection's frames are collected as
 * they come. Places are few and shared out by source address; one whose hello was good is never
 * dropped for one that has shown none.
 */
#include "replication/mirror/mirror_internal.h"

#include "common/clock.h"
#include "common/io.h"
#include "replication/dial.h"
#include "replication/frame.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIRROR_PENDING_MAX 64
#define MIRROR_SOURCE_MAX 16 /* pending connections of one address */
#define MIRROR_SILENT_NS (5 * NSEC_PER_SEC)
#define MIRROR_HANDSHAKE_NS (3 * NSEC_PER_SEC)
#define MIRROR_ACCEPT_AGAIN_NS (100 * NSEC_PER_MSEC)

/* Accepted; its hello, then (when there is a caller) its join is awaited. */
struct mirror_pending {
	int fd;
	enum addr_kind kind;
	uint8_t source[16];           /* IPv6 or mapped IPv4 address; zero: this host's socket */
	uint64_t deadline_ns;
	struct mirror_caller *caller; /* after a good hello; owns fd then */
	struct frame_reader reader;
};

struct mirror_reception {
	uint64_t accept_ns;           /* not before: there was no descriptor for a caller */
	unsigned count;               /* oldest first */
	struct mirror_pending pending[MIRROR_PENDING_MAX];
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

/* Whether two callers are different links of one primary process: one that calls again has the same
 * link, one that was started anew another process's bits. */
static bool join_is_other_link(uint32_t node_id, uint32_t link, const struct handshake_join *join)
{
	return node_id == join->node_id && link != join->link && link >> 8 == join->link >> 8;
}

/* Under the lock: the first of two links that lead here keeps the mirror, or they would throw each
 * other out. */
static bool mirror_is_given_twice_locked(const struct mirror *m, const struct mirror_caller *c)
{
	if (m->caller &&
	    join_is_other_link(m->caller->join.node_id, m->caller->join.link, &c->join))
		return true;
	return m->connected && join_is_other_link(m->primary_node, m->primary_link, &c->join);
}

static bool promise_is_why(enum repl_refusal code)
{
	return code == REPL_REFUSE_STALE_EPOCH || code == REPL_REFUSE_OTHER_PRIMARY ||
	       code == REPL_REFUSE_OTHER_LIFE;
}

/* Under the lock: why the session that is, or was, does not make place for the caller. */
static enum repl_refusal mirror_may_take_locked(const struct mirror *m,
						const struct mirror_caller *c,
						char text[REPL_TEXT_BYTES])
{
	if (m->failed)
		return REPL_REFUSE_FAILED;
	if (m->connected && c->join.node_id != m->primary_node &&
	    (c->join.epoch <= m->session_epoch ||
	     epoch_term(c->join.epoch) == epoch_term(m->session_epoch)))
		return REPL_REFUSE_BUSY;
	if (mirror_is_given_twice_locked(m, c))
		return REPL_REFUSE_TWICE;
	/* A copy of the volume that is served must not end its session just to be refused. */
	return c->join.node_id == m->promised.node_id ? mirror_promise_check(m, &c->join, text) : 0;
}

/* Whether the caller may have the mirror, and if so hands it over. Takes c when it returns 0. */
static enum repl_refusal mirror_hand_over(struct mirror *m, struct mirror_caller *c,
					  char text[REPL_TEXT_BYTES])
{
	struct mirror_caller *old = NULL;
	enum repl_refusal code;

	pthread_mutex_lock(&m->lock);
	code = mirror_may_take_locked(m, c, text);
	if (!code) {
		old = m->caller;
		m->caller = c;
		/* release: pairs with kv-mirror's look at leave; the caller itself is
		 * under the lock */
		atomic_store_explicit(&m->leave, true, memory_order_release);
		mirror_interrupt_locked(m);
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
	else if (code == REPL_REFUSE_TWICE)
		snprintf(out, cap, "it is the same node as another mirror, given twice");
	else
		snprintf(out, cap, "the mirror is busy with another primary");
	pthread_mutex_unlock(&m->lock);
}

/* The transport must be one that this kind of connection can set up. */
static bool mirror_transport_fits(enum addr_kind kind, enum repl_transport transport)
{
	switch (kind) {
	case ADDR_SHM:
		return transport == REPL_TRANSPORT_SHM;
	case ADDR_VERBS:
		return transport == REPL_TRANSPORT_VERBS;
	case ADDR_TCP:
		return transport == REPL_TRANSPORT_TCP;
	case ADDR_AUTO:
		break;
	}
	return transport != REPL_TRANSPORT_SHM;
}

/* The key is proved. Takes c. */
static void mirror_serve_caller(struct mirror *m, struct mirror_caller *c, enum addr_kind kind)
{
	uint64_t now = clock_mono_ns();
	enum repl_refusal code;
	char text[REPL_TEXT_BYTES];

	if (!mirror_transport_fits(kind, c->join.transport)) {
		handshake_refuse(&c->handshake, c->fd, REPL_REFUSE_TRANSPORT,
				 "this transport is not offered at this address", now);
		mirror_caller_free(c);
		return;
	}
	code = mirror_hand_over(m, c, text);
	if (code) {
		if (promise_is_why(code))
			mirror_promise_refused(m, c, text);
		else
			mirror_refuse_text(m, code, text, sizeof(text));
		handshake_refuse(&c->handshake, c->fd, code, text, now);
		mirror_caller_free(c);
	}
}

static void pending_drop(struct mirror_pending *p)
{
	if (p->caller)
		mirror_caller_free(p->caller);
	else
		close(p->fd);
}

/* A whole first frame. */
static int pending_hello(struct mirror *m, struct mirror_pending *p, const struct frame *f,
			 struct handshake *h)
{
	struct mirror_caller *c;
	int err = handshake_answer_hello(h, p->fd, m->cfg.uuid, f,
					 frame_reader_payload(&p->reader));

	if (err)
		return err;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->fd = p->fd;
	c->handshake = *h;
	dial_peer_text(c->fd, c->peer, sizeof(c->peer));
	p->caller = c;
	p->deadline_ns = clock_mono_ns() + MIRROR_HANDSHAKE_NS;
	p->reader.got = 0;
	return 0;
}

/* Takes what came from one of them. False: it is done with, one way or the other. */
static bool pending_read(struct mirror *m, struct mirror_pending *p)
{
	struct handshake fresh = { .key = m->cfg.key, .cancel = &m->stopping };
	struct handshake *h = p->caller ? &p->caller->handshake : &fresh;
	struct frame f;
	char peer[300];
	int err = frame_read_some(p->fd, &p->reader, &f);

	if (err == -EAGAIN)
		return true;
	if (err)
		err = handshake_answer_lost(h, p->fd, err, p->caller ? "join" : "hello");
	else if (!p->caller)
		err = pending_hello(m, p, &f, h);
	else
		err = handshake_answer_join(h, p->fd, &f, frame_reader_payload(&p->reader),
					    &p->caller->join);
	if (err) {
		dial_peer_text(p->fd, peer, sizeof(peer));
		mirror_fail_at_door(m, peer, h->why);
		pending_drop(p);
		return false;
	}
	if (h == &fresh)
		return true;
	mirror_serve_caller(m, p->caller, p->kind);
	return false;
}

static void pending_source(int fd, uint8_t ret_source[16])
{
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		struct sockaddr_storage storage;
	} a;
	socklen_t len = sizeof(a);

	memset(ret_source, 0, 16);
	if (getpeername(fd, &a.sa, &len) != 0)
		return;
	if (a.sa.sa_family == AF_INET6) {
		memcpy(ret_source, &a.in6.sin6_addr, 16);
	} else if (a.sa.sa_family == AF_INET) {
		ret_source[10] = ret_source[11] = 0xFF;
		memcpy(ret_source + 12, &a.in.sin_addr, 4);
	}
}

static void reception_remove(struct mirror_reception *r, unsigned i)
{
	r->count--;
	memmove(&r->pending[i], &r->pending[i + 1], sizeof(r->pending[0]) * (r->count - i));
}

static unsigned reception_of_source(const struct mirror_reception *r, const uint8_t source[16])
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->count; i++)
		n += memcmp(r->pending[i].source, source, 16) == 0;
	return n;
}

/* Makes a place for one more of source: the oldest that has shown no hello goes, of the same source
 * when that has its share. False: there is none such. */
static bool reception_make_room(struct mirror_reception *r, const uint8_t source[16])
{
	bool share = reception_of_source(r, source) >= MIRROR_SOURCE_MAX;

	if (!share && r->count < MIRROR_PENDING_MAX)
		return true;
	for (unsigned i = 0; i < r->count; i++) {
		struct mirror_pending *p = &r->pending[i];

		if (p->caller || (share && memcmp(p->source, source, 16) != 0))
			continue;
		pending_drop(p);
		reception_remove(r, i);
		return true;
	}
	return false;
}

static void mirror_accept(struct mirror *m, unsigned i, struct mirror_reception *r)
{
	int fd = accept4(m->listen_fds[i], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	uint8_t source[16];
	struct mirror_pending *p;

	if (fd < 0) {
		if (io_accept_lacks(errno))
			r->accept_ns = clock_mono_ns() + MIRROR_ACCEPT_AGAIN_NS;
		return;
	}
	pending_source(fd, source);
	if (!reception_make_room(r, source)) {
		close(fd);
		return;
	}
	frame_socket_tune(fd);
	p = &r->pending[r->count++];
	memset(p, 0, sizeof(*p));
	p->fd = fd;
	p->kind = m->listen_addrs[i].kind;
	p->deadline_ns = clock_mono_ns() + MIRROR_SILENT_NS;
	memcpy(p->source, source, sizeof(source));
}

/* Hears those that spoke, drops those that take too long. fds: of all pending, in order. */
static void mirror_serve_pending(struct mirror *m, struct mirror_reception *r,
				 const struct pollfd *fds)
{
	uint64_t now = clock_mono_ns();
	unsigned kept = 0;

	for (unsigned i = 0; i < r->count; i++) {
		struct mirror_pending *p = &r->pending[i];

		if (fds[i].revents && !pending_read(m, p))
			continue;
		if (now >= p->deadline_ns) {
			pending_drop(p);
			continue;
		}
		if (kept != i)
			r->pending[kept] = *p;
		kept++;
	}
	r->count = kept;
}

static void mirror_listen_round(struct mirror *m, struct mirror_reception *r)
{
	struct pollfd fds[1 + MIRROR_LISTEN_MAX + MIRROR_PENDING_MAX];
	unsigned first = 1 + m->listen_count;
	bool accepts = clock_mono_ns() >= r->accept_ns;
	int timeout_ms = r->count ? 1000 : 60000;

	if (!accepts)
		timeout_ms = MIRROR_ACCEPT_AGAIN_NS / NSEC_PER_MSEC;
	fds[0] = (struct pollfd){ .fd = m->stop_fd, .events = POLLIN };
	for (unsigned i = 0; i < m->listen_count; i++)
		fds[1 + i] = (struct pollfd){ .fd = accepts ? m->listen_fds[i] : -1,
					      .events = POLLIN };
	for (unsigned i = 0; i < r->count; i++)
		fds[first + i] = (struct pollfd){ .fd = r->pending[i].fd, .events = POLLIN };
	if (poll(fds, first + r->count, timeout_ms) < 0)
		return;
	mirror_serve_pending(m, r, fds + first);
	for (unsigned i = 0; i < m->listen_count; i++)
		if (fds[1 + i].revents)
			mirror_accept(m, i, r);
}

void *mirror_listen_thread(void *arg)
{
	struct mirror *m = arg;
	struct mirror_reception r = { .count = 0 };

	while (!atomic_load_explicit(&m->stopping, memory_order_relaxed))
		mirror_listen_round(m, &r);
	for (unsigned i = 0; i < r.count; i++)
		pending_drop(&r.pending[i]);
	return NULL;
}
