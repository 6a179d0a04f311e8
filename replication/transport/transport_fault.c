/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fault injector. Posts that are to be late are copied and handed to the inner transport by a
 * thread ("kv-fault") when their time has come; nothing overtakes them on their lane. One lock for
 * everything: posting threads, the poll thread and kv-fault; the inner transport's post, which
 * never blocks, is called under it.
 */
#include "replication/transport/transport_fault.h"

#include "common/thread.h"
#include "replication/transport/transport_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <urcu/list.h>

struct held {
	struct cds_list_head node;
	uint64_t due_ns, off;
	uint32_t imm;
	bool control;
	size_t len;
	uint8_t bytes[];
};

struct fault_lane {
	struct cds_list_head held;
	unsigned held_count;
	bool blocked;   /* inner had no credits: wait for its WRITABLE */
	bool withheld;  /* a post came back short because of us: say WRITABLE */
};

/* All members but the fixed ones under lock. */
struct fault_ep {
	struct transport_ep base;       /* fixed */
	struct transport_ep *inner;     /* fixed */
	struct transport_fault_plan plan; /* fixed */
	pthread_mutex_t lock;
	pthread_cond_t cond;            /* kv-fault: held or stop or blocked changed */
	pthread_t thread;
	bool stop, woken;
	uint64_t random, posts, notices, stall_until_ns;
	struct fault_lane lane[TRANSPORT_LANES_MAX];
};

static const struct transport_ops *use_inner = &transport_tcp_ops;
static struct transport_fault_plan use_plan;

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

static void drop_held_locked(struct fault_lane *l)
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

/* Hands over what is due on a lane; returns when the next is, UINT64_MAX if nothing
 * waits for time. */
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
			drop_held_locked(l);
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

static void *fault_main(void *arg)
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

