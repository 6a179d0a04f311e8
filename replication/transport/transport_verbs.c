/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs transport: the poll loop. It polls the lanes' completion queues for poll_us, then
 * arms them, polls once more (what completed before does not make an event), and sleeps in epoll
 * on the queues' events, rdma_cm's and wake(). A queue that stays armed is not armed again.
 * rdma_cm's events are also looked at now and then while work never ends.
 */
#include "replication/transport/transport_verbs_internal.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#define CM_LOOK_NS (5 * NSEC_PER_MSEC)
#define LEAVING_LOOK_NS (5 * NSEC_PER_MSEC)
#define EPOLL_BATCH 3

/* False: something is left for which the sink had no room. */
static bool scan(struct verbs_ep *ep, struct transport_sink *s)
{
	unsigned lanes = ep->base.lanes;
	bool done = true;

	for (unsigned i = 0, lane = ep->turn; i < lanes; i++) {
		done &= verbs_lane_scan(&ep->lane[lane], s);
		lane = lane + 1 == lanes ? 0 : lane + 1;
	}
	if (s->count > 0)
		ep->turn = ep->turn + 1 == lanes ? 0 : ep->turn + 1;
	if (done && ep->lanes_down == lanes && !ep->peer_down_reported && !sink_full(s)) {
		sink_add(s, TRANSPORT_EVENT_PEER_DOWN, 0, ep->lane[0].down_err);
		ep->peer_down_reported = true;
	}
	return done;
}

static void look_at_cm(struct verbs_ep *ep, uint64_t now_ns)
{
	if (now_ns - ep->cm_looked_ns < CM_LOOK_NS)
		return;
	ep->cm_looked_ns = now_ns;
	verbs_cm_attend(ep);
}

/* True: something came, or wake() was called. */
static bool spin(struct verbs_ep *ep, struct transport_sink *s, uint64_t until_ns)
{
	uint64_t now_ns;

	do {
		for (int i = 0; i < 16; i++) {
			scan(ep, s);
			if (s->count > 0 || sleep_check(&ep->woken) != 0)
				return true;
			spin_relax();
		}
		transport_spin_pause();
		now_ns = transport_now_ns();
		look_at_cm(ep, now_ns);
	} while (now_ns < until_ns);
	return false;
}

/* Arms every queue that is not. True: a lane is on its way down, which makes no event. */
static bool arm(struct verbs_ep *ep)
{
	bool leaving = false;

	for (unsigned i = 0; i < ep->base.lanes; i++) {
		verbs_lane_arm(&ep->lane[i]);
		leaving |= ep->lane[i].leaving && !ep->lane[i].down;
	}
	return leaving;
}

static void take_events(struct verbs_ep *ep, int fd)
{
	uint64_t count;

	if (fd == ep->channel->fd) {
		verbs_cm_attend(ep);
	} else if (fd == ep->event_fd) {
		while (read(fd, &count, sizeof(count)) < 0 && errno == EINTR)
			;
	} else {
		verbs_comp_events_take(ep);
	}
}

static void wait_events(struct verbs_ep *ep, uint64_t timeout_ns)
{
	struct epoll_event ev[EPOLL_BATCH];
	struct timespec ts = transport_timespec(timeout_ns);
	int n = epoll_pwait2(ep->epoll_fd, ev, EPOLL_BATCH, timeout_ns == UINT64_MAX ? NULL : &ts,
			     NULL);

	if (n < 0 && errno == ENOSYS) {
		uint64_t ms = timeout_ns / NSEC_PER_MSEC + 1;

		n = epoll_wait(ep->epoll_fd, ev, EPOLL_BATCH, ms > 60000 ? 60000 : (int)ms);
	}
	for (int i = 0; i < n; i++)
		take_events(ep, ev[i].data.fd);
}

static void sleep_until(struct verbs_ep *ep, struct transport_sink *s, uint64_t deadline_ns)
{
	for (;;) {
		uint64_t now_ns = transport_now_ns(), timeout_ns;
		bool leaving;

		sleep_announce(&ep->sleeping, 1);
		leaving = arm(ep);
		scan(ep, s);
		if (s->count > 0 || sleep_check(&ep->woken) != 0 || now_ns >= deadline_ns)
			break;
		timeout_ns = deadline_ns == UINT64_MAX ? UINT64_MAX : deadline_ns - now_ns;
		if (leaving && timeout_ns > LEAVING_LOOK_NS)
			timeout_ns = LEAVING_LOOK_NS;
		wait_events(ep, timeout_ns);
	}
	sleep_take(&ep->sleeping);
}

static int verbs_poll(struct transport_ep *base, struct transport_event *ret_events, int max,
		      uint64_t timeout_ns)
{
	struct verbs_ep *ep = (struct verbs_ep *)base;
	struct transport_sink s = { .events = ret_events, .max = max };
	uint64_t now_ns = transport_now_ns(), deadline_ns, poll_ns;

	if (max <= 0)
		return 0;
	look_at_cm(ep, now_ns);
	scan(ep, &s);
	if (s.count == 0 && timeout_ns > 0) {
		deadline_ns = transport_deadline(now_ns, timeout_ns);
		poll_ns = transport_spin_ns(base, timeout_ns);
		if (poll_ns == 0 || !spin(ep, &s, transport_deadline(now_ns, poll_ns)))
			sleep_until(ep, &s, deadline_ns);
		transport_waited(base, now_ns, s.count == 0);
	}
	if (sleep_check(&ep->woken) != 0)
		sleep_take(&ep->woken);
	return s.count;
}

static void verbs_wake(struct transport_ep *base)
{
	struct verbs_ep *ep = (struct verbs_ep *)base;

	transport_wake_owner(&ep->woken, &ep->sleeping, ep->event_fd);
}

static const char *verbs_lane_why(struct transport_ep *base, unsigned lane)
{
	struct verbs_ep *ep = (struct verbs_ep *)base;

	return lane < base->lanes && ep->lane[lane].caused ? ep->lane[lane].why : NULL;
}

static void verbs_kill_lane(struct transport_ep *base, unsigned lane)
{
	struct verbs_ep *ep = (struct verbs_ep *)base;

	if (lane < base->lanes)
		verbs_lane_kill(&ep->lane[lane]);
}

const struct transport_ops transport_verbs_ops = {
	.name = "verbs",
	.knobs = TRANSPORT_KNOB_LANES | TRANSPORT_KNOB_POLL | TRANSPORT_KNOB_BATCH,
	.poll_us = 50,
	/* the best over a mix of loads on the simulated card (tuner_settings_shipped) */
	.lanes_used = 20,
	.lanes_open = TRANSPORT_LANES_MAX,
	.in_place = true,
	.accept = verbs_accept,
	.connect = verbs_connect,
	.window = transport_ep_window,
	.remote_window_bytes = transport_ep_remote_bytes,
	.lanes = transport_ep_lanes,
	.post = verbs_post,
	.poll = verbs_poll,
	.wake = verbs_wake,
	.set_poll_us = transport_ep_set_poll_us,
	.datagram_send = verbs_datagram_send,
	.datagram_recv = verbs_datagram_recv,
	.datagram_silent = verbs_datagram_silent,
	.lane_why = verbs_lane_why,
	.kill_lane = verbs_kill_lane,
	.lane_accept = verbs_lane_accept,
	.lane_connect = verbs_lane_connect,
	.mtu = verbs_mtu,
	.close = verbs_close,
};
