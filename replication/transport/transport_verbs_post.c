/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posting on a lane. A message is one WRITE_WITH_IMM, with WRITEs before it where it has more
 * pieces than one request takes; all of a batch goes to the queue pair in one list, with one
 * doorbell. Small messages lie inline in the request; bytes in registered memory of the arena
 * are sent from there; all others are copied into the lane's stage, a ring of registered memory.
 *
 * Every VERBS_SIGNAL_EVERY requests one is signalled. What may be reused (places in the send
 * queue, staged bytes) is counted here and nowhere else: a queue pair that returns places early
 * would hide a fault. When a post comes back short and nothing signalled is under way, an empty
 * WRITE follows to tell when there is room.
 */
#include "replication/transport/transport_verbs_internal.h"

#include <errno.h>
#include <string.h>

/* One message as it will be posted. Pieces with key 0 lie in the stage, addr counts from the
 * message's place. */
struct plan {
	struct ibv_sge sge[VERBS_POST_SGES];
	unsigned sges, wrs;
	uint64_t staged;
	uint32_t bytes;
	bool inlined;
};

static uint64_t stage_round(uint64_t bytes)
{
	return (bytes + VERBS_STAGE_ALIGN - 1) / VERBS_STAGE_ALIGN * VERBS_STAGE_ALIGN;
}

/* Where staged bytes of the next message begin. False: no room. */
static bool stage_place_locked(const struct verbs_lane *l, uint64_t bytes, uint64_t *ret_at)
{
	uint64_t head = l->stage_head, need = stage_round(bytes), at;

	if (head == l->stage_tail && head % l->stage_bytes + need > l->stage_bytes)
		head += l->stage_bytes -
			head % l->stage_bytes; /* empty: any place is the beginning */
	at = head % l->stage_bytes;
	if (at + need > l->stage_bytes)
		head += l->stage_bytes - at;
	if (l->stage_head == l->stage_tail ? need > l->stage_bytes
					   : head + need - l->stage_tail > l->stage_bytes)
		return false;
	*ret_at = head;
	return true;
}

static unsigned wrs_free_locked(const struct verbs_lane *l)
{
	uint32_t used = l->posted - l->done + VERBS_SQ_RESERVE;

	return used < VERBS_SQ_WRS ? VERBS_SQ_WRS - used : 0;
}

static void plan_add_staged(struct plan *pl, size_t len)
{
	if (pl->sges > 0 && pl->sge[pl->sges - 1].lkey == 0)
		pl->sge[pl->sges - 1].length += (uint32_t)len;
	else
		pl->sge[pl->sges++] =
			(struct ibv_sge){ .addr = pl->staged, .length = (uint32_t)len };
	pl->staged += len;
}

/* The pieces of a message; where there are too many, all of it is staged in one. */
static void plan_make(const struct verbs_lane *l, const struct transport_post *p,
		      struct plan *ret_pl)
{
	struct region_pool *memory = l->ep->memory_attached ? l->ep->memory : NULL;
	uint32_t bytes = 0, lkey;

	for (int i = 0; i < p->iovcnt; i++)
		bytes += (uint32_t)p->iov[i].iov_len;
	ret_pl->sges = 0;
	ret_pl->staged = 0;
	ret_pl->bytes = bytes;
	ret_pl->wrs = 1;
	ret_pl->inlined = bytes <= l->inline_max && p->iovcnt <= (int)l->sge_max;
	for (int i = 0; i < p->iovcnt; i++) {
		const struct iovec *v = &p->iov[i];

		if (v->iov_len == 0)
			continue;
		if (ret_pl->sges == VERBS_POST_SGES) {
			ret_pl->sges = 0;
			ret_pl->staged = 0;
			plan_add_staged(ret_pl, bytes);
			break;
		}
		if (ret_pl->inlined)
			ret_pl->sge[ret_pl->sges++] =
				(struct ibv_sge){ .addr = (uintptr_t)v->iov_base,
						  .length = (uint32_t)v->iov_len };
		else if (memory && v->iov_len >= VERBS_DIRECT_MIN &&
			 verbs_memory_lkey(memory, v->iov_base, v->iov_len, &lkey))
			ret_pl->sge[ret_pl->sges++] =
				(struct ibv_sge){ .addr = (uintptr_t)v->iov_base,
						  .length = (uint32_t)v->iov_len,
						  .lkey = lkey };
		else
			plan_add_staged(ret_pl, v->iov_len);
	}
	if (ret_pl->sges > l->sge_max)
		ret_pl->wrs = (ret_pl->sges + l->sge_max - 1) / l->sge_max;
}

