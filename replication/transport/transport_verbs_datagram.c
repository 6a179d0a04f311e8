/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datagrams over a UC queue pair each way, beside the RC lanes. Whoever wants them makes a queue
 * pair with receives and offers its number, on lane 0; the peer makes its own and answers. Nothing
 * is sent again: what is lost, or finds no receive, is gone. UC has been seen to stay silent for
 * good after a loss, so a receiver that is told of silence begins anew: new queue pairs on both
 * sides, of the next generation.
 *
 * The way to the peer is that of lane 0, as rdma_cm found it. At most one offer is unanswered, so
 * the lines behind the window are never overwritten unread, and two more receives on lane 0 are
 * enough for them.
 *
 * Threads: the poll thread. Nothing here blocks longer than making a queue pair takes.
 */
#include "replication/transport/transport_verbs_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#define SLOTS 8 /* of each direction */
#define MEMORY_BYTES (2 * SLOTS * TRANSPORT_DATAGRAM_BYTES)
static_assert(MEMORY_BYTES == 4096, "a page");

static uint8_t *slot_of(const struct verbs_datagrams *d, bool tx, uint64_t i)
{
	return d->memory + ((tx ? SLOTS : 0) + i % SLOTS) * TRANSPORT_DATAGRAM_BYTES;
}

static void uc_destroy(struct verbs_uc *u)
{
	if (u->qp)
		(void)ibv_destroy_qp(u->qp);
	if (u->cq)
		(void)ibv_destroy_cq(u->cq);
	*u = (struct verbs_uc){ 0 };
}

static int memory_open(struct verbs_ep *ep)
{
	struct verbs_datagrams *d = &ep->datagrams;
	void *at;

	if (d->mr)
		return 0;
	at = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return -ENOMEM;
	d->mr = ibv_reg_mr(verbs_pd_handle(ep->pd), at, MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE);
	if (!d->mr) {
		int err = errno ? -errno : -EIO;

		munmap(at, MEMORY_BYTES);
		return err;
	}
	d->memory = at;
	return 0;
}

/* How lane 0 reaches the peer. */
static int way(struct verbs_ep *ep, struct ibv_qp_attr *ret_attr)
{
	struct ibv_qp_init_attr init;
	int mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_PORT | IBV_QP_PKEY_INDEX;

	return -ibv_query_qp(ep->lane[0].id->qp, ret_attr, mask, &init);
}

static int uc_init(struct verbs_ep *ep, struct verbs_uc *u)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_UC,
		.cap = { .max_send_wr = SLOTS, .max_recv_wr = SLOTS,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr lane = { 0 }, attr = { .qp_state = IBV_QPS_INIT };
	int err = memory_open(ep);

	if (!err)
		err = way(ep, &lane);
	if (err)
		return err;
	u->cq = ibv_create_cq(ep->lane[0].id->verbs, 2 * SLOTS, NULL, NULL, 0);
	init.send_cq = init.recv_cq = u->cq;
	u->qp = u->cq ? ibv_create_qp(verbs_pd_handle(ep->pd), &init) : NULL;
	if (!u->qp)
		return errno ? -errno : -EIO;
	attr.port_num = lane.port_num;
	attr.pkey_index = lane.pkey_index;
	return -ibv_modify_qp(u->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						    IBV_QP_ACCESS_FLAGS);
}

