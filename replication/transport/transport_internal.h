/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_TRANSPORT_INTERNAL_H
#define KVFS_REPLICATION_TRANSPORT_INTERNAL_H
/*
 * What the transports share: the head of each endpoint, the check of what is posted, the list of
 * events that a poll fills, and socket transfers with a deadline for set-up. Only transport_*.c
 * include this.
 */
#include "common/clock.h"
#include "replication/transport/memory_order.h"
#include "replication/transport/transport.h"

#include <time.h>

/* First member of each transport's endpoint. Fixed after set-up but for poll_us. */
struct transport_ep {
	const struct transport_ops *ops;
	uint8_t *window;
	uint64_t window_bytes;
	uint64_t remote_bytes;
	unsigned lanes;
	_Atomic uint32_t poll_us;
	uint64_t mean_wait_ns; /* the poller's: how long it had to wait of late */
	unsigned waits;        /* the poller's: that it slept, not knowing better */
};

/*
 * How long a poll that found nothing spins before it sleeps, at most timeout_ns: poll_us, or
 * nothing while its waits are longer than that on the mean. The poller's thread, which says of each
 * wait when it began, and whether it ended without an event.
 */
uint64_t transport_spin_ns(struct transport_ep *ep, uint64_t timeout_ns);
void transport_waited(struct transport_ep *ep, uint64_t since_ns, bool in_vain);

/* Between two looks of a spin: lets others run where cores are few (the peer may be
 * one of them). */
void transport_spin_pause(void);

/* wake, where an owner that sleeps does so on event_fd. Any thread. */
void transport_wake_owner(_Atomic uint32_t *woken, _Atomic uint32_t *sleeping, int event_fd);

/* The accessors of the ops struct; any thread, never block. */
uint8_t *transport_ep_window(struct transport_ep *ep, uint64_t *ret_bytes);
uint64_t transport_ep_remote_bytes(struct transport_ep *ep);
unsigned transport_ep_lanes(struct transport_ep *ep);
void transport_ep_set_poll_us(struct transport_ep *ep, unsigned poll_us);

/* Parameters of set-up as the caller gave them, or as the peer claims them. -EINVAL. */
int transport_check_shape(unsigned lanes, uint64_t window_bytes);

/* [off, off+len) lies in a window of window_bytes. */
static inline bool transport_in_window(uint64_t off, uint64_t len, uint64_t window_bytes)
{
	return len <= window_bytes && off <= window_bytes - len;
}

/* Bytes of one post. -EINVAL: not in the peer's window. */
int transport_post_bytes(const struct transport_ep *ep, const struct transport_post *p,
			 uint32_t *ret_bytes);

/* A whole batch, before any of it is taken. -EINVAL. */
int transport_check_batch(const struct transport_ep *ep, unsigned lane,
			  const struct transport_post *posts, unsigned n);

/*
 * Of n posts, how many credits allow. posted and consumed count from set-up (modulo 2^32); the last
 * TRANSPORT_CREDITS_CONTROL credits serve only control posts.
 */
unsigned transport_credits_allow(const struct transport_post *posts, unsigned n, uint32_t posted,
				 uint32_t consumed);

/* Events of one poll, in the caller's array. */
struct transport_sink {
	struct transport_event *events;
	int count, max;
};

static inline bool sink_full(const struct transport_sink *s)
{
	return s->count >= s->max;
}

/* The sink is not full. */
void sink_add(struct transport_sink *s, enum transport_event_kind kind, unsigned lane, int err);
void sink_add_notice(struct transport_sink *s, unsigned lane, uint32_t imm, uint64_t off,
		     uint32_t len);

/* Real time for spins and sleeps: a test's fake clock must not make them endless. */
static inline uint64_t transport_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static inline struct timespec transport_timespec(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / NSEC_PER_SEC),
				  .tv_nsec = (long)(ns % NSEC_PER_SEC) };
}

/* Sum that stays at the end of time. */
static inline uint64_t transport_deadline(uint64_t now_ns, uint64_t timeout_ns)
{
	return timeout_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + timeout_ns;
}

/* Socket transfers for set-up: whole, until clock_mono_ns() reaches deadline_ns, whatever the
 * socket's own blocking mode. -ETIMEDOUT, -ECONNRESET (also: the peer closed). */
int setup_wait(int fd, short events, uint64_t deadline_ns);
int setup_send(int fd, const void *data, size_t len, uint64_t deadline_ns);
int setup_recv(int fd, void *data, size_t len, uint64_t deadline_ns);

#endif