/* The stage gets its bytes: those pieces of p that the plan did not find in registered memory. */
static void stage_fill_locked(struct verbs_lane *l, const struct transport_post *p, struct plan *pl,
			      uint64_t at)
{
	uint8_t *to = l->stage + at % l->stage_bytes;
	int i = 0;

	for (unsigned k = 0; k < pl->sges; k++) {
		struct ibv_sge *s = &pl->sge[k];
		uint32_t left = s->length;

		while (left > 0) {
			const struct iovec *v = &p->iov[i++];

			if (s->lkey == 0 && v->iov_len > 0)
				memcpy(to + s->addr + (s->length - left), v->iov_base, v->iov_len);
			left -= (uint32_t)v->iov_len;
		}
		if (s->lkey == 0) {
			s->addr += (uintptr_t)to;
			s->lkey = l->ep->stage_mr->lkey;
		}
	}
	l->stage_head = at + stage_round(pl->staged);
}

/* The list under construction, at l->wr and l->sge. */
struct list {
	unsigned wrs, sges;
};

static struct ibv_send_wr *list_add_locked(struct verbs_lane *l, struct list *li,
					   uint64_t remote_off)
{
	struct ibv_send_wr *wr = &l->wr[li->wrs];

	*wr = (struct ibv_send_wr){
		.wr_id = l->posted + li->wrs,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = l->remote_address + remote_off,
			     .rkey = l->remote_rkey },
	};
	if (li->wrs > 0)
		l->wr[li->wrs - 1].next = wr;
	li->wrs++;
	return wr;
}

static void list_add_post_locked(struct verbs_lane *l, struct list *li,
				 const struct transport_post *p, const struct plan *pl)
{
	uint64_t off = p->remote_off;
	unsigned k = 0;

	for (unsigned i = 0; i < pl->wrs; i++) {
		struct ibv_send_wr *wr = list_add_locked(l, li, off);

		wr->sg_list = &l->sge[li->sges];
		for (; k < pl->sges && wr->num_sge < (int)l->sge_max; k++) {
			l->sge[li->sges++] = pl->sge[k];
			off += pl->sge[k].length;
			wr->num_sge++;
		}
		if (i + 1 == pl->wrs) {
			wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
			wr->imm_data = htonl(p->imm);
			wr->send_flags = pl->inlined ? IBV_SEND_INLINE : 0;
		}
	}
}

static void signal_locked(struct verbs_lane *l, struct ibv_send_wr *wr)
{
	wr->send_flags |= IBV_SEND_SIGNALED;
	assert(l->signal_head - l->signal_tail < VERBS_SQ_WRS);
	l->signal[l->signal_head++ % VERBS_SQ_WRS] =
		(struct verbs_signal){ .wr = (uint32_t)wr->wr_id, .stage_end = l->stage_head };
	l->unsignalled = 0;
	l->unsignalled_from = l->stage_head;
}

/* Rings the doorbell. -ENOTCONN: the lane is dead now. */
static int list_send_locked(struct verbs_lane *l, struct list *li, bool signal_now)
{
	struct ibv_send_wr *bad;

	l->unsignalled += li->wrs;
	if (signal_now || l->unsignalled >= VERBS_SIGNAL_EVERY ||
	    l->stage_head - l->unsignalled_from >= l->stage_bytes / 4)
		signal_locked(l, &l->wr[li->wrs - 1]);
	l->posted += li->wrs;
	assert(l->posted - l->done <= VERBS_SQ_WRS);
	if (ibv_post_send(l->id->qp, l->wr, &bad) == 0) {
		*li = (struct list){ 0 };
		return 0;
	}
	verbs_lane_kill(l);
	return -ENOTCONN;
}

/* Somebody waits for room, and no completion is due that would tell of it: an empty WRITE brings
 * one. */
int verbs_marker_send_locked(struct verbs_lane *l)
{
	struct list li = { 0 };

	if (l->signal_head != l->signal_tail || l->posted == l->done || hint_read(&l->tx_dead))
		return 0;
	list_add_locked(l, &li, 0);
	return list_send_locked(l, &li, true);
}

bool verbs_want_met_locked(const struct verbs_lane *l)
{
	uint32_t left = TRANSPORT_CREDITS - (l->sent - l->credited);
	uint64_t at;

	return left > (l->want.control ? 0U : TRANSPORT_CREDITS_CONTROL) &&
	       wrs_free_locked(l) >= l->want.wrs && stage_place_locked(l, l->want.stage, &at);
}

