/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shm transport: the poll loop. It spins over the lanes' rings for poll_us, then sleeps on its
 * inbox's futex word, at most LIFE_CHECK_NS at a time: between sleeps it looks whether the peer's
 * process is still there. A peer that closes says so at once.
 */
#include "replication/transport/transport_shm_internal.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LIFE_CHECK_NS (50 * NSEC_PER_MSEC)

static void scan(struct shm_ep *ep, struct transport_sink *s)
{
	unsigned lanes = ep->base.lanes;
	bool done = true;

	if (!ep->peer_gone && notice_observe(&ep->head->closed) != 0) {
		ep->peer_gone = true;
		ep->peer_err = -ECONNRESET;
	}
	for (unsigned i = 0, lane = ep->turn; i < lanes; i++) {
		done &= shm_lane_scan(&ep->lane[lane], s);
		lane = lane + 1 == lanes ? 0 : lane + 1;
	}
	if (s->count > 0)
		ep->turn = ep->turn + 1 == lanes ? 0 : ep->turn + 1;
	if (done && ep->lanes_down == lanes && !ep->peer_down_reported && !sink_full(s)) {
		sink_add(s, TRANSPORT_EVENT_PEER_DOWN, 0, ep->lane[0].down_err);
		ep->peer_down_reported = true;
	}
}

/* Nothing is ever sent on the life line: readable means hung up, or a peer that
 * breaks the rules. */
static void check_life(struct shm_ep *ep, uint64_t now_ns)
{
	struct pollfd p = { .fd = ep->life_fd, .events = POLLIN };

	if (ep->peer_gone || now_ns - ep->life_checked_ns < LIFE_CHECK_NS)
		return;
	ep->life_checked_ns = now_ns;
	if (poll(&p, 1, 0) > 0) {
		ep->peer_gone = true;
		ep->peer_err = -ECONNRESET;
	}
}

static bool spin(struct shm_ep *ep, struct transport_sink *s, uint64_t until_ns)
{
	do {
		for (int i = 0; i < 64; i++) {
			scan(ep, s);
			if (s->count > 0 || sleep_check(&ep->woken) != 0)
				return true;
			spin_relax();
		}
		transport_spin_pause();
	} while (transport_now_ns() < until_ns);
	return false;
}

static void sleep_until(struct shm_ep *ep, struct transport_sink *s, uint64_t deadline_ns)
{
	for (;;) {
		uint64_t now_ns = transport_now_ns();
		struct timespec ts;

		check_life(ep, now_ns);
		sleep_announce(&ep->head->sleeping, 1);
		scan(ep, s);
		if (s->count > 0 || sleep_check(&ep->woken) != 0 || now_ns >= deadline_ns)
			break;
		ts = transport_timespec(deadline_ns - now_ns < LIFE_CHECK_NS ?
						deadline_ns - now_ns : LIFE_CHECK_NS);
		/* Returns at once when a waker has already taken the word down. */
		syscall(SYS_futex, &ep->head->sleeping, FUTEX_WAIT, 1, &ts, NULL, 0);
	}
	sleep_announce(&ep->head->sleeping, 0);
}

static int shm_poll(struct transport_ep *base, struct transport_event *ret_events, int max,
		    uint64_t timeout_ns)
{
	struct shm_ep *ep = (struct shm_ep *)base;
	struct transport_sink s = { .events = ret_events, .max = max };
	uint64_t now_ns, deadline_ns, poll_ns;

	if (max <= 0)
		return 0;
	scan(ep, &s);
	if (s.count == 0) {
		now_ns = transport_now_ns();
		deadline_ns = transport_deadline(now_ns, timeout_ns);
		poll_ns = transport_spin_ns(base, timeout_ns);
		if (timeout_ns == 0)
			check_life(ep, now_ns);
		else if (poll_ns == 0 || !spin(ep, &s, transport_deadline(now_ns, poll_ns)))
			sleep_until(ep, &s, deadline_ns);
		if (timeout_ns > 0)
			transport_waited(base, now_ns, s.count == 0);
	}
	if (sleep_check(&ep->woken) != 0)
		sleep_take(&ep->woken);
	return s.count;
}

static void shm_wake(struct transport_ep *base)
{
	struct shm_ep *ep = (struct shm_ep *)base;

	sleep_announce(&ep->woken, 1);
	shm_wake_owner(ep->head);
}

static void shm_kill_lane(struct transport_ep *base, unsigned lane)
{
	struct shm_ep *ep = (struct shm_ep *)base;

	if (lane < base->lanes)
		shm_lane_kill(&ep->lane[lane]);
}

const struct transport_ops transport_shm_ops = {
	.name = "shm",
	.knobs = TRANSPORT_KNOB_LANES | TRANSPORT_KNOB_POLL | TRANSPORT_KNOB_BATCH,
	.poll_us = 200,
	.lanes_used = 2,
	.lanes_open = 4,
	.accept = shm_accept,
	.connect = shm_connect,
	.window = transport_ep_window,
	.remote_window_bytes = transport_ep_remote_bytes,
	.lanes = transport_ep_lanes,
	.post = shm_post,
	.poll = shm_poll,
	.wake = shm_wake,
	.set_poll_us = transport_ep_set_poll_us,
	.kill_lane = shm_kill_lane,
	.lane_accept = shm_lane_accept,
	.lane_connect = shm_lane_connect,
	.close = shm_close,
};