static int fault_post(struct transport_ep *base, unsigned lane, const struct transport_post *posts,
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

/* Waits out a stalled receiver. True: the timeout or a wake came first. */
static bool stall_locked(struct fault_ep *ep, uint64_t deadline_ns)
{
	while (!ep->woken) {
		uint64_t now_ns = transport_now_ns();
		uint64_t until_ns = ep->stall_until_ns < deadline_ns ? ep->stall_until_ns :
								       deadline_ns;
		struct timespec ts = transport_timespec(until_ns);

		if (now_ns >= ep->stall_until_ns)
			return false;
		if (now_ns >= deadline_ns)
			return true;
		pthread_cond_timedwait(&ep->cond, &ep->lock, &ts);
	}
	return true;
}

static void note_event_locked(struct fault_ep *ep, const struct transport_event *ev)
{
	struct fault_lane *l = &ep->lane[ev->lane];

	switch (ev->kind) {
	case TRANSPORT_EVENT_NOTICE:
		if (++ep->notices == ep->plan.stall_at)
			ep->stall_until_ns = transport_now_ns() + ep->plan.stall_ns;
		break;
	case TRANSPORT_EVENT_WRITABLE:
		l->blocked = false;
		pthread_cond_broadcast(&ep->cond);
		break;
	case TRANSPORT_EVENT_LANE_DOWN:
		drop_held_locked(l);
		l->withheld = false;
		break;
	case TRANSPORT_EVENT_PEER_DOWN:
		break;
	}
}

static void add_writable_locked(struct fault_ep *ep, struct transport_sink *s)
{
	for (unsigned i = 0; i < ep->base.lanes && !sink_full(s); i++) {
		struct fault_lane *l = &ep->lane[i];

		if (!l->withheld || l->held_count > TRANSPORT_FAULT_HELD_MAX / 2)
			continue;
		l->withheld = false;
		sink_add(s, TRANSPORT_EVENT_WRITABLE, i, 0);
	}
}

/* A wake of the inner endpoint may be ours (kv-fault's), so the caller's is kept apart. */
static int fault_poll(struct transport_ep *base, struct transport_event *ret_events, int max,
		      uint64_t timeout_ns)
{
	struct fault_ep *ep = (struct fault_ep *)base;
	struct transport_sink s = { .events = ret_events, .max = max };
	uint64_t deadline_ns = transport_deadline(transport_now_ns(), timeout_ns);

	if (max <= 0)
		return 0;
	pthread_mutex_lock(&ep->lock);
	for (;;) {
		uint64_t now_ns, wait_ns;

		if (stall_locked(ep, deadline_ns))
			break;
		add_writable_locked(ep, &s);
		now_ns = transport_now_ns();
		wait_ns = s.count > 0 || now_ns >= deadline_ns ? 0 : deadline_ns - now_ns;
		if (!sink_full(&s)) {
			int n;

			pthread_mutex_unlock(&ep->lock);
			n = ep->inner->ops->poll(ep->inner, ret_events + s.count, max - s.count,
						 wait_ns);
			pthread_mutex_lock(&ep->lock);
			for (int i = 0; i < n; i++)
				note_event_locked(ep, &ret_events[s.count++]);
		}
		if (s.count > 0 || ep->woken || transport_now_ns() >= deadline_ns)
			break;
	}
	ep->woken = false;
	pthread_mutex_unlock(&ep->lock);
	return s.count;
}

static void fault_wake(struct transport_ep *base)
{
	struct fault_ep *ep = (struct fault_ep *)base;

	pthread_mutex_lock(&ep->lock);
	ep->woken = true;
	pthread_cond_broadcast(&ep->cond);
	pthread_mutex_unlock(&ep->lock);
	ep->inner->ops->wake(ep->inner);
}

static void fault_set_poll_us(struct transport_ep *base, unsigned poll_us)
{
	struct fault_ep *ep = (struct fault_ep *)base;

	ep->inner->ops->set_poll_us(ep->inner, poll_us);
}

static void fault_kill_lane(struct transport_ep *base, unsigned lane)
{
	struct fault_ep *ep = (struct fault_ep *)base;

	ep->inner->ops->kill_lane(ep->inner, lane);
}

/* What was held back for the dead lane since is gone with it: it must not go out on the new one. */
static void lane_renew(struct fault_ep *ep, unsigned lane)
{
	pthread_mutex_lock(&ep->lock);
	drop_held_locked(&ep->lane[lane]);
	ep->lane[lane].blocked = ep->lane[lane].withheld = false;
	pthread_mutex_unlock(&ep->lock);
}

static int fault_lane_accept(struct transport_ep *base, int control_fd,
			     const struct transport_relane *r, const char **ret_why)
{
	struct fault_ep *ep = (struct fault_ep *)base;

	if (!ep->inner->ops->lane_accept)
		return -ENOTSUP;
	lane_renew(ep, r->lane);
	return ep->inner->ops->lane_accept(ep->inner, control_fd, r, ret_why);
}

static int fault_lane_connect(struct transport_ep *base, int control_fd,
			      const struct transport_relane *r, const char **ret_why)
{
	struct fault_ep *ep = (struct fault_ep *)base;

	if (!ep->inner->ops->lane_connect)
		return -ENOTSUP;
	lane_renew(ep, r->lane);
	return ep->inner->ops->lane_connect(ep->inner, control_fd, r, ret_why);
}

static void fault_free(struct fault_ep *ep)
{
	for (unsigned i = 0; i < ep->base.lanes; i++)
		drop_held_locked(&ep->lane[i]);
	pthread_cond_destroy(&ep->cond);
	pthread_mutex_destroy(&ep->lock);
	free(ep);
}

static void fault_close(struct transport_ep *base)
{
	struct fault_ep *ep = (struct fault_ep *)base;

	if (ep == NULL)
		return;
	pthread_mutex_lock(&ep->lock);
	ep->stop = true;
	pthread_cond_broadcast(&ep->cond);
	pthread_mutex_unlock(&ep->lock);
	pthread_join(ep->thread, NULL);
	ep->inner->ops->close(ep->inner);
	fault_free(ep);
}

int transport_fault_wrap(struct transport_ep *inner, const struct transport_fault_plan *plan,
			 struct transport_ep **ret_ep)
{
	struct fault_ep *ep = calloc(1, sizeof(*ep));
	int r;

	if (ep == NULL)
		return -ENOMEM;
	ep->base = (struct transport_ep){
		.ops = &transport_fault_ops, .window = inner->window, .lanes = inner->lanes,
		.window_bytes = inner->window_bytes, .remote_bytes = inner->remote_bytes
	};
	ep->inner = inner;
	ep->plan = *plan;
	ep->random = plan->seed;
	for (unsigned i = 0; i < inner->lanes; i++)
		CDS_INIT_LIST_HEAD(&ep->lane[i].held);
	pthread_mutex_init(&ep->lock, NULL);
	r = thread_cond_init(&ep->cond);
	if (r == 0)
		r = thread_start(&ep->thread, "kv-fault", fault_main, ep);
	if (r < 0) {
		fault_free(ep);
		return r;
	}
	*ret_ep = &ep->base;
	return 0;
}

void transport_fault_use(const struct transport_ops *inner, const struct transport_fault_plan *plan)
{
	use_inner = inner;
	use_plan = *plan;
}

static int wrap_made(int r, struct transport_ep *inner, struct transport_ep **ret_ep,
		     const char **ret_why)
{
	if (r < 0)
		return r;
	r = transport_fault_wrap(inner, &use_plan, ret_ep);
	if (r < 0) {
		*ret_why = "can't start the fault injector";
		inner->ops->close(inner);
	}
	return r;
}

static int fault_accept(int control_fd, const struct transport_params *p,
			struct transport_ep **ret_ep, const char **ret_why)
{
	struct transport_ep *inner = NULL;
	int r = use_inner->accept(control_fd, p, &inner, ret_why);

	return wrap_made(r, inner, ret_ep, ret_why);
}

static int fault_connect(int control_fd, const struct addr *peer, const struct transport_params *p,
			 struct transport_ep **ret_ep, const char **ret_why)
{
	struct transport_ep *inner = NULL;
	int r;

	if (use_plan.lanes_max && p->lanes > use_plan.lanes_max) {
		*ret_why = "no more lanes can be opened";
		return -EMFILE;
	}
	r = use_inner->connect(control_fd, peer, p, &inner, ret_why);
	return wrap_made(r, inner, ret_ep, ret_why);
}

const struct transport_ops transport_fault_ops = {
	.name = "fault",
	.knobs = TRANSPORT_KNOB_LANES | TRANSPORT_KNOB_POLL | TRANSPORT_KNOB_BATCH,
	.accept = fault_accept,
	.connect = fault_connect,
	.window = transport_ep_window,
	.remote_window_bytes = transport_ep_remote_bytes,
	.lanes = transport_ep_lanes,
	.post = fault_post,
	.poll = fault_poll,
	.wake = fault_wake,
	.set_poll_us = fault_set_poll_us,
	.kill_lane = fault_kill_lane,
	.lane_accept = fault_lane_accept,
	.lane_connect = fault_lane_connect,
	.close = fault_close,
};
