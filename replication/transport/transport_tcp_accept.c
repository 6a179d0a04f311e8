/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mirror's side of a tcp transport's set-up: listens beside the control connection until all
 * lanes have come. Strangers at the port cost a slot until the deadline at most, and the oldest of
 * them gives way. Blocks, until params.deadline_ns.
 */
#include "common/byteorder.h"
#include "replication/transport/transport_tcp_internal.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define GUESTS_MAX 16 /* connections that have not shown the token yet */

struct guest {
	int fd;
	uint32_t got;
	struct tcp_lane_hello hello;
};

struct reception {
	int control_fd, listen_fd;
	unsigned lanes, guest_count;
	uint64_t missing;    /* bit a lane that is still to come */
	uint32_t generation; /* of those */
	uint64_t deadline_ns;
	uint8_t token[TCP_TOKEN_BYTES];
	int fds[TRANSPORT_LANES_MAX];
	struct guest guest[GUESTS_MAX];
};

/* A listener on the control connection's own address, with a port of the kernel's choice. */
static int listen_beside(int control_fd, int *ret_fd, uint16_t *ret_port)
{
	union tcp_sock_addr a = { 0 };
	socklen_t len = sizeof(a);
	int fd, r = tcp_address_check(getsockname(control_fd, &a.sa, &len), &a, &len);

	if (r < 0)
		return r;
	fd = socket(a.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	tcp_set_options(fd);
	tcp_set_port(&a, 0);
	if (bind(fd, &a.sa, len) < 0 || listen(fd, TRANSPORT_LANES_MAX + GUESTS_MAX) < 0 ||
	    getsockname(fd, &a.sa, &len) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	*ret_fd = fd;
	*ret_port = tcp_get_port(&a);
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
	tcp_set_options(fd);
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

	if (get_be32(g->hello.magic) != TCP_MAGIC_LANE || lane >= c->lanes ||
	    !(c->missing & 1ULL << lane) || get_be32(g->hello.generation) != c->generation ||
	    !token_equal(g->hello.token, c->token))
		return false;
	c->fds[lane] = g->fd;
	c->missing &= ~(1ULL << lane);
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
	while (c->missing) {
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
			int r = tcp_recv_status(c->control_fd, c->deadline_ns);

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

static int send_answer(struct reception *c, uint64_t window_bytes, uint16_t port)
{
	struct tcp_answer a = { 0 };

	if (getrandom(c->token, sizeof(c->token), 0) != (ssize_t)sizeof(c->token))
		return -EIO;
	put_be32(a.magic, TCP_MAGIC_ANSWER);
	put_be16(a.version, TCP_FORMAT_VERSION);
	put_be16(a.lanes, (uint16_t)c->lanes);
	put_be64(a.window_bytes, window_bytes);
	put_be16(a.port, port);
	memcpy(a.token, c->token, sizeof(a.token));
	return setup_send(c->control_fd, &a, sizeof(a), c->deadline_ns);
}

/* Listens until all that is missing is here, in c->fds. */
static int receive(struct reception *c, uint64_t window_bytes, const char **ret_why)
{
	uint16_t port = 0;
	int r;

	memset(c->fds, -1, sizeof(c->fds));
	*ret_why = "can't listen for lanes on the control connection's address";
	r = listen_beside(c->control_fd, &c->listen_fd, &port);
	if (r < 0)
		return r;
	*ret_why = "the primary's lanes did not all arrive";
	r = send_answer(c, window_bytes, port);
	if (r == 0)
		r = receive_lanes(c);
	close(c->listen_fd);
	while (c->guest_count > 0)
		guest_drop(c, 0, false);
	if (r < 0)
		tcp_close_all(c->fds, c->lanes);
	return r;
}

int tcp_lane_accept(struct transport_ep *base, int control_fd, const struct transport_relane *r,
		    const char **ret_why)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;
	struct reception c = { .control_fd = control_fd,
			       .deadline_ns = r->deadline_ns,
			       .lanes = base->lanes,
			       .missing = 1ULL << r->lane,
			       .generation = r->generation };
	int err;

	assert(r->lane < base->lanes && ep->lane[r->lane].down);
	err = receive(&c, base->window_bytes, ret_why);
	if (err)
		return err;
	*ret_why = "the lane's connection is of no use";
	err = tcp_lane_renew(&ep->lane[r->lane], c.fds[r->lane]);
	if (err) {
		(void)tcp_send_status(control_fd, err, r->deadline_ns);
		return err;
	}
	*ret_why = "the control connection broke";
	err = tcp_send_status(control_fd, 0, r->deadline_ns);
	if (err)
		tcp_lane_down(&ep->lane[r->lane], err);
	return err;
}

int tcp_accept(int control_fd, const struct transport_params *p, struct transport_ep **ret_ep,
	       const char **ret_why)
{
	struct reception c = { .control_fd = control_fd, .deadline_ns = p->deadline_ns };
	struct transport_ep *ep = NULL;
	uint64_t remote_bytes = 0;
	int r;

	*ret_why = "lanes or window size out of range";
	if (transport_check_shape(p->lanes, p->window_bytes) < 0)
		return -EINVAL;
	r = recv_offer(control_fd, p, &c.lanes, &remote_bytes, ret_why);
	if (r < 0)
		return r;
	c.missing = (1ULL << c.lanes) - 1;
	r = receive(&c, p->window_bytes, ret_why);
	if (r < 0)
		return r;
	*ret_why = "no memory for the lanes";
	r = tcp_ep_create(p, c.fds, c.lanes, remote_bytes, &ep);
	if (r < 0) {
		(void)tcp_send_status(control_fd, r, p->deadline_ns);
		return r;
	}
	*ret_why = "the control connection broke";
	r = tcp_send_status(control_fd, 0, p->deadline_ns);
	if (r < 0) {
		transport_tcp_ops.close(ep);
		return r;
	}
	*ret_ep = ep;
	return 0;
}
