/* SPDX-License-Identifier: Apache-2.0 */
/* The primary's side of a tcp transport's set-up: dials the lanes.
 * Blocks, until params.deadline_ns. */
#include "common/byteorder.h"
#include "replication/transport/transport_tcp_internal.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int recv_answer(int fd, unsigned lanes_max, uint64_t deadline_ns, struct tcp_answer *a)
{
	unsigned lanes;
	int r = setup_recv(fd, a, sizeof(*a), deadline_ns);

	if (r < 0)
		return r;
	lanes = get_be16(a->lanes);
	if (get_be32(a->magic) != TCP_MAGIC_ANSWER || get_be16(a->version) != TCP_FORMAT_VERSION ||
	    transport_check_shape(lanes, get_be64(a->window_bytes)) < 0 || lanes > lanes_max ||
	    get_be16(a->port) == 0)
		return -EPROTO;
	return 0;
}

/* Begins to connect; the end is told by setup_wait(POLLOUT). */
static int dial_begin(const union tcp_sock_addr *a, socklen_t len, int *ret_fd)
{
	int r, fd = socket(a->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	tcp_set_options(fd);
	if (connect(fd, &a->sa, len) < 0 && errno != EINPROGRESS) {
		r = -errno;
		close(fd);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

static int dial_end(int fd, unsigned lane, uint32_t generation, const uint8_t *token,
		    uint64_t deadline_ns)
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
	put_be32(h.generation, generation);
	memcpy(h.token, token, sizeof(h.token));
	return setup_send(fd, &h, sizeof(h), deadline_ns);
}

/* The peer is where the control connection leads, whatever name was dialled. */
static int dial_address(int control_fd, const struct tcp_answer *a, union tcp_sock_addr *ret_peer,
			socklen_t *ret_len)
{
	union tcp_sock_addr peer = { 0 };
	socklen_t len = sizeof(peer);
	int r = tcp_address_check(getpeername(control_fd, &peer.sa, &len), &peer, &len);

	if (r < 0)
		return r;
	tcp_set_port(&peer, get_be16(a->port));
	*ret_peer = peer;
	*ret_len = len;
	return 0;
}

static int dial_lanes(int control_fd, const struct tcp_answer *a, uint64_t deadline_ns, int *fds)
{
	unsigned lanes = get_be16(a->lanes);
	union tcp_sock_addr peer;
	socklen_t len;
	int r = dial_address(control_fd, a, &peer, &len);

	memset(fds, -1, sizeof(*fds) * TRANSPORT_LANES_MAX);
	for (unsigned i = 0; r == 0 && i < lanes; i++)
		r = dial_begin(&peer, len, &fds[i]);
	for (unsigned i = 0; r == 0 && i < lanes; i++)
		r = dial_end(fds[i], i, 0, a->token, deadline_ns);
	if (r < 0)
		tcp_close_all(fds, lanes);
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
		r = recv_answer(control_fd, p->lanes, p->deadline_ns, &a);
	if (r < 0)
		return r;
	*ret_why = "can't connect the lanes to the mirror";
	r = dial_lanes(control_fd, &a, p->deadline_ns, fds);
	if (r == 0)
		r = tcp_ep_create(p, fds, get_be16(a.lanes), get_be64(a.window_bytes), &ep);
	if (r < 0) {
		(void)tcp_send_status(control_fd, r, p->deadline_ns);
		return r;
	}
	*ret_why = "the mirror gave up while the lanes were being connected";
	r = tcp_recv_status(control_fd, p->deadline_ns);
	if (r < 0) {
		transport_tcp_ops.close(ep);
		return r;
	}
	*ret_ep = ep;
	return 0;
}

static int dial_again(struct tcp_ep *ep, int control_fd, const struct tcp_answer *a,
		      const struct transport_relane *r)
{
	union tcp_sock_addr peer;
	socklen_t len;
	int fd, err = dial_address(control_fd, a, &peer, &len);

	if (!err)
		err = dial_begin(&peer, len, &fd);
	if (err)
		return err;
	err = dial_end(fd, r->lane, r->generation, a->token, r->deadline_ns);
	if (err) {
		close(fd);
		return err;
	}
	return tcp_lane_renew(&ep->lane[r->lane], fd);
}

int tcp_lane_connect(struct transport_ep *base, int control_fd, const struct transport_relane *r,
		     const char **ret_why)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;
	struct tcp_answer a;
	int err;

	*ret_why = "the mirror did not say where to connect the lane to";
	assert(r->lane < base->lanes && ep->lane[r->lane].down);
	err = recv_answer(control_fd, base->lanes, r->deadline_ns, &a);
	if (!err && (get_be16(a.lanes) != base->lanes ||
		     get_be64(a.window_bytes) != base->remote_bytes))
		err = -EPROTO;
	if (err)
		return err;
	*ret_why = "can't connect the lane to the mirror";
	err = dial_again(ep, control_fd, &a, r);
	if (err) {
		(void)tcp_send_status(control_fd, err, r->deadline_ns);
		return err;
	}
	*ret_why = "the mirror gave up while the lane was being connected";
	err = tcp_recv_status(control_fd, r->deadline_ns);
	if (err)
		tcp_lane_down(&ep->lane[r->lane], err);
	return err;
}
