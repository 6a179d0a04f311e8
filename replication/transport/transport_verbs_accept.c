/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mirror's side of a verbs set-up: listens on an address of a device (of the control
 * connection's own, where that one leads over a device; else of the device chosen, or the first
 * that works) until the primary says that all lanes are connected, each with the token that went
 * over the control connection. Strangers are rejected. A lane whose messages were lost comes again
 * (transport_verbs_connect.c), with the next attempt's number, and replaces what there was of it.
 * Blocks, until params.deadline_ns.
 */
#include "common/byteorder.h"
#include "replication/transport/transport_verbs_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

/* Attempts that were given up wait in it, too, when the mirror has stood still. */
#define VERBS_BACKLOG (8 * TRANSPORT_LANES_MAX)

struct reception {
	struct verbs_ep *ep;
	struct rdma_cm_id *listener;
	int control_fd;
	uint64_t missing;    /* bit a lane that is still to come */
	uint32_t generation; /* of those */
	uint32_t attempt[TRANSPORT_LANES_MAX]; /* the first that is not known yet */
	uint64_t deadline_ns;
	uint8_t token[VERBS_TOKEN_BYTES];
};

/* The process has opened the device: from now on it hears when that is taken away. */
static int device_hold(struct rdma_cm_id *id)
{
	struct verbs_pd *pd;
	int err = verbs_pd_get(id, &pd);

	if (!err)
		verbs_pd_put(pd, false);
	return err;
}

static int listen_on(struct reception *c, union verbs_address *a)
{
	int err;

	if (a->sa.sa_family == AF_INET)
		a->in.sin_port = 0;
	else
		a->in6.sin6_port = 0;
	if (rdma_create_id(c->ep->channel, &c->listener, NULL, RDMA_PS_TCP) != 0)
		return -errno;
	/* Bound to an address without a device behind it, it would hear nothing. */
	if (rdma_bind_addr(c->listener, &a->sa) == 0 && c->listener->verbs &&
	    rdma_listen(c->listener, VERBS_BACKLOG) == 0)
		err = device_hold(c->listener);
	else
		err = c->listener->verbs ? -errno : -ENODEV;
	if (!err)
		return 0;
	rdma_destroy_id(c->listener);
	c->listener = NULL;
	return err;
}

static int listen_somewhere(struct reception *c, union verbs_address *ret_a, const char **ret_why)
{
	char text[VERBS_TEXT_BYTES / 2];
	union verbs_address a;
	int err = -ENODEV;

	if (verbs_choice_any(&c->ep->choice) && verbs_address_of(c->control_fd, false, &a) == 0)
		err = listen_on(c, &a);
	if (err) {
		err = verbs_address_pick(&c->ep->choice, &a, text, sizeof(text));
		if (err) {
			*ret_why = verbs_why(-ENODEV, "the mirror has %s", text);
			return -ENODEV;
		}
		err = listen_on(c, &a);
		if (err)
			*ret_why = verbs_why(err, "cannot listen on %s", text);
	}
	if (!err)
		*ret_a = a;
	return err;
}

static int recv_offer(struct reception *c, const struct transport_params *p, const char **ret_why)
{
	struct transport_ep *base = &c->ep->base;
	struct verbs_offer o;
	int r = setup_recv(c->control_fd, &o, sizeof(o), p->deadline_ns);

	*ret_why = "the primary sent no offer of lanes";
	if (r < 0)
		return r;
	*ret_why = "the primary's offer of lanes makes no sense";
	r = verbs_offer_decode(&o, &base->lanes, &base->remote_bytes);
	if (r == -EPROTONOSUPPORT)
		*ret_why = verbs_formats_why("the primary", get_be16(o.version));
	if (r < 0)
		return r;
	if (base->lanes > p->lanes)
		base->lanes = p->lanes;
	return 0;
}

