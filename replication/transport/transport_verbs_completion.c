/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What completion queues bring, on the poll thread: notices into the sink, credits, room to post
 * again, and errors. The first completion that failed and was not merely flushed is the cause of
 * a lane's end; of a failed one only wr_id, status, qp_num and vendor_err are looked at.
 */
#include "replication/transport/transport_verbs_internal.h"

#include <errno.h>

#define SCAN_BATCH 16

/* A credit notice: the word in our memory says how many of our notices the peer has taken. */
static int credit_came(struct verbs_lane *l)
{
	uint32_t credited = credit_observe(verbs_credit_word(l->ep, l->index));
	int err = 0;

	pthread_mutex_lock(&l->tx_lock);
	if (l->sent - credited > TRANSPORT_CREDITS || credited - l->credited > TRANSPORT_CREDITS)
		err = -EPROTO;
	else
		l->credited = credited;
	pthread_mutex_unlock(&l->tx_lock);
	return err;
}

static int receive_came(struct verbs_lane *l, const struct ibv_wc *wc, struct transport_sink *s)
{
	uint32_t imm;

	if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM)
		return -EPROTO;
	l->receives_due++;
	imm = ntohl(wc->imm_data);
	if (imm == VERBS_IMM_CREDIT)
		return credit_came(l);
	if (imm == VERBS_IMM_OFFER || imm == VERBS_IMM_ANSWER)
		return l->index != 0	      ? -EPROTO :
		       imm == VERBS_IMM_OFFER ? verbs_datagram_offered(l->ep) :
						verbs_datagram_answered(l->ep);
	l->taken++;
	/* How long the record is, it says itself. */
	sink_add_notice(s, l->index, imm, 0, 0);
	return 0;
}

static void failed(struct verbs_lane *l, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_WR_FLUSH_ERR && !l->caused) {
		l->caused = true;
		l->down_err = verbs_status_errno(wc->status);
		verbs_status_why(wc, l->index, l->why, sizeof(l->why));
	}
	verbs_lane_leave(l, -ECONNRESET);
}

static void take(struct verbs_lane *l, const struct ibv_wc *wc, struct transport_sink *s)
{
	if (wc->wr_id & VERBS_WR_ID_RECEIVE) {
		assert(l->receives > 0);
		l->receives--;
	} else {
		pthread_mutex_lock(&l->tx_lock);
		verbs_sends_done_locked(l, (uint32_t)wc->wr_id);
		pthread_mutex_unlock(&l->tx_lock);
	}
	if (wc->status != IBV_WC_SUCCESS) {
		failed(l, wc);
	} else if (wc->wr_id & VERBS_WR_ID_RECEIVE) {
		int err = receive_came(l, wc, s);

		if (err)
			verbs_lane_leave(l, err);
	}
}

/* Everything there is, as far as the sink has room for notices. False: it is full. */
static bool drain(struct verbs_lane *l, struct transport_sink *s)
{
	struct ibv_wc wc[SCAN_BATCH];
	int want, n;

	do {
		want = s->max - s->count < SCAN_BATCH ? s->max - s->count : SCAN_BATCH;
		if (want == 0)
			return false;
		n = ibv_poll_cq(l->cq, want, wc);
		if (n < 0) {
			verbs_lane_leave(l, -EIO);
			return true;
		}
		completion_seen();
		for (int i = 0; i < n; i++)
			take(l, &wc[i], s);
	} while (n == want);
	return true;
}

/* Receives go back first: the peer may use a credit as soon as it has it. */
static void give_back(struct verbs_lane *l)
{
	int err;

	if (l->receives_due >= VERBS_RECEIVE_LIST || l->taken - l->told >= VERBS_CREDIT_EVERY) {
		uint32_t n = l->receives_due;

		l->receives_due = 0;
		err = n > 0 ? verbs_receives_post(l, n) : 0;
		if (err) {
			verbs_lane_leave(l, err);
			return;
		}
	}
	if (l->taken - l->told >= VERBS_CREDIT_EVERY) {
		uint32_t taken = l->taken;

		if (verbs_post_credit(l))
			l->told = taken;
	}
}

/* WRITABLE, if a post came back short and would now be taken. False: the sink is full. */
static bool tell_writable(struct verbs_lane *l, struct transport_sink *s)
{
	bool met = false;

	pthread_mutex_lock(&l->tx_lock);
	if (l->want.any && !sink_full(s)) {
		met = verbs_want_met_locked(l);
		if (!met)
			(void)verbs_marker_send_locked(l);
		else
			l->want.any = false;
	}
	pthread_mutex_unlock(&l->tx_lock);
	if (met)
		sink_add(s, TRANSPORT_EVENT_WRITABLE, l->index, 0);
	return !sink_full(s);
}

bool verbs_lane_scan(struct verbs_lane *l, struct transport_sink *s)
{
	if (l->down_reported)
		return true;
	if (!l->down) {
		bool all = drain(l, s);

		if (!l->leaving)
			give_back(l);
		if (!all)
			return false;
		if (!l->leaving)
			return tell_writable(l, s);
		if (l->receives > 0 && transport_now_ns() < l->drain_deadline_ns)
			return true;
		l->down = true;
		l->ep->lanes_down++;
	}
	if (sink_full(s))
		return false;
	sink_add(s, TRANSPORT_EVENT_LANE_DOWN, l->index, l->down_err);
	l->down_reported = true;
	return true;
}

void verbs_lane_arm(struct verbs_lane *l)
{
	if (l->armed || l->down)
		return;
	if (ibv_req_notify_cq(l->cq, 0) == 0)
		l->armed = true;
	else
		verbs_lane_leave(l, -EIO);
}
