/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The primary's side of a verbs set-up: dials the lanes, all at once, each step of each with the
 * caller's deadline. rdma_cm sends a message that was lost again only after 4.3 s: where nothing
 * happens for a while, shorter at first, the lanes that are missing are dialled anew. Blocks, until
 * params.deadline_ns.
 */
#include "common/byteorder.h"
#include "replication/transport/transport_verbs_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#define RESOLVE_MS 2000
/* With no lane at all by then the way is no good; many lanes may take longer. */
#define DIAL_FIRST_NS (5 * NSEC_PER_SEC)
#define DIAL_QUIET_NS (500 * NSEC_PER_MSEC) /* without an event; then twice that, and so on */

struct dial {
	struct verbs_ep *ep;
	int control_fd;
	uint64_t deadline_ns;
	uint64_t first_deadline_ns; /* while no lane is connected */
	bool some;                  /* a lane is */
	union verbs_address from, to; /* from: AF_UNSPEC, whatever leads there */
	uint8_t token[VERBS_TOKEN_BYTES];
	uint64_t missing;    /* bit a lane that is still to be connected */
	uint32_t generation; /* of those */
	uint32_t attempt;    /* at those */
	uint64_t quiet_ns;   /* so long without an event, and there is another */
	const char *step;
};

static int send_offer(int fd, const struct transport_params *p)
{
	struct verbs_offer o;

	put_be32(o.magic, VERBS_MAGIC_OFFER);
	put_be16(o.version, VERBS_FORMAT_VERSION);
	put_be16(o.lanes, (uint16_t)p->lanes);
	put_be64(o.window_bytes, p->window_bytes);
	return setup_send(fd, &o, sizeof(o), p->deadline_ns);
}

static void answer_address(const struct verbs_answer *a, union verbs_address *ret_to)
{
	union verbs_address to = { .in6 = { .sin6_family = AF_INET6,
					    .sin6_port = htons(get_be16(a->port)) } };

	memcpy(&to.in6.sin6_addr, a->address, sizeof(a->address));
	if (IN6_IS_ADDR_V4MAPPED(&to.in6.sin6_addr)) {
		to = (union verbs_address){ .in = { .sin_family = AF_INET,
						    .sin_port = htons(get_be16(a->port)) } };
		memcpy(&to.in.sin_addr, a->address + 12, 4);
	}
	*ret_to = to;
}

/* A status came in place of an answer: the mirror can't, or doesn't understand us. */
static int answer_refused(const struct verbs_answer *a, const char **ret_why)
{
	struct verbs_status s;
	unsigned version;
	int r;

	memcpy(&s, a, sizeof(s));
	r = verbs_status_decode(&s, &version);
	if (r == -EPROTONOSUPPORT)
		*ret_why = verbs_formats_why("the mirror", version);
	return r ? r : -EPROTO;
}

static int recv_answer(struct dial *d, unsigned lanes_max, unsigned *ret_lanes,
		       uint64_t *ret_window_bytes, const char **ret_why)
{
	union verbs_address control;
	struct verbs_answer a;
	int r = setup_recv(d->control_fd, &a, sizeof(struct verbs_status), d->deadline_ns);

	if (r < 0)
		return r;
	if (get_be32(a.magic) == VERBS_MAGIC_STATUS)
		return answer_refused(&a, ret_why);
	r = setup_recv(d->control_fd, (uint8_t *)&a + sizeof(struct verbs_status),
		       sizeof(a) - sizeof(struct verbs_status), d->deadline_ns);
	if (r < 0)
		return r;
	r = verbs_answer_check(&a, lanes_max);
	if (r == -EPROTONOSUPPORT)
		*ret_why = verbs_formats_why("the mirror", get_be16(a.version));
	if (r < 0)
		return r;
	*ret_lanes = get_be16(a.lanes);
	*ret_window_bytes = get_be64(a.window_bytes);
	memcpy(d->token, a.token, sizeof(d->token));
	answer_address(&a, &d->to);
	if (d->to.sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&d->to.in6.sin6_addr) &&
	    verbs_address_of(d->control_fd, false, &control) == 0 &&
	    control.sa.sa_family == AF_INET6)
		d->to.in6.sin6_scope_id = control.in6.sin6_scope_id;
	return 0;
}