static int send_answer(struct reception *c, const union verbs_address *a)
{
	struct verbs_answer w = { 0 };

	if (getrandom(c->token, sizeof(c->token), 0) != (ssize_t)sizeof(c->token))
		return -EIO;
	put_be32(w.magic, VERBS_MAGIC_ANSWER);
	put_be16(w.version, VERBS_FORMAT_VERSION);
	put_be16(w.lanes, (uint16_t)c->ep->base.lanes);
	put_be64(w.window_bytes, c->ep->base.window_bytes);
	put_be16(w.port, ntohs(rdma_get_src_port(c->listener)));
	memcpy(w.token, c->token, sizeof(w.token));
	if (a->sa.sa_family == AF_INET) {
		w.address[10] = w.address[11] = 0xFF;
		memcpy(w.address + 12, &a->in.sin_addr, 4);
	} else {
		memcpy(w.address, &a->in6.sin6_addr, sizeof(w.address));
	}
	return setup_send(c->control_fd, &w, sizeof(w), c->deadline_ns);
}

/* In time that does not depend on where they differ. */
static bool token_equal(const uint8_t *a, const uint8_t *b)
{
	uint8_t diff = 0;

	for (size_t i = 0; i < VERBS_TOKEN_BYTES; i++)
		diff |= a[i] ^ b[i];
	return diff == 0;
}

/* The lane a request is for. NULL: a stranger's. */
static struct verbs_lane *lane_of_request(struct reception *c, const struct rdma_cm_event *ev)
{
	struct verbs_lane_hello h;
	uint32_t attempt;
	unsigned lane;

	if (verbs_hello_decode(ev->param.conn.private_data, ev->param.conn.private_data_len,
			       &h) < 0)
		return NULL;
	lane = get_be16(h.lane);
	attempt = get_be32(h.attempt);
	if (lane >= c->ep->base.lanes || !(c->missing & 1ULL << lane) ||
	    attempt < c->attempt[lane] || attempt == UINT32_MAX ||
	    get_be32(h.generation) != c->generation || !token_equal(h.token, c->token))
		return NULL;
	c->attempt[lane] = attempt + 1;
	if (c->ep->lane[lane].id)
		verbs_lane_recycle(&c->ep->lane[lane]);
	verbs_target_decode(&c->ep->lane[lane], &h.target);
	return &c->ep->lane[lane];
}

/* The lane can't be let in. -EINVAL, from any step: the primary has given that attempt up already,
 * and comes again; if it is the device, its time runs out with *ret_why. */
static int turn_away(struct verbs_lane *l, int err)
{
	if (err != -EINVAL)
		return err;
	verbs_lane_recycle(l);
	return 0;
}

/* A lane asks to come in. Takes the event. */
static int admit(struct reception *c, struct rdma_cm_event *ev, const char **ret_why)
{
	struct verbs_lane *l = lane_of_request(c, ev);
	struct rdma_cm_id *id = ev->id;
	struct verbs_lane_accept a = { 0 };
	struct rdma_conn_param param;
	int err;

	rdma_ack_cm_event(ev);
	id->context = NULL;
	if (!l) {
		(void)rdma_reject(id, NULL, 0);
		(void)rdma_destroy_id(id);
		return 0;
	}
	err = verbs_lane_open(l, id, ret_why);
	if (err) {
		(void)rdma_reject(id, NULL, 0);
		return turn_away(l, err);
	}
	verbs_id_tune(c->ep, id);
	put_be32(a.magic, VERBS_MAGIC_LANE);
	put_be16(a.version, VERBS_FORMAT_VERSION);
	put_be16(a.lane, (uint16_t)l->index);
	verbs_target_encode(c->ep, id, &a.target);
	param = verbs_conn_param(&a, sizeof(a));
	if (rdma_accept(id, &param) == 0)
		return 0;
	err = -errno;
	*ret_why = verbs_why(err, "cannot accept a lane");
	return turn_away(l, err);
}

