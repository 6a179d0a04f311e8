/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Set-up of the tcp transport. Primary → mirror: offer; mirror → primary: answer with a port and a random token;
 * the primary dials all lanes, each beginning with the token; both end with a status. Strangers at the port cost a
 * slot until the deadline at most, and the oldest of them gives way. All blocks, until params.deadline_ns.
 */
#include "common/byteorder.h"
#include "replication/transport_tcp_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOCKET_BUFFER_BYTES (4 << 20)
#define SILENCE_MS 10000 /* unacknowledged data end a lane after this */
#define GUESTS_MAX 16    /* connections that have not shown the token yet */

union sock_addr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_storage storage;
};

static void set_int(int fd, int level, int name, int value)
{
	/* Each of these makes a lane better, none is needed for it to be right. */
	(void)setsockopt(fd, level, name, &value, sizeof(value));
}

/* Before connect or listen: the buffers decide the window scale. Without CAP_NET_ADMIN the kernel's own tuning stays:
 * a plain SO_SNDBUF could only make them smaller. */
static void set_options(int fd)
{
	set_int(fd, SOL_SOCKET, SO_SNDBUFFORCE, SOCKET_BUFFER_BYTES);
	set_int(fd, SOL_SOCKET, SO_RCVBUFFORCE, SOCKET_BUFFER_BYTES);
	set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, SILENCE_MS);
	set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 3);
	set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
	set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

static int tcp_address(int r, union sock_addr *a, socklen_t *ret_len)
{
	if (r < 0)
		return -errno;
	if (a->sa.sa_family != AF_INET && a->sa.sa_family != AF_INET6)
		return -ENOTSUP;
	*ret_len = a->sa.sa_family == AF_INET ? sizeof(a->in) : sizeof(a->in6);
	return 0;
}

static void set_port(union sock_addr *a, uint16_t port)
{
	if (a->sa.sa_family == AF_INET)
		a->in.sin_port = htons(port);
	else
		a->in6.sin6_port = htons(port);
}

static uint16_t get_port(const union sock_addr *a)
{
	return ntohs(a->sa.sa_family == AF_INET ? a->in.sin_port : a->in6.sin6_port);
}

