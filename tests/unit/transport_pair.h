/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_TRANSPORT_PAIR_H
#define KVFS_TESTS_TRANSPORT_PAIR_H
/*
 * Two connected endpoints, in one process or in two, over each transport: what the contract test
 * and the benchmark run on. Every wait has a deadline; a helper that fails ends the test.
 */
#include "common/clock.h"
#include "common/thread.h"
#include "replication/transport/transport.h"
#include "tests/unit/unit_main.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAIR_DEADLINE_NS (10 * NSEC_PER_SEC)

struct pair {
	const struct transport_ops *ops;
	struct transport_ep *mirror, *primary;
};

struct pair_accept {
	const struct transport_ops *ops;
	int fd, result;
	struct transport_params params;
	struct transport_ep *ep;
};

/* Also outside of Check, where its assertions don't work. */
static inline void pair_must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "transport pair: %s (errno %d)\n", what, errno);
	abort();
}

/* KVFS_TEST_PATIENCE times as long where the machine is slow: rdma_cm sends a lost message again
 * after 4.3 s only. */
static inline uint64_t pair_deadline(void)
{
	return clock_mono_ns() + PAIR_DEADLINE_NS * unit_patience();
}

/* Connected stream sockets: unix ones, or over loopback. Each pair has another address of it:
 * closed connections keep their address's ports for a minute, and 10 000 pairs would run out. */
static inline void pair_sockets(bool over_tcp, int ret_fds[2])
{
	static _Atomic uint32_t pairs;
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK + pairs++ % 200) };
	socklen_t len = sizeof(a);
	int l;

	if (!over_tcp) {
		pair_must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ret_fds) == 0,
			  "set-up failed");
		return;
	}
	l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	pair_must(l >= 0, "set-up failed");
	pair_must(bind(l, (struct sockaddr *)&a, sizeof(a)) == 0, "set-up failed");
	pair_must(listen(l, 1) == 0, "set-up failed");
	pair_must(getsockname(l, (struct sockaddr *)&a, &len) == 0, "set-up failed");
	ret_fds[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	pair_must(connect(ret_fds[1], (struct sockaddr *)&a, sizeof(a)) == 0, "set-up failed");
	ret_fds[0] = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	pair_must(ret_fds[0] >= 0, "set-up failed");
	close(l);
}

static inline struct transport_params pair_params(unsigned lanes, uint64_t window_bytes)
{
	return (struct transport_params){ .lanes = lanes, .window_bytes = window_bytes,
					  .deadline_ns = pair_deadline() };
}

static inline void *pair_accept_main(void *arg)
{
	struct pair_accept *a = arg;
	const char *why;

	a->result = a->ops->accept(a->fd, &a->params, &a->ep, &why);
	return NULL;
}

/* Both ends in this process; the mirror's window has window_bytes, the primary's 64 KiB. What the
 * primary sends lies in memory, or anywhere (NULL). */
static inline void pair_open_from(struct pair *p, const struct transport_ops *ops, bool over_tcp,
				  unsigned lanes, uint64_t window_bytes,
				  struct region_pool *memory)
{
	struct pair_accept a = { .ops = ops, .params = pair_params(lanes, window_bytes) };
	struct transport_params params = pair_params(lanes, 64 << 10);
	const struct addr peer = { .kind = over_tcp ? ADDR_TCP : ADDR_SHM };
	const char *why = "";
	pthread_t thread;
	int fds[2], r;

	params.memory = memory;
	pair_sockets(over_tcp, fds);
	a.fd = fds[0];
	pair_must(thread_start(&thread, "kv-accept", pair_accept_main, &a) == 0, "set-up failed");
	r = ops->connect(fds[1], &peer, &params, &p->primary, &why);
	errno = -r;
	pair_must(r == 0, why);
	pair_must(pthread_join(thread, NULL) == 0, "set-up failed");
	pair_must(a.result == 0, "set-up failed");
	p->mirror = a.ep;
	p->ops = ops;
	close(fds[0]);
	close(fds[1]);
}

static inline void pair_open(struct pair *p, const struct transport_ops *ops, bool over_tcp,
			     unsigned lanes, uint64_t window_bytes)
{
	pair_open_from(p, ops, over_tcp, lanes, window_bytes, NULL);
}

struct pair_relane {
	const struct transport_ops *ops;
	struct transport_ep *ep;
	struct transport_relane r;
	int fd, result;
};

static inline void *pair_relane_main(void *arg)
{
	struct pair_relane *a = arg;
	const char *why;

	a->result = a->ops->lane_accept(a->ep, a->fd, &a->r, &why);
	return NULL;
}

/* Both ends have had the lane's LANE_DOWN: makes it anew. */
static inline void pair_relane(struct pair *p, bool over_tcp, unsigned lane, uint32_t generation)
{
	struct transport_relane r = { .lane = lane, .generation = generation,
				      .deadline_ns = pair_deadline() };
	struct pair_relane a = { .ops = p->ops, .ep = p->mirror, .r = r };
	const char *why = "";
	pthread_t thread;
	int fds[2], err;

	pair_sockets(over_tcp, fds);
	a.fd = fds[0];
	pair_must(thread_start(&thread, "kv-accept", pair_relane_main, &a) == 0, "no thread");
	err = p->ops->lane_connect(p->primary, fds[1], &r, &why);
	errno = -err;
	pair_must(err == 0, why);
	pair_must(pthread_join(thread, NULL) == 0, "no thread");
	errno = -a.result;
	pair_must(a.result == 0, "the lane was not accepted");
	close(fds[0]);
	close(fds[1]);
}

static inline void pair_close(struct pair *p)
{
	p->ops->close(p->primary);
	p->ops->close(p->mirror);
}

/* One message of len bytes at data. What post returns. */
static inline int pair_post(struct pair *p, struct transport_ep *ep, unsigned lane,
			    const void *data, size_t len, uint64_t off, uint32_t imm)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
	struct transport_post post = { .iov = &iov, .iovcnt = len > 0, .remote_off = off,
				       .imm = imm, .control = imm >= TRANSPORT_IMM_CONTROL_FIRST };

	return p->ops->post(ep, lane, &post, 1);
}

/* The next event, which must come in time. */
static inline struct transport_event pair_next(struct pair *p, struct transport_ep *ep)
{
	uint64_t deadline_ns = pair_deadline();
	struct transport_event ev = { 0 };

	while (p->ops->poll(ep, &ev, 1, 100 * NSEC_PER_MSEC) == 0)
		pair_must(clock_mono_ns() < deadline_ns, "no event came");
	return ev;
}

/* The next event of this kind; others are passed over. */
static inline struct transport_event pair_next_of(struct pair *p, struct transport_ep *ep,
						  enum transport_event_kind kind)
{
	struct transport_event ev;

	do
		ev = pair_next(p, ep);
	while (ev.kind != kind);
	return ev;
}

#endif