static int serve_event(struct reception *c, struct rdma_cm_event *ev, const char **ret_why)
{
	struct verbs_lane *l = ev->id->context;
	struct rdma_cm_event copy = *ev;
	int err = 0;

	if (copy.event == RDMA_CM_EVENT_CONNECT_REQUEST)
		return admit(c, ev, ret_why);
	if (copy.event != RDMA_CM_EVENT_ESTABLISHED)
		err = verbs_event_errno(ev);
	if (copy.event == RDMA_CM_EVENT_DEVICE_REMOVAL)
		c->ep->device_gone = true;
	rdma_ack_cm_event(ev);
	if (!l) /* a stranger's, or the listener's device went */
		return copy.event == RDMA_CM_EVENT_DEVICE_REMOVAL ? -ENODEV : 0;
	if (!(c->missing & 1ULL << l->index)) { /* of a lane that lives on beside it */
		verbs_lane_event(l, &copy);
		return 0;
	}
	if (err == -ENODEV) {
		*ret_why = verbs_why(err, "lane %u failed while it was set up", l->index);
		return err;
	}
	if (err) { /* the primary gave that attempt up, or will */
		verbs_lane_recycle(l);
		return 0;
	}
	c->missing &= ~(1ULL << l->index);
	return verbs_lane_established(l);
}

/* The primary says that all are connected: of what is still missing the message that says so was
 * lost, which rdma_cm would send again some seconds later. */
static int receive_rest(struct reception *c)
{
	int err = 0;

	for (unsigned i = 0; !err && i < c->ep->base.lanes; i++) {
		if (!(c->missing & 1ULL << i))
			continue;
		err = c->ep->lane[i].id ? verbs_lane_established(&c->ep->lane[i]) : -EPROTO;
	}
	c->missing = 0;
	return err;
}

static int receive_lanes(struct reception *c, const char **ret_why)
{
	struct rdma_cm_event *ev;
	int err;

	for (;;) {
		err = verbs_cm_wait(c->ep, c->control_fd, c->deadline_ns, &ev);
		if (err)
			return err;
		if (!ev)
			return receive_rest(c);
		err = serve_event(c, ev, ret_why);
		if (err)
			return err;
	}
}

/* Until all that is missing is here. */
static int receive(struct reception *c, const char **ret_why)
{
	union verbs_address a;
	int err = listen_somewhere(c, &a, ret_why);

	if (err)
		return err;
	*ret_why = "the primary's lanes did not all arrive";
	err = send_answer(c, &a);
	return err ? err : receive_lanes(c, ret_why);
}

/* Nobody listens any more, and the primary hears how it went. */
static int reception_end(struct reception *c, int err, const char **ret_why)
{
	if (c->listener)
		(void)rdma_destroy_id(c->listener);
	if (!err)
		*ret_why = "the control connection broke";
	if (verbs_send_status(c->control_fd, err, c->deadline_ns) < 0 && !err)
		err = -ECONNRESET;
	return err;
}

static int accept_steps(struct reception *c, const struct transport_params *p, const char **ret_why)
{
	int err = recv_offer(c, p, ret_why);

	if (!err) {
		c->missing = (1ULL << c->ep->base.lanes) - 1;
		err = receive(c, ret_why);
	}
	return err ? err : verbs_ep_finish(c->ep);
}

int verbs_accept(int control_fd, const struct transport_params *p, struct transport_ep **ret_ep,
		 const char **ret_why)
{
	struct reception c = { .control_fd = control_fd, .deadline_ns = p->deadline_ns };
	int err;

	*ret_why = "lanes or window size out of range";
	if (transport_check_shape(p->lanes, p->window_bytes) < 0)
		return -EINVAL;
	c.ep = verbs_ep_alloc(p, ret_why);
	if (!c.ep)
		return -ENODEV;
	err = reception_end(&c, accept_steps(&c, p, ret_why), ret_why);
	if (err) {
		verbs_close(&c.ep->base);
		return err;
	}
	*ret_ep = &c.ep->base;
	return 0;
}

int verbs_lane_accept(struct transport_ep *base, int control_fd, const struct transport_relane *r,
		      const char **ret_why)
{
	struct verbs_ep *ep = (struct verbs_ep *)base;
	struct reception c = { .ep = ep,
			       .control_fd = control_fd,
			       .missing = 1ULL << r->lane,
			       .generation = r->generation,
			       .deadline_ns = r->deadline_ns };
	int err = verbs_lane_renew(ep, r->lane, ret_why);

	if (err)
		return err;
	err = reception_end(&c, receive(&c, ret_why), ret_why);
	if (err)
		return err;
	verbs_lane_revive(&ep->lane[r->lane]);
	verbs_mtu_note(ep);
	return 0;
}
