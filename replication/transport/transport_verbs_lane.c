/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane's queue pair from its making to its end. A lane that fails, here or at the peer, first
 * has its queue pair put into the error state; once all its receives have come back flushed (or
 * a moment later) nothing more can arrive on it, and only then it is reported down. A queue pair
 * never comes back: a lane made anew has another, with a number and an id of its own.
 */
#include "replication/transport/transport_verbs_internal.h"

#include <errno.h>
#include <string.h>

#define MIN_RNR_TIMER 1 /* 10 us; rdma_cm would leave 655 ms */

int verbs_receives_post(struct verbs_lane *l, unsigned n)
{
	struct ibv_recv_wr wr[VERBS_RECEIVE_LIST], *bad;

	/* Without memory: what a notice brings is in the window. */
	while (n > 0) {
		unsigned k = n < VERBS_RECEIVE_LIST ? n : VERBS_RECEIVE_LIST;
		int err;

		for (unsigned i = 0; i < k; i++)
			wr[i] = (struct ibv_recv_wr){ .wr_id = VERBS_WR_ID_RECEIVE,
						      .next = i + 1 < k ? &wr[i + 1] : NULL };
		err = ibv_post_recv(l->id->qp, wr, &bad);
		if (err)
			return -err;
		l->receives += k;
		assert(l->receives <= VERBS_RECEIVES);
		n -= k;
	}
	return 0;
}

/* A queue pair with as much inline room and as many pieces a request as the device has. */
static int qp_create(struct verbs_lane *l, const struct ibv_device_attr *attr)
{
	static const unsigned inline_wanted[] = { VERBS_INLINE_WANTED, 64, 0 };
	unsigned sge =
		attr->max_sge < VERBS_SGE_WANTED ? (unsigned)attr->max_sge : VERBS_SGE_WANTED;
	int err = -EINVAL;

	for (unsigned i = 0; i < 3 && err; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = l->cq,
			.recv_cq = l->cq,
			.qp_type = IBV_QPT_RC,
			.qp_context = l,
			.cap = { .max_send_wr = VERBS_SQ_WRS,
				 .max_recv_wr = VERBS_RECEIVES,
				 .max_send_sge = sge,
				 .max_recv_sge = 1,
				 .max_inline_data = inline_wanted[i] },
		};

		err = rdma_create_qp(l->id, verbs_pd_handle(l->ep->pd), &init) == 0 ? 0 : -errno;
		if (err && err != -EINVAL && err != -ENOMEM)
			return err;
		if (!err) {
			l->inline_max = init.cap.max_inline_data;
			l->sge_max = init.cap.max_send_sge < VERBS_SGE_WANTED
					     ? init.cap.max_send_sge
					     : VERBS_SGE_WANTED;
		}
	}
	return err;
}

static int lane_check_device(const struct verbs_lane *l, const char **ret_why)
{
	const struct verbs_choice *c = &l->ep->choice;

	if (verbs_choice_any(c))
		return 0;
	if (strcmp(ibv_get_device_name(l->id->verbs->device), c->name) == 0 &&
	    (c->port == 0 || c->port == l->id->port_num))
		return 0;
	*ret_why = verbs_why(
		-ENODEV,
		"the way to the peer leads over %s port %u, not over the device chosen, %s",
		ibv_get_device_name(l->id->verbs->device), l->id->port_num, c->name);
	return -ENODEV;
}

/* A device that can't hold a lane says no more than "invalid argument" when it is asked for one. */
static int lane_check_limits(const struct ibv_context *ctx, const struct ibv_device_attr *attr,
			     const char **ret_why)
{
	if (attr->max_qp_wr >= VERBS_LANE_SEND_WRS && attr->max_cqe >= VERBS_LANE_CQES)
		return 0;
	*ret_why = verbs_why(-ENOTSUP, "%s allows %d requests a queue pair and %d entries a "
			     "completion queue, a lane needs %d and %d: use another device, or "
			     "transport=tcp", ibv_get_device_name(ctx->device), attr->max_qp_wr,
			     attr->max_cqe, VERBS_LANE_SEND_WRS, VERBS_LANE_CQES);
	return -ENOTSUP;
}

