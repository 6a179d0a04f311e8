/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the transport seam that every implementation shares: choice, accessors, checks,
 * credits. No state of its own; nothing here blocks.
 */
#include "replication/transport/transport_internal.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

#define WINDOW_UNIT 4096
#define WINDOW_BYTES_MAX (1ULL << 40)

uint64_t transport_setup_ns(unsigned lanes)
{
	return 5 * NSEC_PER_SEC + lanes * (NSEC_PER_SEC / 4);
}

const struct transport_ops *transport_for(enum addr_kind kind)
{
	switch (kind) {
	case ADDR_AUTO: /* the caller has chosen otherwise where there is a device */
	case ADDR_TCP:
		return &transport_tcp_ops;
	case ADDR_SHM:
		return &transport_shm_ops;
	case ADDR_VERBS:
		return &transport_verbs_ops;
	}
	return NULL;
}

#define SPIN_PAUSE_CPUS 8 /* with fewer, a spinner is in somebody's way */
#define WAIT_WEIGHT 8     /* of the past against the last wait */
#define WAIT_MOST 3       /* times poll_us: what the mean is at most */
#define WAIT_PROBE 16     /* waits after which it is tried again whether spinning pays */

uint64_t transport_spin_ns(struct transport_ep *ep, uint64_t timeout_ns)
{
	uint64_t spin_ns = hint_read(&ep->poll_us) * NSEC_PER_USEC;

	/* a wait asleep lasts longer than spinning would by a wake-up: hence the probe */
	if (ep->mean_wait_ns > spin_ns && ++ep->waits % WAIT_PROBE)
		return 0;
	return spin_ns < timeout_ns ? spin_ns : timeout_ns;
}

void transport_waited(struct transport_ep *ep, uint64_t since_ns, bool in_vain)
{
	uint64_t spin_ns = hint_read(&ep->poll_us) * NSEC_PER_USEC;
	uint64_t wait_ns = transport_now_ns() - since_ns;

	/* one long wait ends the spinning, a dozen short ones begin it again */
	if (in_vain || wait_ns > 2 * WAIT_WEIGHT * spin_ns)
		wait_ns = 2 * WAIT_WEIGHT * spin_ns;
	ep->mean_wait_ns += wait_ns / WAIT_WEIGHT - ep->mean_wait_ns / WAIT_WEIGHT;
	if (ep->mean_wait_ns > WAIT_MOST * spin_ns)
		ep->mean_wait_ns = WAIT_MOST * spin_ns;
}

void transport_spin_pause(void)
{
	static _Atomic long cpus;
	long n = atomic_load_explicit(&cpus, memory_order_relaxed);

	if (n == 0) {
		n = sysconf(_SC_NPROCESSORS_ONLN);
		atomic_store_explicit(&cpus, n > 0 ? n : 1, memory_order_relaxed);
	}
	if (n < SPIN_PAUSE_CPUS)
		sched_yield();
	else
		spin_relax();
}

void transport_wake_owner(_Atomic uint32_t *woken, _Atomic uint32_t *sleeping, int event_fd)
{
	uint64_t one = 1;

	sleep_announce(woken, 1);
	if (sleep_check(sleeping) == 0 || sleep_take(sleeping) == 0)
		return;
	/* Fails only when the counter is full: then it is readable anyway. */
	while (write(event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

uint8_t *transport_ep_window(struct transport_ep *ep, uint64_t *ret_bytes)
{
	*ret_bytes = ep->window_bytes;
	return ep->window;
}

uint64_t transport_ep_remote_bytes(struct transport_ep *ep)
{
	return ep->remote_bytes;
}

unsigned transport_ep_lanes(struct transport_ep *ep)
{
	return ep->lanes;
}

void transport_ep_set_poll_us(struct transport_ep *ep, unsigned poll_us)
{
	hint_write(&ep->poll_us, poll_us);
}

int transport_check_shape(unsigned lanes, uint64_t window_bytes)
{
	if (lanes == 0 || lanes > TRANSPORT_LANES_MAX)
		return -EINVAL;
	if (window_bytes == 0 || window_bytes > WINDOW_BYTES_MAX || window_bytes % WINDOW_UNIT != 0)
		return -EINVAL;
	return 0;
}

int transport_post_bytes(const struct transport_ep *ep, const struct transport_post *p,
			 uint32_t *ret_bytes)
{
	uint64_t sum = 0;

	if (p->iovcnt < 0)
		return -EINVAL;
	for (int i = 0; i < p->iovcnt; i++) {
		if (p->iov[i].iov_len > UINT32_MAX - sum)
			return -EINVAL;
		sum += p->iov[i].iov_len;
	}
	if (!transport_in_window(p->remote_off, sum, ep->remote_bytes))
		return -EINVAL;
	*ret_bytes = (uint32_t)sum;
	return 0;
}

int transport_check_batch(const struct transport_ep *ep, unsigned lane,
			  const struct transport_post *posts, unsigned n)
{
	uint32_t bytes;

	if (lane >= ep->lanes)
		return -EINVAL;
	for (unsigned i = 0; i < n; i++)
		if (transport_post_bytes(ep, &posts[i], &bytes) < 0)
			return -EINVAL;
	return 0;
}

unsigned transport_credits_allow(const struct transport_post *posts, unsigned n, uint32_t posted,
				 uint32_t consumed)
{
	uint32_t left = TRANSPORT_CREDITS - (posted - consumed);
	unsigned k = 0;

	while (k < n && left > (posts[k].control ? 0U : TRANSPORT_CREDITS_CONTROL)) {
		left--;
		k++;
	}
	return k;
}

void sink_add(struct transport_sink *s, enum transport_event_kind kind, unsigned lane, int err)
{
	s->events[s->count++] =
		(struct transport_event){ .kind = kind, .lane = lane, .err = err };
}

void sink_add_notice(struct transport_sink *s, unsigned lane, uint32_t imm, uint64_t off,
		     uint32_t len)
{
	s->events[s->count++] = (struct transport_event){
		.kind = TRANSPORT_EVENT_NOTICE, .lane = lane, .imm = imm, .off = off, .len = len
	};
}
