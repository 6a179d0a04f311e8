/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fault injector: its poll side, lanes that are made anew, and its life. One lock for
 * everything: posting threads, the poll thread and kv-fault; the inner transport's post, which
 * never blocks, is called under it.
 */
#include "replication/transport/transport_fault_internal.h"

#include "common/thread.h"

#include <errno.h>
#include <stdlib.h>

static const struct transport_ops *use_inner = &transport_tcp_ops;
static struct transport_fault_plan use_plan;

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
		fault_drop_held_locked(l);
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
	fault_drop_held_locked(&ep->lane[lane]);
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
		fault_drop_held_locked(&ep->lane[i]);
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