/* Where we dial from, if a device was chosen. */
static int choose_source(struct dial *d, const char **ret_why)
{
	char text[VERBS_TEXT_BYTES / 2];
	int err;

	if (verbs_choice_any(&d->ep->choice))
		return 0;
	err = verbs_address_pick(&d->ep->choice, &d->from, text, sizeof(text));
	if (err)
		*ret_why = verbs_why(-ENODEV, "this node has %s", text);
	return err;
}

static int dial_begin(struct dial *d, struct verbs_lane *l)
{
	struct sockaddr *from = d->from.sa.sa_family == AF_UNSPEC ? NULL : &d->from.sa;
	struct rdma_cm_id *id;

	if (rdma_create_id(d->ep->channel, &id, l, RDMA_PS_TCP) != 0)
		return -errno;
	l->id = id;
	return rdma_resolve_addr(id, from, &d->to.sa, RESOLVE_MS) == 0 ? 0 : -errno;
}

static int dial_connect_lane(struct dial *d, struct verbs_lane *l, const char **ret_why)
{
	struct verbs_lane_hello h = { 0 };
	struct rdma_conn_param param;
	int err = verbs_lane_open(l, l->id, ret_why);

	if (err)
		return err;
	verbs_id_tune(d->ep, l->id);
	put_be32(h.magic, VERBS_MAGIC_LANE);
	put_be16(h.version, VERBS_FORMAT_VERSION);
	put_be16(h.lane, (uint16_t)l->index);
	memcpy(h.token, d->token, sizeof(h.token));
	verbs_target_encode(d->ep, l->id, &h.target);
	put_be32(h.generation, d->generation);
	put_be32(h.attempt, d->attempt);
	param = verbs_conn_param(&h, sizeof(h));
	return rdma_connect(l->id, &param) == 0 ? 0 : -errno;
}

static int lane_established(struct verbs_lane *l, const struct rdma_cm_event *ev)
{
	struct verbs_lane_accept a;

	int err = verbs_accept_decode(ev->param.conn.private_data, ev->param.conn.private_data_len,
				      l->index, &a);

	if (err)
		return err;
	verbs_target_decode(l, &a.target);
	return verbs_lane_established(l);
}