int verbs_lane_open(struct verbs_lane *l, struct rdma_cm_id *id, const char **ret_why)
{
	struct ibv_device_attr attr;
	int cqes = VERBS_LANE_CQES;
	int err;

	l->id = id;
	id->context = l;
	err = lane_check_device(l, ret_why);
	if (!err)
		err = verbs_ep_bind(l->ep, id, ret_why);
	if (err)
		return err;
	err = ibv_query_device(id->verbs, &attr);
	if (!err && lane_check_limits(id->verbs, &attr, ret_why) < 0)
		return -ENOTSUP;
	if (!err) {
		l->cq = ibv_create_cq(id->verbs, cqes, l, l->ep->comp, 0);
		err = l->cq ? 0 : errno;
	}
	if (err) {
		*ret_why = verbs_why(-err, "%s gives no completion queue of %d entries",
				     ibv_get_device_name(id->verbs->device), cqes);
		return -err;
	}
	err = qp_create(l, &attr);
	if (!err)
		err = verbs_receives_post(l, VERBS_RECEIVES);
	if (err)
		*ret_why = verbs_why(err, "%s gives no queue pair",
				     ibv_get_device_name(id->verbs->device));
	return err;
}

int verbs_lane_established(struct verbs_lane *l)
{
	struct ibv_qp_attr attr = { .min_rnr_timer = MIN_RNR_TIMER };
	int err = ibv_modify_qp(l->id->qp, &attr, IBV_QP_MIN_RNR_TIMER);

	l->established = err == 0;
	return -err;
}

void verbs_lane_kill(struct verbs_lane *l)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	hint_write(&l->tx_dead, 1);
	if (!l->id || !l->id->qp)
		return;
	(void)ibv_modify_qp(l->id->qp, &attr, IBV_QP_STATE);
	(void)rdma_disconnect(l->id);
}

void verbs_lane_leave(struct verbs_lane *l, int err)
{
	if (l->leaving || l->down)
		return;
	l->leaving = true;
	if (!l->caused)
		l->down_err = err;
	l->drain_deadline_ns = transport_now_ns() + VERBS_DRAIN_NS;
	verbs_lane_kill(l);
}

static void lane_free(struct verbs_lane *l)
{
	if (l->id && l->id->qp) {
		if (l->established)
			(void)rdma_disconnect(l->id);
		rdma_destroy_qp(l->id);
	}
	if (l->cq)
		(void)ibv_destroy_cq(l->cq);
	if (l->id)
		(void)rdma_destroy_id(l->id);
	l->id = NULL;
	l->cq = NULL;
}

void verbs_lane_close(struct verbs_lane *l)
{
	lane_free(l);
	pthread_mutex_destroy(&l->tx_lock);
}

void verbs_lane_recycle(struct verbs_lane *l)
{
	verbs_comp_events_take(l->ep);
	pthread_mutex_lock(&l->tx_lock);
	lane_free(l);
	l->posted = l->done = l->unsignalled = 0;
	l->unsignalled_from = l->stage_head = l->stage_tail = 0;
	l->signal_head = l->signal_tail = 0;
	l->sent = l->credited = 0;
	l->want = (struct verbs_want){ 0 };
	pthread_mutex_unlock(&l->tx_lock);
	l->established = l->armed = l->caused = false;
	l->receives = l->receives_due = l->taken = l->told = 0;
	l->why[0] = '\0';
	/* the peer's queue pair that wrote it is in the error state, ours is gone */
	if (l->ep->base.window)
		hint_write(verbs_credit_word(l->ep, l->index), 0);
}

int verbs_lane_renew(struct verbs_ep *ep, unsigned lane, const char **ret_why)
{
	assert(lane < ep->base.lanes && ep->lane[lane].down);
	if (ep->device_gone) {
		*ret_why = "the RDMA device is gone";
		return -ENODEV;
	}
	verbs_lane_recycle(&ep->lane[lane]);
	return 0;
}

void verbs_lane_revive(struct verbs_lane *l)
{
	l->leaving = l->down = l->down_reported = false;
	l->ep->lanes_down--;
	l->ep->peer_down_reported = false;
	hint_write(&l->tx_dead, 0);
	if (l->index == 0)
		verbs_datagrams_renew(l->ep);
}