static void close_all(const int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

static int send_status(int fd, int err, uint64_t deadline_ns)
{
	struct tcp_status s;

	put_be32(s.magic, TCP_MAGIC_STATUS);
	put_be32(s.err, (uint32_t)-err);
	return setup_send(fd, &s, sizeof(s), deadline_ns);
}

static int recv_status(int fd, uint64_t deadline_ns)
{
	struct tcp_status s;
	int r = setup_recv(fd, &s, sizeof(s), deadline_ns);

	if (r < 0)
		return r;
	if (get_be32(s.magic) != TCP_MAGIC_STATUS)
		return -EPROTO;
	return get_be32(s.err) == 0 ? 0 : -ECONNABORTED;
}

/* ---- mirror ---- */

struct guest {
	int fd;
	uint32_t got;
	struct tcp_lane_hello hello;
};

struct reception {
	int control_fd, listen_fd;
	unsigned lanes, arrived, guest_count;
	uint64_t deadline_ns;
	uint8_t token[TCP_TOKEN_BYTES];
	int fds[TRANSPORT_LANES_MAX];
	struct guest guest[GUESTS_MAX];
};

/* A listener on the control connection's own address, with a port of the kernel's choice. */
static int listen_beside(int control_fd, int *ret_fd, uint16_t *ret_port)
{
	union sock_addr a = { 0 };
	socklen_t len = sizeof(a);
	int fd, r = tcp_address(getsockname(control_fd, &a.sa, &len), &a, &len);

	if (r < 0)
		return r;
	fd = socket(a.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	set_options(fd);
	set_port(&a, 0);
	if (bind(fd, &a.sa, len) < 0 || listen(fd, TRANSPORT_LANES_MAX + GUESTS_MAX) < 0 ||
	    getsockname(fd, &a.sa, &len) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	*ret_fd = fd;
	*ret_port = get_port(&a);
	return 0;
}

static void guest_drop(struct reception *c, unsigned i, bool keep_fd)
{
	if (!keep_fd)
		close(c->guest[i].fd);
	c->guest_count--;
	memmove(&c->guest[i], &c->guest[i + 1], (c->guest_count - i) * sizeof(c->guest[0]));
}

static void guest_add(struct reception *c)
{
	int fd = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	set_options(fd);
	if (c->guest_count == GUESTS_MAX)
		guest_drop(c, 0, false);
	c->guest[c->guest_count++] = (struct guest){ .fd = fd };
}

/* In time that does not depend on where they differ. */
static bool token_equal(const uint8_t *a, const uint8_t *b)
{
	uint8_t diff = 0;

	for (size_t i = 0; i < TCP_TOKEN_BYTES; i++)
		diff |= a[i] ^ b[i];
	return diff == 0;
}

static bool guest_admit(struct reception *c, struct guest *g)
{
	uint32_t lane = get_be32(g->hello.lane);

	if (get_be32(g->hello.magic) != TCP_MAGIC_LANE || lane >= c->lanes || c->fds[lane] >= 0 ||
	    !token_equal(g->hello.token, c->token))
		return false;
	c->fds[lane] = g->fd;
	c->arrived++;
	return true;
}

/* Exactly the hello is read: what follows belongs to the lane. */
static void guest_serve(struct reception *c, unsigned i)
{
	struct guest *g = &c->guest[i];
	ssize_t r = recv(g->fd, (uint8_t *)&g->hello + g->got, sizeof(g->hello) - g->got,
			 MSG_DONTWAIT);

	if (r < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (r > 0) {
		g->got += (uint32_t)r;
		if (g->got < sizeof(g->hello))
			return;
	}
	guest_drop(c, i, r > 0 && guest_admit(c, g));
}

/* Until all lanes are here. The primary speaks on the control connection only to give up. */
static int receive_lanes(struct reception *c)
{
	while (c->arrived < c->lanes) {
		struct pollfd p[2 + GUESTS_MAX];
		uint64_t now_ns = clock_mono_ns();
		unsigned n = c->guest_count;
		struct timespec ts;

		if (now_ns >= c->deadline_ns)
			return -ETIMEDOUT;
		p[0] = (struct pollfd){ .fd = c->control_fd, .events = POLLIN };
		p[1] = (struct pollfd){ .fd = c->listen_fd, .events = POLLIN };
		for (unsigned i = 0; i < n; i++)
			p[2 + i] = (struct pollfd){ .fd = c->guest[i].fd, .events = POLLIN };
		ts = transport_timespec(c->deadline_ns - now_ns);
		if (ppoll(p, 2 + n, &ts, NULL) < 0 && errno != EINTR)
			return -errno;
		if (p[0].revents != 0) {
			int r = recv_status(c->control_fd, c->deadline_ns);

			return r < 0 ? r : -EPROTO;
		}
		for (unsigned i = n; i-- > 0;)
			if (p[2 + i].revents != 0)
				guest_serve(c, i);
		if (p[1].revents != 0)
			guest_add(c);
	}
	return 0;
}

static int recv_offer(int fd, const struct transport_params *p, unsigned *ret_lanes,
		      uint64_t *ret_remote_bytes, const char **ret_why)
{
	struct tcp_offer o;
	unsigned lanes;
	int r = setup_recv(fd, &o, sizeof(o), p->deadline_ns);

	*ret_why = "the primary sent no offer of lanes";
	if (r < 0)
		return r;
	lanes = get_be16(o.lanes);
	if (get_be32(o.magic) != TCP_MAGIC_OFFER || get_be16(o.version) != TCP_FORMAT_VERSION ||
	    transport_check_shape(lanes, get_be64(o.window_bytes)) < 0) {
		*ret_why = "the primary's offer of lanes makes no sense";
		return -EPROTO;
	}
	*ret_lanes = lanes < p->lanes ? lanes : p->lanes;
	*ret_remote_bytes = get_be64(o.window_bytes);
	return 0;
}

static int send_answer(struct reception *c, const struct transport_params *p, uint16_t port)
{
	struct tcp_answer a = { 0 };

	if (getrandom(c->token, sizeof(c->token), 0) != (ssize_t)sizeof(c->token))
		return -EIO;
	put_be32(a.magic, TCP_MAGIC_ANSWER);
	put_be16(a.version, TCP_FORMAT_VERSION);
	put_be16(a.lanes, (uint16_t)c->lanes);
	put_be64(a.window_bytes, p->window_bytes);
	put_be16(a.port, port);
	memcpy(a.token, c->token, sizeof(a.token));
	return setup_send(c->control_fd, &a, sizeof(a), c->deadline_ns);
}

int tcp_accept(int control_fd, const struct transport_params *p, struct transport_ep **ret_ep,
	       const char **ret_why)
{
	struct reception c = { .control_fd = control_fd, .deadline_ns = p->deadline_ns };
	struct transport_ep *ep = NULL;
	uint64_t remote_bytes = 0;
	uint16_t port = 0;
	int r;

	*ret_why = "lanes or window size out of range";
	if (transport_check_shape(p->lanes, p->window_bytes) < 0)
		return -EINVAL;
	r = recv_offer(control_fd, p, &c.lanes, &remote_bytes, ret_why);
	if (r < 0)
		return r;
	*ret_why = "can't listen for lanes on the control connection's address";
	r = listen_beside(control_fd, &c.listen_fd, &port);
	if (r < 0)
		return r;
	memset(c.fds, -1, sizeof(c.fds));
	*ret_why = "the primary's lanes did not all arrive";
	r = send_answer(&c, p, port);
	if (r == 0)
		r = receive_lanes(&c);
	close(c.listen_fd);
	while (c.guest_count > 0)
		guest_drop(&c, 0, false);
	if (r < 0) {
		close_all(c.fds, c.lanes);
		return r;
	}
	*ret_why = "no memory for the lanes";
	r = tcp_ep_create(p, c.fds, c.lanes, remote_bytes, &ep);
	if (r < 0) {
		(void)send_status(control_fd, r, p->deadline_ns);
		return r;
	}
	*ret_why = "the control connection broke";
	r = send_status(control_fd, 0, p->deadline_ns);
	if (r < 0) {
		transport_tcp_ops.close(ep);
		return r;
	}
	*ret_ep = ep;
	return 0;
}

/* ---- primary ---- */

static int recv_answer(int fd, const struct transport_params *p, struct tcp_answer *a)
{
	unsigned lanes;
	int r = setup_recv(fd, a, sizeof(*a), p->deadline_ns);

	if (r < 0)
		return r;
	lanes = get_be16(a->lanes);
	if (get_be32(a->magic) != TCP_MAGIC_ANSWER || get_be16(a->version) != TCP_FORMAT_VERSION ||
	    transport_check_shape(lanes, get_be64(a->window_bytes)) < 0 || lanes > p->lanes ||
	    get_be16(a->port) == 0)
		return -EPROTO;
	return 0;
}

/* Begins to connect; the end is told by setup_wait(POLLOUT). */
static int dial_begin(const union sock_addr *a, socklen_t len, int *ret_fd)
{
	int r, fd = socket(a->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	set_options(fd);
	if (connect(fd, &a->sa, len) < 0 && errno != EINPROGRESS) {
		r = -errno;
		close(fd);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

static int dial_end(int fd, unsigned lane, const uint8_t *token, uint64_t deadline_ns)
{
	struct tcp_lane_hello h;
	int r, err = 0;
	socklen_t len = sizeof(err);

	r = setup_wait(fd, POLLOUT, deadline_ns);
	if (r < 0)
		return r;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
		return -errno;
	if (err != 0)
		return -err;
	put_be32(h.magic, TCP_MAGIC_LANE);
	put_be32(h.lane, lane);
	memcpy(h.token, token, sizeof(h.token));
	return setup_send(fd, &h, sizeof(h), deadline_ns);
}

static int dial_lanes(int control_fd, const struct tcp_answer *a, uint64_t deadline_ns, int *fds)
{
	unsigned lanes = get_be16(a->lanes);
	union sock_addr peer = { 0 };
	socklen_t len = sizeof(peer);
	int r = tcp_address(getpeername(control_fd, &peer.sa, &len), &peer, &len);

	memset(fds, -1, sizeof(*fds) * TRANSPORT_LANES_MAX);
	if (r == 0)
		set_port(&peer, get_be16(a->port));
	for (unsigned i = 0; r == 0 && i < lanes; i++)
		r = dial_begin(&peer, len, &fds[i]);
	for (unsigned i = 0; r == 0 && i < lanes; i++)
		r = dial_end(fds[i], i, a->token, deadline_ns);
	if (r < 0)
		close_all(fds, lanes);
	return r;
}

static int send_offer(int fd, const struct transport_params *p)
{
	struct tcp_offer o;

	put_be32(o.magic, TCP_MAGIC_OFFER);
	put_be16(o.version, TCP_FORMAT_VERSION);
	put_be16(o.lanes, (uint16_t)p->lanes);
	put_be64(o.window_bytes, p->window_bytes);
	return setup_send(fd, &o, sizeof(o), p->deadline_ns);
}

/* The peer is where the control connection leads, whatever name was dialled. */
int tcp_connect(int control_fd, const struct addr *peer, const struct transport_params *p,
		struct transport_ep **ret_ep, const char **ret_why)
{
	int fds[TRANSPORT_LANES_MAX];
	struct transport_ep *ep = NULL;
	struct tcp_answer a;
	int r;

	(void)peer;
	*ret_why = "lanes or window size out of range";
	if (transport_check_shape(p->lanes, p->window_bytes) < 0)
		return -EINVAL;
	*ret_why = "the mirror did not answer the offer of lanes";
	r = send_offer(control_fd, p);
	if (r == 0)
		r = recv_answer(control_fd, p, &a);
	if (r < 0)
		return r;
	*ret_why = "can't connect the lanes to the mirror";
	r = dial_lanes(control_fd, &a, p->deadline_ns, fds);
	if (r == 0)
		r = tcp_ep_create(p, fds, get_be16(a.lanes), get_be64(a.window_bytes), &ep);
	if (r < 0) {
		(void)send_status(control_fd, r, p->deadline_ns);
		return r;
	}
	*ret_why = "the mirror gave up while the lanes were being connected";
	r = recv_status(control_fd, p->deadline_ns);
	if (r < 0) {
		transport_tcp_ops.close(ep);
		return r;
	}
	*ret_ep = ep;
	return 0;
}
