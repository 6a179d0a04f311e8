/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tcp transport: life of an endpoint and the poll loop. Poll spins on the lane that was active
 * last (and, now and then, on all), then sleeps in epoll. A lane that fails is reported after its
 * last whole notice; its socket stays open, shut down, until close or until the lane is made anew.
 * The peer is down when all lanes are.
 */
#include "replication/transport/transport_tcp_internal.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define EVENT_FD_TAG UINT32_MAX
#define EPOLL_BATCH (TRANSPORT_LANES_MAX + 1)
#define SPIN_ALL_EVERY 8

void tcp_lane_down(struct tcp_lane *l, int err)
{
	if (l->down)
		return;
	l->down = true;
	l->down_err = err;
	l->backlog = false;
	l->ep->lanes_down++;
	epoll_ctl(l->ep->epoll_fd, EPOLL_CTL_DEL, l->fd, NULL);
	tcp_tx_kill(l);
	sleep_announce(&l->ep->attention, 1);
}

/* What a lane has to say without a look at its socket. False: the sink had no room for it. */
static bool lane_attend(struct tcp_lane *l, struct transport_sink *s)
{
	uint32_t want;

	if (l->backlog) {
		if (sink_full(s))
			return false;
		tcp_rx_backlog(l, s);
	}
	if (l->down && !l->down_reported) {
		if (sink_full(s))
			return false;
		sink_add(s, TRANSPORT_EVENT_LANE_DOWN, l->index, l->down_err);
		l->down_reported = true;
	}
	want = l->down ? 0 : sleep_take(&l->want);
	if (want == 0)
		return !l->backlog;
	if (sink_full(s) || !tcp_tx_writable(l, want)) {
		atomic_fetch_or(&l->want, want);
		return false;
	}
	sink_add(s, TRANSPORT_EVENT_WRITABLE, l->index, 0);
	return !l->backlog;
}

/* Looks after all lanes; attention stays up while one of them waits for something. */
static void attend(struct tcp_ep *ep, struct transport_sink *s)
{
	bool done = true;

	if (sleep_check(&ep->attention) == 0)
		return;
	sleep_take(&ep->attention);
	for (unsigned i = 0; i < ep->base.lanes; i++)
		done &= lane_attend(&ep->lane[(ep->turn + i) % ep->base.lanes], s);
	ep->turn = (ep->turn + 1) % ep->base.lanes;
	if (ep->lanes_down == ep->base.lanes && done && !ep->peer_down_reported) {
		if (sink_full(s)) {
			done = false;
		} else {
			sink_add(s, TRANSPORT_EVENT_PEER_DOWN, 0, ep->lane[0].down_err);
			ep->peer_down_reported = true;
		}
	}
	if (!done)
		sleep_announce(&ep->attention, 1);
}

static void serve(struct tcp_ep *ep, const struct epoll_event *ev, struct transport_sink *s)
{
	struct tcp_lane *l;
	uint64_t count;

	if (ev->data.u32 == EVENT_FD_TAG) {
		while (read(ep->event_fd, &count, sizeof(count)) < 0 && errno == EINTR)
			;
		return;
	}
	l = &ep->lane[ev->data.u32];
	if (l->down)
		return;
	if (ev->events & EPOLLOUT)
		tcp_tx_flush(l);
	if ((ev->events & ~(uint32_t)EPOLLOUT) != 0 && !sink_full(s))
		tcp_rx(l, s);
}

static int epoll_wait_ns(int fd, struct epoll_event *ev, int max, uint64_t timeout_ns)
{
	struct timespec ts = transport_timespec(timeout_ns);
	int n;

	if (timeout_ns == 0)
		return epoll_wait(fd, ev, max, 0);
	n = epoll_pwait2(fd, ev, max, timeout_ns == UINT64_MAX ? NULL : &ts, NULL);
	if (n < 0 && errno == ENOSYS) {
		uint64_t ms = (timeout_ns - 1) / NSEC_PER_MSEC + 1;

		n = epoll_wait(fd, ev, max, ms > 60000 ? 60000 : (int)ms);
	}
	return n;
}