/* Adds messages until the list is full or there is no room. Returns how many. */
static unsigned list_fill_locked(struct verbs_lane *l, struct list *li,
				 const struct transport_post *posts, unsigned n, struct plan *pl)
{
	unsigned k = 0;
	uint64_t at = 0;

	for (; k < n; k++) {
		plan_make(l, &posts[k], pl);
		if (li->wrs + pl->wrs > VERBS_LIST_WRS || li->sges + pl->sges > VERBS_LIST_SGES ||
		    li->wrs + pl->wrs > wrs_free_locked(l) ||
		    (pl->staged > 0 && !stage_place_locked(l, pl->staged, &at)))
			break;
		if (pl->staged > 0)
			stage_fill_locked(l, &posts[k], pl, at);
		list_add_post_locked(l, li, &posts[k], pl);
	}
	return k;
}

static int post_locked(struct verbs_lane *l, const struct transport_post *posts, unsigned n)
{
	unsigned k = transport_credits_allow(posts, n, l->sent, l->credited), done = 0;
	struct list li = { 0 };
	struct plan pl = { .wrs = 1 };

	while (done < k) {
		unsigned some = list_fill_locked(l, &li, posts + done, k - done, &pl);

		if (some == 0)
			break;
		done += some;
		l->sent += some;
		/* Earlier lists may have gone out, and the caller keeps none of these ops: their
		 * memory may change while the device still reads it. The queue pair is in the error
		 * state, so they are on their last way, and the mirror checks each record's sum;
		 * what it took of them it says (link_replace.c, perhaps_lsn). */
		if (list_send_locked(l, &li, false) < 0)
			return -ENOTCONN;
	}
	if (done == n)
		return (int)n;
	if (done == k) /* for want of credits */
		plan_make(l, &posts[done], &pl);
	l->want = (struct verbs_want){
		.any = true, .control = posts[done].control, .wrs = pl.wrs, .stage = pl.staged
	};
	return verbs_marker_send_locked(l) < 0 ? -ENOTCONN : (int)done;
}

int verbs_post(struct transport_ep *base, unsigned lane, const struct transport_post *posts,
	       unsigned n)
{
	struct verbs_ep *ep = (struct verbs_ep *)base;
	struct verbs_lane *l;
	uint32_t bytes;
	int r;

	if (transport_check_batch(base, lane, posts, n) < 0)
		return -EINVAL;
	l = &ep->lane[lane];
	for (unsigned i = 0; i < n; i++)
		if (transport_post_bytes(base, &posts[i], &bytes) < 0 || bytes > l->stage_bytes)
			return -EINVAL;
	pthread_mutex_lock(&l->tx_lock);
	r = hint_read(&l->tx_dead) ? -ENOTCONN : post_locked(l, posts, n);
	pthread_mutex_unlock(&l->tx_lock);
	return r;
}

bool verbs_note_send(struct verbs_lane *l, unsigned line, const void *from, uint32_t len,
		     uint32_t imm)
{
	struct list li = { 0 };
	struct ibv_send_wr *wr;
	bool sent = false;

	pthread_mutex_lock(&l->tx_lock);
	if (!hint_read(&l->tx_dead) && l->posted - l->done < VERBS_SQ_WRS - 1) {
		wr = list_add_locked(l, &li, l->ep->base.remote_bytes + line * VERBS_CREDIT_LINE);
		l->sge[0] = (struct ibv_sge){ .addr = (uintptr_t)from,
					      .length = len,
					      .lkey = l->ep->window_mr->lkey };
		wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr->imm_data = htonl(imm);
		wr->send_flags = l->inline_max >= len ? IBV_SEND_INLINE : 0;
		wr->sg_list = &l->sge[0];
		wr->num_sge = 1;
		sent = list_send_locked(l, &li, false) == 0;
	}
	pthread_mutex_unlock(&l->tx_lock);
	return sent;
}

bool verbs_post_credit(struct verbs_lane *l)
{
	/* Our own credit word is the peer's to write; the second half of its line is not used
	 * otherwise. */
	_Atomic uint32_t *taken =
		verbs_credit_word(l->ep, l->index) + VERBS_CREDIT_LINE / 2 / sizeof(*taken);

	hint_write(taken, l->taken);
	return verbs_note_send(l, l->index, taken, sizeof(*taken), VERBS_IMM_CREDIT);
}

void verbs_sends_done_locked(struct verbs_lane *l, uint32_t wr)
{
	/* In order, and never more than was posted. */
	assert(wr - l->done < l->posted - l->done);
	l->done = wr + 1;
	while (l->signal_tail != l->signal_head &&
	       (int32_t)(l->signal[l->signal_tail % VERBS_SQ_WRS].wr - wr) <= 0)
		l->stage_tail = l->signal[l->signal_tail++ % VERBS_SQ_WRS].stage_end;
}