static int uc_join(struct verbs_ep *ep, struct verbs_uc *u, const struct verbs_datagram *peer)
{
	struct ibv_qp_attr lane = { 0 }, attr = { .qp_state = IBV_QPS_RTR };
	int err = way(ep, &lane);

	if (err)
		return err;
	attr.ah_attr = lane.ah_attr;
	attr.path_mtu = lane.path_mtu;
	attr.dest_qp_num = peer->qpn;
	attr.rq_psn = peer->psn;
	return -ibv_modify_qp(u->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
}

static int receive_post(struct verbs_datagrams *d, uint64_t slot)
{
	struct ibv_sge sge = { .addr = (uintptr_t)slot_of(d, false, slot),
			       .length = TRANSPORT_DATAGRAM_BYTES, .lkey = d->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	return -ibv_post_recv(d->rx.qp, &wr, &bad);
}

static bool line_send(struct verbs_ep *ep, unsigned line, uint32_t imm,
		      const struct verbs_datagram *dg)
{
	uint8_t *out = verbs_line(ep, VERBS_LINE_OUT + (imm == VERBS_IMM_ANSWER));
	struct verbs_datagram_line w;

	verbs_datagram_encode(dg, &w);
	memcpy(out, &w, sizeof(w));
	return verbs_note_send(&ep->lane[0], line, out, sizeof(w), imm);
}

static void offer_send(struct verbs_ep *ep)
{
	struct verbs_datagrams *d = &ep->datagrams;
	struct verbs_datagram offer = { .generation = d->generation,
					.qpn = d->rx.qp ? d->rx.qp->qp_num : 0 };

	d->offer_due = !line_send(ep, VERBS_LINE_OFFER, VERBS_IMM_OFFER, &offer);
}

/* A queue pair of the next generation, and an offer of it. */
static void offer_make(struct verbs_ep *ep)
{
	struct verbs_datagrams *d = &ep->datagrams;
	int err;

	uc_destroy(&d->rx);
	err = uc_init(ep, &d->rx);
	for (unsigned i = 0; !err && i < SLOTS; i++)
		err = receive_post(d, i);
	if (err) {
		uc_destroy(&d->rx);
		d->rx_refused = true;
	}
	d->generation++;
	d->asked = true;
	offer_send(ep);
}

int verbs_datagram_answered(struct verbs_ep *ep)
{
	struct verbs_datagrams *d = &ep->datagrams;
	struct verbs_datagram dg;
	int err = verbs_datagram_decode(verbs_line(ep, VERBS_LINE_ANSWER), &dg);

	if (err || !d->asked || d->offer_due || dg.generation != d->generation)
		return -EPROTO;
	d->asked = false;
	d->rx_refused |= dg.qpn == 0;
	if (d->rx.qp && dg.qpn && uc_join(ep, &d->rx, &dg) != 0) {
		/* an offer of none, so that the peer doesn't send to it for ever */
		d->rx_refused = d->asked = true;
		uc_destroy(&d->rx);
		d->generation++;
		offer_send(ep);
	}
	if (d->rx_refused)
		uc_destroy(&d->rx);
	return 0;
}

static void answer_send(struct verbs_ep *ep)
{
	ep->datagrams.answer_due =
		!line_send(ep, VERBS_LINE_ANSWER, VERBS_IMM_ANSWER, &ep->datagrams.answer);
}

static int uc_tx_make(struct verbs_ep *ep, const struct verbs_datagram *offer)
{
	struct verbs_uc *u = &ep->datagrams.tx;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	int err = uc_init(ep, u);

	if (!err)
		err = uc_join(ep, u, offer);
	if (!err && getrandom(&attr.sq_psn, sizeof(attr.sq_psn), 0) != (ssize_t)sizeof(attr.sq_psn))
		err = -EIO;
	attr.sq_psn &= 0xFFFFFF;
	ep->datagrams.answer.psn = attr.sq_psn;
	return err ? err : -ibv_modify_qp(u->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

int verbs_datagram_offered(struct verbs_ep *ep)
{
	struct verbs_datagrams *d = &ep->datagrams;
	struct verbs_datagram offer;
	int err = verbs_datagram_decode(verbs_line(ep, VERBS_LINE_OFFER), &offer);

	/* a second one before its answer has gone would be one too many */
	if (err || d->answer_due || offer.generation == d->answer.generation)
		return -EPROTO;
	uc_destroy(&d->tx);
	d->answer = (struct verbs_datagram){ .generation = offer.generation };
	d->tx_refused = offer.qpn == 0 || uc_tx_make(ep, &offer) != 0;
	if (d->tx_refused)
		uc_destroy(&d->tx);
	d->answer.qpn = d->tx.qp ? d->tx.qp->qp_num : 0;
	answer_send(ep);
	return 0;
}

static void sends_done(struct verbs_uc *u)
{
	struct ibv_wc wc[SLOTS];
	int n = ibv_poll_cq(u->cq, SLOTS, wc);

	/* a failed one, too: the receiver's silence says the rest */
	u->done += n > 0 ? (uint32_t)n : 0;
	assert(u->posted - u->done <= SLOTS);
}

int verbs_datagram_send(struct transport_ep *base, const void *bytes, size_t len)
{
	struct verbs_ep *ep = (struct verbs_ep *)base;
	struct verbs_datagrams *d = &ep->datagrams;
	struct ibv_sge sge = { .length = (uint32_t)len };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (len == 0 || len > TRANSPORT_DATAGRAM_BYTES)
		return -EINVAL;
	if (d->answer_due)
		answer_send(ep);
	if (d->tx_refused)
		return -ENOTSUP;
	if (!d->tx.qp)
		return -ENOTCONN;
	sends_done(&d->tx);
	if (d->tx.posted - d->tx.done == SLOTS)
		return -EAGAIN;
	sge.addr = (uintptr_t)slot_of(d, true, d->tx.posted);
	sge.lkey = d->mr->lkey;
	memcpy(slot_of(d, true, d->tx.posted), bytes, len);
	if (ibv_post_send(d->tx.qp, &wr, &bad) != 0)
		return -EAGAIN;
	d->tx.posted++;
	return 0;
}

/* Takes what came; the newest of it into bytes. */
static int receive_newest(struct verbs_datagrams *d, void *bytes, size_t cap)
{
	struct ibv_wc wc[SLOTS];
	int n = ibv_poll_cq(d->rx.cq, SLOTS, wc), len = 0;

	completion_seen();
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS || wc[i].opcode != IBV_WC_RECV ||
		    wc[i].byte_len > cap || wc[i].wr_id >= SLOTS)
			continue; /* flushed, or nonsense: silence follows */
		len = (int)wc[i].byte_len;
		memcpy(bytes, slot_of(d, false, wc[i].wr_id), wc[i].byte_len);
		(void)receive_post(d, wc[i].wr_id);
	}
	return len;
}

int verbs_datagram_recv(struct transport_ep *base, void *bytes, size_t cap)
{
	struct verbs_ep *ep = (struct verbs_ep *)base;
	struct verbs_datagrams *d = &ep->datagrams;

	if (d->generation == 0)
		offer_make(ep);
	else if (d->offer_due)
		offer_send(ep);
	if (d->rx_refused)
		return -ENOTSUP;
	return d->rx.qp ? receive_newest(d, bytes, cap) : 0;
}

bool verbs_datagram_silent(struct transport_ep *base)
{
	struct verbs_ep *ep = (struct verbs_ep *)base;
	struct verbs_datagrams *d = &ep->datagrams;

	if (d->asked || d->rx_refused || d->generation == 0)
		return false;
	offer_make(ep);
	return true;
}

void verbs_datagrams_renew(struct verbs_ep *ep)
{
	struct verbs_datagrams *d = &ep->datagrams;

	d->answer_due = false; /* the peer asks again */
	if (!d->asked)
		return;
	if (!d->rx_refused) {
		offer_make(ep);
		return;
	}
	d->generation++;
	offer_send(ep);
}

void verbs_datagrams_close(struct verbs_ep *ep)
{
	struct verbs_datagrams *d = &ep->datagrams;

	uc_destroy(&d->rx);
	uc_destroy(&d->tx);
	if (d->mr)
		(void)ibv_dereg_mr(d->mr);
	if (d->memory)
		munmap(d->memory, MEMORY_BYTES);
}