static void wait_sockets(struct tcp_ep *ep, struct transport_sink *s, uint64_t timeout_ns)
{
	struct epoll_event ev[EPOLL_BATCH];
	int n = epoll_wait_ns(ep->epoll_fd, ev, EPOLL_BATCH, timeout_ns);

	for (int i = 0; i < n; i++)
		serve(ep, &ev[i], s);
	attend(ep, s);
}

/* True: something came, or wake() was called. */
static bool spin(struct tcp_ep *ep, struct transport_sink *s, uint64_t until_ns)
{
	for (unsigned i = 0;; i++) {
		if (i % SPIN_ALL_EVERY == SPIN_ALL_EVERY - 1)
			wait_sockets(ep, s, 0);
		else
			tcp_rx(&ep->lane[ep->hot], s);
		attend(ep, s);
		if (s->count > 0 || sleep_check(&ep->woken) != 0)
			return true;
		if (transport_now_ns() >= until_ns)
			return false;
		transport_spin_pause();
	}
}

/* Sleeps until the first event, a wake or the deadline; parts of frames are no event. */
static void sleep_until(struct tcp_ep *ep, struct transport_sink *s, uint64_t deadline_ns)
{
	while (s->count == 0) {
		uint64_t now_ns = transport_now_ns();

		if (now_ns >= deadline_ns)
			break;
		sleep_announce(&ep->sleeping, 1);
		if (sleep_check(&ep->woken) != 0)
			break;
		wait_sockets(ep, s, deadline_ns == UINT64_MAX ? UINT64_MAX : deadline_ns - now_ns);
	}
	sleep_take(&ep->sleeping);
}

static int tcp_poll(struct transport_ep *base, struct transport_event *ret_events, int max,
		    uint64_t timeout_ns)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;
	struct transport_sink s = { .events = ret_events, .max = max };
	uint64_t now_ns, deadline_ns, poll_ns;

	if (max <= 0)
		return 0;
	attend(ep, &s);
	if (s.count > 0 || timeout_ns == 0) {
		if (!sink_full(&s))
			wait_sockets(ep, &s, 0);
	} else {
		now_ns = transport_now_ns();
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

static void tcp_wake(struct transport_ep *base)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;

	transport_wake_owner(&ep->woken, &ep->sleeping, ep->event_fd);
}

static void tcp_kill_lane(struct transport_ep *base, unsigned lane)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;

	if (lane < base->lanes)
		tcp_tx_kill(&ep->lane[lane]);
}

int tcp_lane_renew(struct tcp_lane *l, int fd)
{
	struct tcp_ep *ep = l->ep;
	struct epoll_event ev = { .events = EPOLLIN, .data.u32 = l->index };
	int r;

	pthread_mutex_lock(&l->tx_lock);
	close(l->fd);
	l->fd = fd;
	l->out_start = l->out_end = 0;
	hint_write(&l->tx_posted, 0);
	credit_return(&l->tx_consumed, 0);
	hint_write(&l->rx_consumed, 0);
	hint_write(&l->rx_reported, 0);
	sleep_take(&l->want);
	l->rx_start = l->rx_end = l->rx_seq = 0;
	l->in_frame = l->backlog = false;
	r = epoll_ctl(ep->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
	l->tx_dead = r < 0;
	pthread_mutex_unlock(&l->tx_lock);
	if (r < 0)
		return r;
	l->down = l->down_reported = false;
	ep->lanes_down--;
	ep->peer_down_reported = false;
	return 0;
}

static void tcp_close(struct transport_ep *base)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;

	if (ep == NULL)
		return;
	for (unsigned i = 0; i < base->lanes; i++) {
		close(ep->lane[i].fd);
		free(ep->lane[i].out);
		free(ep->lane[i].rx);
		pthread_mutex_destroy(&ep->lane[i].tx_lock);
	}
	if (ep->epoll_fd >= 0)
		close(ep->epoll_fd);
	if (ep->event_fd >= 0)
		close(ep->event_fd);
	if (base->window != NULL)
		munmap(base->window, base->window_bytes);
	free(ep);
}