/* One step of one lane. */
static int serve_event(struct dial *d, const struct rdma_cm_event *ev, const char **ret_why)
{
	struct verbs_lane *l = ev->id->context;

	if (ev->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
		d->ep->device_gone = true;
	if (!l)
		return 0;
	if (!(d->missing & 1ULL << l->index)) { /* of a lane that lives on beside it */
		verbs_lane_event(l, ev);
		return 0;
	}
	switch (ev->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		d->step = "find the way";
		return rdma_resolve_route(l->id, RESOLVE_MS) == 0 ? 0 : -errno;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		d->step = "connect";
		return dial_connect_lane(d, l, ret_why);
	case RDMA_CM_EVENT_ESTABLISHED:
		d->missing &= ~(1ULL << l->index);
		d->some = true;
		return lane_established(l, ev);
	default:
		return verbs_event_errno(ev);
	}
}

static int dial_missing(struct dial *d)
{
	int err = 0;

	for (unsigned i = 0; !err && i < d->ep->base.lanes; i++) {
		if (!(d->missing & 1ULL << i))
			continue;
		if (d->ep->lane[i].id)
			verbs_lane_recycle(&d->ep->lane[i]);
		err = dial_begin(d, &d->ep->lane[i]);
	}
	return err;
}

/* The next event; where none comes for a while, a message may have been lost. */
static int dial_wait(struct dial *d, struct rdma_cm_event **ret_ev)
{
	for (;;) {
		uint64_t end_ns = d->some ? d->deadline_ns : d->first_deadline_ns;
		uint64_t until_ns = clock_mono_ns() + d->quiet_ns;
		int err = verbs_cm_wait(d->ep, d->control_fd,
					until_ns < end_ns ? until_ns : end_ns, ret_ev);

		if (!err)
			return *ret_ev ? 0 : -EPROTO; /* the mirror can't be done before us */
		if (err != -ETIMEDOUT || until_ns >= end_ns)
			return err;
		d->quiet_ns *= 2;
		d->attempt++;
		err = dial_missing(d);
		if (err)
			return err;
	}
}

static int dial_lanes(struct dial *d, const char **ret_why)
{
	char to[INET6_ADDRSTRLEN] = "";
	const char *why = NULL;
	int err;

	inet_ntop(d->to.sa.sa_family,
		  d->to.sa.sa_family == AF_INET ? (void *)&d->to.in.sin_addr
						: (void *)&d->to.in6.sin6_addr,
		  to, sizeof(to));
	d->step = "find a device that leads";
	d->quiet_ns = DIAL_QUIET_NS;
	d->first_deadline_ns = clock_mono_ns() + DIAL_FIRST_NS;
	if (d->first_deadline_ns > d->deadline_ns)
		d->first_deadline_ns = d->deadline_ns;
	err = dial_missing(d);
	while (!err && d->missing) {
		struct rdma_cm_event *ev;

		err = dial_wait(d, &ev);
		if (err)
			break;
		err = serve_event(d, ev, &why);
		rdma_ack_cm_event(ev);
	}
	if (err)
		*ret_why = why ? why : verbs_why(err, "cannot %s to %s by RDMA", d->step, to);
	/* we, or the mirror, gave up while lanes still came */
	return d->some && (err == -ETIMEDOUT || err == -ECONNABORTED) ? -EAGAIN : err;
}

/* Tells the mirror how it went, and hears the same from it. */
static int dial_done(struct dial *d, int err, const char *mirror_why, const char **ret_why)
{
	int told = verbs_send_status(d->control_fd, err, d->deadline_ns);

	if (err)
		return err;
	*ret_why = mirror_why;
	return told ? told : verbs_recv_status(d->control_fd, d->deadline_ns);
}

static int connect_steps(struct dial *d, const struct transport_params *p, const char **ret_why)
{
	int err = choose_source(d, ret_why);

	if (err)
		return err;
	*ret_why = "the mirror did not answer the offer of lanes: it may have no RDMA device";
	err = send_offer(d->control_fd, p);
	if (!err)
		err = recv_answer(d, p->lanes, &d->ep->base.lanes, &d->ep->base.remote_bytes,
				  ret_why);
	if (err)
		return err;
	d->missing = (1ULL << d->ep->base.lanes) - 1;
	err = dial_lanes(d, ret_why);
	if (!err)
		err = verbs_ep_finish(d->ep);
	return dial_done(d, err, "the mirror gave up while the lanes were being connected",
			 ret_why);
}

int verbs_connect(int control_fd, const struct addr *peer, const struct transport_params *p,
		  struct transport_ep **ret_ep, const char **ret_why)
{
	struct dial d = { .control_fd = control_fd, .deadline_ns = p->deadline_ns };
	int err;

	(void)peer; /* the mirror tells where its device is */
	*ret_why = "lanes or window size out of range";
	if (transport_check_shape(p->lanes, p->window_bytes) < 0)
		return -EINVAL;
	d.ep = verbs_ep_alloc(p, ret_why);
	if (!d.ep)
		return -ENODEV;
	err = connect_steps(&d, p, ret_why);
	if (err) {
		verbs_close(&d.ep->base);
		return err;
	}
	*ret_ep = &d.ep->base;
	return 0;
}

static int connect_again(struct dial *d, const char **ret_why)
{
	struct transport_ep *base = &d->ep->base;
	uint64_t window_bytes;
	unsigned lanes;
	int err = choose_source(d, ret_why);

	if (err)
		return err;
	*ret_why = "the mirror did not say where to connect the lane to";
	err = recv_answer(d, base->lanes, &lanes, &window_bytes, ret_why);
	if (!err && (lanes != base->lanes || window_bytes != base->remote_bytes))
		err = -EPROTO;
	if (err)
		return err;
	err = dial_lanes(d, ret_why);
	return dial_done(d, err, "the mirror gave up while the lane was being connected", ret_why);
}

int verbs_lane_connect(struct transport_ep *base, int control_fd, const struct transport_relane *r,
		       const char **ret_why)
{
	struct verbs_ep *ep = (struct verbs_ep *)base;
	struct dial d = { .ep = ep,
			  .control_fd = control_fd,
			  .missing = 1ULL << r->lane,
			  .generation = r->generation,
			  .deadline_ns = r->deadline_ns };
	int err = verbs_lane_renew(ep, r->lane, ret_why);

	if (err)
		return err;
	err = connect_again(&d, ret_why);
	if (err)
		return err;
	verbs_lane_revive(&ep->lane[r->lane]);
	verbs_mtu_note(ep);
	return 0;
}
