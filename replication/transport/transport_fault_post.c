/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fault injector's post side: which posts are late, spoiled, cut short or end their lane. Posts
 * that are to be late are copied and handed to the inner transport by a thread ("kv-fault") when
 * their time has come; nothing overtakes them on their lane.
 */
#include "replication/transport/transport_fault_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* splitmix64 (Steele, Lea, Flood 2014) */
static uint64_t next_random(struct fault_ep *ep)
{
	uint64_t z = ep->random += 0x9E3779B97F4A7C15ULL;

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
	return z ^ (z >> 31);
}

static bool roll(struct fault_ep *ep, unsigned permille)
{
	return permille > 0 && next_random(ep) % 1000 < permille;
}

void fault_drop_held_locked(struct fault_lane *l)
{
	struct held *h, *tmp;

	cds_list_for_each_entry_safe(h, tmp, &l->held, node)
		free(h);
	CDS_INIT_LIST_HEAD(&l->held);
	l->held_count = 0;
}

static void flip_bit(struct fault_ep *ep, struct held *h)
{
	uint64_t bit = next_random(ep);

	if (h->len > 0)
		h->bytes[bit % h->len] ^= (uint8_t)(1U << (bit >> 61));
}

/* Copies a post to the end of the lane's list. -ENOMEM. */
static int hold_locked(struct fault_ep *ep, struct fault_lane *l, const struct transport_post *p,
		       uint64_t delay_ns, bool corrupt)
{
	uint32_t bytes = 0;
	struct held *h;

	(void)transport_post_bytes(&ep->base, p, &bytes);
	h = malloc(sizeof(*h) + bytes);
	if (h == NULL)
		return -ENOMEM;
	h->due_ns = transport_now_ns() + delay_ns;
	h->off = p->remote_off;
	h->imm = p->imm;
	h->control = p->control;
	h->len = 0;
	for (int i = 0; i < p->iovcnt; i++) {
		memcpy(h->bytes + h->len, p->iov[i].iov_base, p->iov[i].iov_len);
		h->len += p->iov[i].iov_len;
	}
	if (corrupt)
		flip_bit(ep, h);
	cds_list_add_tail(&h->node, &l->held);
	l->held_count++;
	pthread_cond_signal(&ep->cond);
	return 0;
}

/* Hands over what is due on a lane; returns when the next is, UINT64_MAX if nothing waits for
 * time. */
static uint64_t pump_locked(struct fault_ep *ep, unsigned lane, uint64_t now_ns)
{
	struct fault_lane *l = &ep->lane[lane];

	while (!cds_list_empty(&l->held) && !l->blocked) {
		struct held *h = cds_list_first_entry(&l->held, struct held, node);
		struct iovec iov = { .iov_base = h->bytes, .iov_len = h->len };
		struct transport_post p = { .iov = &iov, .iovcnt = 1, .remote_off = h->off,
					    .imm = h->imm, .control = h->control };
		int r;

		if (h->due_ns > now_ns)
			return h->due_ns;
		r = ep->inner->ops->post(ep->inner, lane, &p, 1);
		if (r < 0) {
			fault_drop_held_locked(l);
		} else if (r == 0) {
			l->blocked = true;
		} else {
			cds_list_del(&h->node);
			free(h);
			l->held_count--;
		}
	}
	if (l->withheld && l->held_count == 0)
		ep->inner->ops->wake(ep->inner);
	return UINT64_MAX;
}

void *fault_main(void *arg)
{
	struct fault_ep *ep = arg;

	pthread_mutex_lock(&ep->lock);
	while (!ep->stop) {
		uint64_t now_ns = transport_now_ns(), next_ns = UINT64_MAX;

		for (unsigned i = 0; i < ep->base.lanes; i++) {
			uint64_t due_ns = pump_locked(ep, i, now_ns);

			if (due_ns < next_ns)
				next_ns = due_ns;
		}
		if (next_ns == UINT64_MAX) {
			pthread_cond_wait(&ep->cond, &ep->lock);
		} else {
			struct timespec ts = transport_timespec(next_ns);

			pthread_cond_timedwait(&ep->cond, &ep->lock, &ts);
		}
	}
	pthread_mutex_unlock(&ep->lock);
	return NULL;
}

/* The faults that end lanes. True: this post is lost with its lane. */
static bool end_lanes_locked(struct fault_ep *ep, unsigned lane)
{
	bool all, one;

	ep->posts++;
	all = ep->posts == ep->plan.peer_gone_at;
	one = ep->posts == ep->plan.kill_lane_at ||
	      (ep->plan.kill_lane_every && ep->posts % ep->plan.kill_lane_every == 0);
	for (unsigned i = 0; i < ep->base.lanes; i++)
		if (all || (one && i == lane))
			ep->inner->ops->kill_lane(ep->inner, i);
	return all || one;
}

/* One post: now, later, or not. 1 taken, 0 not, -ENOTCONN. */
static int post_one_locked(struct fault_ep *ep, unsigned lane, const struct transport_post *p)
{
	struct fault_lane *l = &ep->lane[lane];
	unsigned held_max = TRANSPORT_FAULT_HELD_MAX + (p->control ? TRANSPORT_CREDITS_CONTROL : 0);
	bool late, corrupt;

	if (l->held_count >= held_max) {
		l->withheld = true;
		return 0;
	}
	late = roll(ep, ep->plan.delay_permille);
	corrupt = roll(ep, ep->plan.corrupt_permille);
	if (end_lanes_locked(ep, lane))
		return -ENOTCONN;
	if (!late && !corrupt && l->held_count == 0)
		return ep->inner->ops->post(ep->inner, lane, p, 1);
	if (hold_locked(ep, l, p, late ? next_random(ep) % (ep->plan.delay_max_ns + 1) : 0,
			corrupt) < 0) {
		l->withheld = true;
		return 0;
	}
	return 1;
}

/* As a doorbell that is dear: the caller's processor is busy with it. */
static void spend(uint64_t ns)
{
	uint64_t until_ns = ns ? transport_now_ns() + ns : 0;

	while (until_ns && transport_now_ns() < until_ns)
		;
}

int fault_post(struct transport_ep *base, unsigned lane, const struct transport_post *posts,
	       unsigned n)
{
	struct fault_ep *ep = (struct fault_ep *)base;
	unsigned done = 0, limit = n;
	int r = 0;

	if (transport_check_batch(base, lane, posts, n) < 0)
		return -EINVAL;
	spend(ep->plan.post_ns);
	pthread_mutex_lock(&ep->lock);
	if (n > 0 && roll(ep, ep->plan.short_permille)) {
		limit = (unsigned)(next_random(ep) % n);
		ep->lane[lane].withheld = true;
	}
	if (limit == n && n > 0 && ep->plan.delay_permille + ep->plan.corrupt_permille +
	    ep->plan.kill_lane_at + ep->plan.kill_lane_every + ep->plan.peer_gone_at == 0) {
		r = ep->inner->ops->post(ep->inner, lane, posts, n);
		done = r > 0 ? (unsigned)r : 0;
	} else {
		while (done < limit && (r = post_one_locked(ep, lane, &posts[done])) > 0)
			done++;
	}
	pthread_mutex_unlock(&ep->lock);
	return r < 0 ? r : (int)done;
}
