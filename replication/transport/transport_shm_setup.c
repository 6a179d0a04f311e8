/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Set-up and end of a shm endpoint. The control connection, a unix stream socket, carries the
 * memfds of both inboxes and one end of a socket pair, the life line: when a process dies, however,
 * the other end sees it hang up. All of it blocks, until params.deadline_ns.
 */
#include "replication/transport/transport_shm_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static int check_control(int fd, const struct transport_params *p, const char **ret_why)
{
	int domain = 0;
	socklen_t len = sizeof(domain);

	*ret_why = "lanes or window size out of range";
	if (transport_check_shape(p->lanes, p->window_bytes) < 0)
		return -EINVAL;
	*ret_why = "shared memory needs a unix socket as control connection";
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0)
		return -errno;
	return domain == AF_UNIX ? 0 : -ENOTSUP;
}

static struct shm_ep *ep_alloc(const struct transport_params *p)
{
	struct shm_ep *ep = calloc(1, sizeof(*ep));

	if (ep == NULL)
		return NULL;
	ep->base.ops = &transport_shm_ops;
	ep->base.window_bytes = p->window_bytes;
	ep->base.poll_us = p->poll_us;
	ep->life_fd = -1;
	return ep;
}

static struct shm_hello hello_of(unsigned lanes, uint64_t window_bytes)
{
	return (struct shm_hello){ .magic = SHM_MAGIC, .version = SHM_FORMAT_VERSION,
				   .lanes = lanes, .window_bytes = window_bytes };
}

/* Our inbox, for a number of lanes that is agreed. The descriptor is only for sending. */
static int make_inbox(struct shm_ep *ep, unsigned lanes, int *ret_fd)
{
	int r;

	ep->base.lanes = lanes;
	ep->inbox_bytes = shm_inbox_bytes(lanes, ep->base.window_bytes);
	r = shm_inbox_create(ep->inbox_bytes, ret_fd, &ep->inbox);
	if (r < 0)
		return r;
	ep->head = (struct shm_head *)ep->inbox;
	ep->base.window = ep->inbox + shm_window_off(lanes);
	return 0;
}

/* The peer's inbox; takes fd. */
static int join_inbox(struct shm_ep *ep, int fd, uint64_t window_bytes)
{
	int r;

	ep->base.remote_bytes = window_bytes;
	ep->peer_inbox_bytes = shm_inbox_bytes(ep->base.lanes, window_bytes);
	r = shm_inbox_map(fd, ep->peer_inbox_bytes, &ep->peer_inbox);
	close(fd);
	if (r < 0)
		return r;
	ep->peer_head = (struct shm_head *)ep->peer_inbox;
	ep->peer_window = ep->peer_inbox + shm_window_off(ep->base.lanes);
	for (unsigned i = 0; i < ep->base.lanes; i++) {
		struct shm_lane *l = &ep->lane[i];

		l->ep = ep;
		l->index = i;
		l->in = shm_ring_at(ep->inbox, i);
		l->out = shm_ring_at(ep->peer_inbox, i);
	}
	return 0;
}

/* The caller of set-up knows why it failed; the peer only that it did. */
static int give_up(int control_fd, struct shm_ep *ep, int err, uint64_t deadline_ns)
{
	struct shm_hello h = hello_of(0, 0);

	(void)shm_hello_send(control_fd, &h, NULL, 0, deadline_ns);
	shm_close(&ep->base);
	return err;
}

static int send_inbox_and_life(int control_fd, struct shm_ep *ep, int inbox_fd,
			       uint64_t deadline_ns)
{
	struct shm_hello h = hello_of(ep->base.lanes, ep->base.window_bytes);
	int r, life[2], fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, life) < 0)
		return -errno;
	ep->life_fd = life[0];
	fds[0] = inbox_fd;
	fds[1] = life[1];
	r = shm_hello_send(control_fd, &h, fds, 2, deadline_ns);
	close(life[1]);
	return r;
}

static int accept_steps(int control_fd, struct shm_ep *ep, const struct transport_params *p,
			const char **ret_why)
{
	struct shm_hello h;
	int r, fd = -1;

	*ret_why = "the primary sent no sensible offer of lanes";
	r = shm_hello_recv(control_fd, &h, NULL, 0, p->deadline_ns);
	if (r < 0)
		return r;
	if (transport_check_shape(h.lanes, h.window_bytes) < 0)
		return -EPROTO;
	ep->base.remote_bytes = h.window_bytes;
	*ret_why = "no memory for the window";
	r = make_inbox(ep, h.lanes < p->lanes ? h.lanes : p->lanes, &fd);
	if (r < 0)
		return r;
	*ret_why = "the primary did not share its memory";
	r = send_inbox_and_life(control_fd, ep, fd, p->deadline_ns);
	close(fd);
	if (r == 0)
		r = shm_hello_recv(control_fd, &h, &fd, 1, p->deadline_ns);
	if (r < 0)
		return r;
	if (h.lanes != ep->base.lanes || h.window_bytes != ep->base.remote_bytes) {
		close(fd);
		return -EPROTO;
	}
	*ret_why = "the primary's shared memory is not what it should be";
	r = join_inbox(ep, fd, h.window_bytes);
	if (r < 0)
		return r;
	*ret_why = "the control connection broke";
	h = hello_of(ep->base.lanes, p->window_bytes);
	return shm_hello_send(control_fd, &h, NULL, 0, p->deadline_ns);
}

