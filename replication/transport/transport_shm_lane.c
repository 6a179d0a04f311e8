/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lane of the shm transport. Posting copies into the peer's window and publishes ring entries;
 * receiving takes entries and gives their slots (the credits) back. Every index, place and length
 * read from shared memory is read once and checked: a peer that writes nonsense there loses the
 * lane (-EPROTO).
 */
#include "replication/transport/transport_shm_internal.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RING_MASK (TRANSPORT_CREDITS - 1)

void shm_wake_owner(struct shm_head *head)
{
	if (sleep_check(&head->sleeping) != 0 && sleep_take(&head->sleeping) != 0)
		syscall(SYS_futex, &head->sleeping, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void shm_lane_kill(struct shm_lane *l)
{
	hint_write(&l->tx_dead, 1);
	notice_publish(&l->out->down, 1);
	shm_wake_owner(l->ep->peer_head);
	shm_wake_owner(l->ep->head);
}

/* Reads how far the peer has taken our notices. -EPROTO: further than they go. */
static int tail_read(struct shm_lane *l, uint32_t *ret_tail)
{
	uint32_t head = hint_read(&l->tx_head), tail = credit_observe(&l->out->tail);

	if (head - tail > TRANSPORT_CREDITS)
		return -EPROTO;
	*ret_tail = tail;
	return 0;
}

/* How many posts the credits allow, as last seen or as they are now. Where that is short: asks to
 * be woken, then looks once more, so that a WRITABLE event is certain. -EPROTO. */
static int allowed(struct shm_lane *l, const struct transport_post *posts, unsigned n)
{
	uint32_t head = hint_read(&l->tx_head);
	unsigned k = transport_credits_allow(posts, n, head, l->tx_tail);

	if (k == n)
		return (int)n;
	if (tail_read(l, &l->tx_tail) < 0)
		return -EPROTO;
	k = transport_credits_allow(posts, n, head, l->tx_tail);
	if (k == n)
		return (int)n;
	sleep_announce(&l->want, posts[k].control ? WANT_CONTROL_CREDIT : WANT_CREDIT);
	sleep_announce(&l->out->waiting, 1);
	if (tail_read(l, &l->tx_tail) < 0)
		return -EPROTO;
	return (int)transport_credits_allow(posts, n, head, l->tx_tail);
}

static void put(struct shm_lane *l, const struct transport_post *p, uint32_t index)
{
	struct shm_entry *e = &l->out->entry[index & RING_MASK];
	uint8_t *to = l->ep->peer_window + p->remote_off;
	uint64_t len = 0;

	for (int i = 0; i < p->iovcnt; i++) {
		if (p->iov[i].iov_len > 0)
			memcpy(to + len, p->iov[i].iov_base, p->iov[i].iov_len);
		len += p->iov[i].iov_len;
	}
	/* Ordered by the publication of head. */
	atomic_store_explicit(&e->off, p->remote_off, memory_order_relaxed);
	atomic_store_explicit(&e->len_imm, len << 32 | p->imm, memory_order_relaxed);
}

int shm_post(struct transport_ep *base, unsigned lane, const struct transport_post *posts,
	     unsigned n)
{
	struct shm_ep *ep = (struct shm_ep *)base;
	struct shm_lane *l;
	uint32_t head;
	int k;

	if (transport_check_batch(base, lane, posts, n) < 0)
		return -EINVAL;
	l = &ep->lane[lane];
	if (hint_read(&l->tx_dead) != 0)
		return -ENOTCONN;
	k = allowed(l, posts, n);
	if (k < 0) {
		shm_lane_kill(l);
		return -ENOTCONN;
	}
	if (k == 0)
		return 0;
	head = hint_read(&l->tx_head);
	for (int i = 0; i < k; i++)
		put(l, &posts[i], head + (uint32_t)i);
	hint_write(&l->tx_head, head + (uint32_t)k);
	notice_publish(&l->out->head, head + (uint32_t)k);
	shm_wake_owner(ep->peer_head);
	return k;
}

/* Entries into the sink, their slots back to the peer. Bytes of later posts may land in the window
 * meanwhile. */
static int take(struct shm_lane *l, struct transport_sink *s)
{
	uint32_t head = notice_observe(&l->in->head), first = l->rx_tail;

	if (head - first > TRANSPORT_CREDITS)
		return -EPROTO;
	while (l->rx_tail != head && !sink_full(s)) {
		struct shm_entry *e = &l->in->entry[l->rx_tail & RING_MASK];
		uint64_t off = atomic_load_explicit(&e->off, memory_order_relaxed);
		uint64_t len_imm = atomic_load_explicit(&e->len_imm, memory_order_relaxed);

		if (!transport_in_window(off, len_imm >> 32, l->ep->base.window_bytes))
			return -EPROTO;
		sink_add_notice(s, l->index, (uint32_t)len_imm, off, (uint32_t)(len_imm >> 32));
		l->rx_tail++;
	}
	if (l->rx_tail == first)
		return 0;
	credit_return(&l->in->tail, l->rx_tail);
	if (sleep_check(&l->in->waiting) != 0 && sleep_take(&l->in->waiting) != 0)
		shm_wake_owner(l->ep->peer_head);
	return 0;
}

static void lane_down(struct shm_lane *l, int err)
{
	l->down = true;
	l->down_err = err;
	l->ep->lanes_down++;
	shm_lane_kill(l);
}

void shm_lane_reset(struct shm_lane *l)
{
	notice_publish(&l->out->head, 0);
	sleep_announce(&l->out->waiting, 0);
	notice_publish(&l->out->down, 0);
	credit_return(&l->in->tail, 0);
	hint_write(&l->tx_head, 0);
	l->tx_tail = l->rx_tail = 0;
	sleep_take(&l->want);
}

void shm_lane_reopen(struct shm_lane *l)
{
	l->down = l->down_reported = false;
	l->ep->lanes_down--;
	l->ep->peer_down_reported = false;
	hint_write(&l->tx_dead, 0);
}

/* The credits that a short post waits for are there. Where not, the peer is asked (again: its first
 * wake may have been for fewer than are needed) to wake us when it takes more. */
static bool credits_came(struct shm_lane *l, uint32_t need)
{
	for (int look = 0; look < 2; look++) {
		uint32_t tail;

		if (tail_read(l, &tail) < 0)
			return false;
		if (TRANSPORT_CREDITS - (hint_read(&l->tx_head) - tail) > need)
			return true;
		if (sleep_check(&l->out->waiting) != 0)
			return false;
		sleep_announce(&l->out->waiting, 1);
	}
	return false;
}

/* WRITABLE, if a post came back short and would now be taken. */
static bool tell_writable(struct shm_lane *l, struct transport_sink *s)
{
	uint32_t want = sleep_check(&l->want);

	if (want == 0 ||
	    !credits_came(l, want == WANT_CONTROL_CREDIT ? 0 : TRANSPORT_CREDITS_CONTROL))
		return true;
	if (sink_full(s))
		return false;
	sleep_take(&l->want);
	sink_add(s, TRANSPORT_EVENT_WRITABLE, l->index, 0);
	return true;
}

bool shm_lane_scan(struct shm_lane *l, struct transport_sink *s)
{
	/* Before the entries: what was published before the lane went down is still taken. */
	bool ended = notice_observe(&l->in->down) != 0 || hint_read(&l->tx_dead) != 0 ||
		     l->ep->peer_gone;
	int r;

	if (l->down_reported)
		return true;
	r = l->down ? 0 : take(l, s);
	if (r < 0)
		lane_down(l, r);
	if (!l->down && sink_full(s))
		return false;
	if (!l->down && ended)
		lane_down(l, l->ep->peer_gone ? l->ep->peer_err : -ECONNRESET);
	if (!l->down)
		return tell_writable(l, s);
	if (sink_full(s))
		return false;
	sink_add(s, TRANSPORT_EVENT_LANE_DOWN, l->index, l->down_err);
	l->down_reported = true;
	return true;
}