static int lane_init(struct tcp_ep *ep, struct tcp_lane *l)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u32 = l->index };

	l->rx = malloc(TCP_RX_BYTES);
	if (l->rx == NULL)
		return -ENOMEM;
	return epoll_ctl(ep->epoll_fd, EPOLL_CTL_ADD, l->fd, &ev) < 0 ? -errno : 0;
}

static int ep_init(struct tcp_ep *ep)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u32 = EVENT_FD_TAG };
	void *w = mmap(NULL, ep->base.window_bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (w == MAP_FAILED)
		return -ENOMEM;
	/* a peer fills it from its beginning: a small page's first touch costs as much as a put */
	(void)madvise(w, ep->base.window_bytes, MADV_HUGEPAGE);
	ep->base.window = w;
	ep->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	ep->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ep->epoll_fd < 0 || ep->event_fd < 0)
		return -errno;
	if (epoll_ctl(ep->epoll_fd, EPOLL_CTL_ADD, ep->event_fd, &ev) < 0)
		return -errno;
	for (unsigned i = 0; i < ep->base.lanes; i++) {
		int r = lane_init(ep, &ep->lane[i]);

		if (r < 0)
			return r;
	}
	return 0;
}

int tcp_ep_create(const struct transport_params *p, const int *fds, unsigned n,
		  uint64_t remote_bytes, struct transport_ep **ret_ep)
{
	struct tcp_ep *ep = calloc(1, sizeof(*ep));
	int r;

	if (ep == NULL) {
		for (unsigned i = 0; i < n; i++)
			close(fds[i]);
		return -ENOMEM;
	}
	ep->base.ops = &transport_tcp_ops;
	ep->base.window_bytes = p->window_bytes;
	ep->base.remote_bytes = remote_bytes;
	ep->base.lanes = n;
	ep->base.poll_us = p->poll_us;
	ep->epoll_fd = ep->event_fd = -1;
	for (unsigned i = 0; i < n; i++) {
		ep->lane[i].ep = ep;
		ep->lane[i].fd = fds[i];
		ep->lane[i].index = i;
		pthread_mutex_init(&ep->lane[i].tx_lock, NULL);
	}
	r = ep_init(ep);
	if (r < 0) {
		tcp_close(&ep->base);
		return r;
	}
	*ret_ep = &ep->base;
	return 0;
}

/* Segments the kernel sent again. */
static uint64_t tcp_retries(struct transport_ep *base)
{
	struct tcp_ep *ep = (struct tcp_ep *)base;
	uint64_t count = 0;

	for (unsigned i = 0; i < ep->base.lanes; i++) {
		struct tcp_info info = { 0 };
		socklen_t len = sizeof(info);

		if (getsockopt(ep->lane[i].fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0)
			count += info.tcpi_total_retrans;
	}
	return count;
}

/* What the kernel thinks now; no end says what it could take. */
static void tcp_mtu(struct transport_ep *base, struct transport_mtu *ret_mtu)
{
	int fd = ((struct tcp_ep *)base)->lane[0].fd, mtu = 0;
	socklen_t len = sizeof(mtu);

	if (getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &len) != 0 &&
	    getsockopt(fd, IPPROTO_IPV6, IPV6_MTU, &mtu, &len) != 0)
		mtu = 0;
	*ret_mtu = (struct transport_mtu){ .path = mtu > 0 ? (unsigned)mtu : 0 };
}

const struct transport_ops transport_tcp_ops = {
	.name = "tcp",
	.knobs = TRANSPORT_KNOB_LANES | TRANSPORT_KNOB_POLL | TRANSPORT_KNOB_BATCH,
	.lanes_used = 2,
	.lanes_open = 4,
	.accept = tcp_accept,
	.connect = tcp_connect,
	.window = transport_ep_window,
	.remote_window_bytes = transport_ep_remote_bytes,
	.lanes = transport_ep_lanes,
	.post = tcp_post,
	.poll = tcp_poll,
	.wake = tcp_wake,
	.set_poll_us = transport_ep_set_poll_us,
	.kill_lane = tcp_kill_lane,
	.lane_accept = tcp_lane_accept,
	.lane_connect = tcp_lane_connect,
	.retries = tcp_retries,
	.mtu = tcp_mtu,
	.close = tcp_close,
};