static int connect_steps(int control_fd, struct shm_ep *ep, const struct transport_params *p,
			 const char **ret_why)
{
	struct shm_hello h = hello_of(p->lanes, p->window_bytes), ours;
	int r, fds[2], fd = -1;

	*ret_why = "the mirror did not answer with its memory";
	r = shm_hello_send(control_fd, &h, NULL, 0, p->deadline_ns);
	if (r == 0)
		r = shm_hello_recv(control_fd, &h, fds, 2, p->deadline_ns);
	if (r < 0)
		return r;
	ep->life_fd = fds[1];
	if (transport_check_shape(h.lanes, h.window_bytes) < 0 || h.lanes > p->lanes) {
		close(fds[0]);
		return -EPROTO;
	}
	*ret_why = "no memory for the window";
	r = make_inbox(ep, h.lanes, &fd);
	if (r < 0) {
		close(fds[0]);
		return r;
	}
	*ret_why = "the mirror's shared memory is not what it should be";
	r = join_inbox(ep, fds[0], h.window_bytes);
	*ret_why = r == 0 ? "the mirror gave up after both had shared memory" : *ret_why;
	ours = hello_of(ep->base.lanes, p->window_bytes);
	if (r == 0)
		r = shm_hello_send(control_fd, &ours, &fd, 1, p->deadline_ns);
	close(fd);
	return r == 0 ? shm_hello_recv(control_fd, &h, NULL, 0, p->deadline_ns) : r;
}

/* An endpoint by the steps of one of the two sides. */
static int set_up(int control_fd, const struct transport_params *p,
		  int (*steps)(int control_fd, struct shm_ep *ep, const struct transport_params *p,
			       const char **ret_why),
		  struct transport_ep **ret_ep, const char **ret_why)
{
	struct shm_ep *ep;
	int r = check_control(control_fd, p, ret_why);

	if (r < 0)
		return r;
	ep = ep_alloc(p);
	if (ep == NULL)
		return -ENOMEM;
	r = steps(control_fd, ep, p, ret_why);
	if (r < 0)
		return give_up(control_fd, ep, r, p->deadline_ns);
	*ret_ep = &ep->base;
	return 0;
}

int shm_accept(int control_fd, const struct transport_params *p, struct transport_ep **ret_ep,
	       const char **ret_why)
{
	return set_up(control_fd, p, accept_steps, ret_ep, ret_why);
}

int shm_connect(int control_fd, const struct addr *peer, const struct transport_params *p,
		struct transport_ep **ret_ep, const char **ret_why)
{
	(void)peer;
	return set_up(control_fd, p, connect_steps, ret_ep, ret_why);
}

static int lane_hello_send(int fd, const struct transport_relane *r)
{
	struct shm_lane_hello h = { .magic = SHM_MAGIC_LANE, .version = SHM_FORMAT_VERSION,
				    .lane = r->lane, .generation = r->generation };

	return setup_send(fd, &h, sizeof(h), r->deadline_ns);
}

static int lane_hello_recv(int fd, const struct transport_relane *r)
{
	struct shm_lane_hello h;
	int err = setup_recv(fd, &h, sizeof(h), r->deadline_ns);

	if (err)
		return err;
	return h.magic == SHM_MAGIC_LANE && h.version == SHM_FORMAT_VERSION && h.lane == r->lane &&
			       h.generation == r->generation ? 0 : -EPROTO;
}

/*
 * The memory stays. Each end takes back what it wrote there of the lane, the primary first; by then
 * the mirror has had its LANE_DOWN, so it looks at nothing of it. What the mirror posts after its
 * answer finds the primary's side clean.
 */
int shm_lane_accept(struct transport_ep *base, int control_fd, const struct transport_relane *r,
		    const char **ret_why)
{
	struct shm_ep *ep = (struct shm_ep *)base;
	int err;

	assert(r->lane < base->lanes && ep->lane[r->lane].down);
	*ret_why = "the primary is gone";
	if (ep->peer_gone)
		return -ENOTCONN;
	*ret_why = "the primary did not begin the lane anew";
	err = lane_hello_recv(control_fd, r);
	if (err)
		return err;
	shm_lane_reset(&ep->lane[r->lane]);
	*ret_why = "the control connection broke";
	err = lane_hello_send(control_fd, r);
	if (!err)
		shm_lane_reopen(&ep->lane[r->lane]);
	return err;
}

int shm_lane_connect(struct transport_ep *base, int control_fd, const struct transport_relane *r,
		     const char **ret_why)
{
	struct shm_ep *ep = (struct shm_ep *)base;
	int err;

	assert(r->lane < base->lanes && ep->lane[r->lane].down);
	*ret_why = "the mirror is gone";
	if (ep->peer_gone)
		return -ENOTCONN;
	*ret_why = "the mirror did not begin the lane anew";
	shm_lane_reset(&ep->lane[r->lane]);
	err = lane_hello_send(control_fd, r);
	if (!err)
		err = lane_hello_recv(control_fd, r);
	if (!err)
		shm_lane_reopen(&ep->lane[r->lane]);
	return err;
}

void shm_close(struct transport_ep *base)
{
	struct shm_ep *ep = (struct shm_ep *)base;

	if (ep == NULL)
		return;
	if (ep->peer_inbox != NULL) {
		notice_publish(&ep->peer_head->closed, 1);
		shm_wake_owner(ep->peer_head);
		munmap(ep->peer_inbox, ep->peer_inbox_bytes);
	}
	if (ep->inbox != NULL)
		munmap(ep->inbox, ep->inbox_bytes);
	if (ep->life_fd >= 0)
		close(ep->life_fd);
	free(ep);
}
