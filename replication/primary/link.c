/* SPDX-License-Identifier: Apache-2.0 */
/* A link's thread: dials, runs a session, backs off, until told to stop. States and texts for
 * others (link.h). */
#include "replication/primary/link.h"

#include "common/clock.h"
#include "common/thread.h"
#include "replication/dial.h"
#include "replication/frame.h"
#include "replication/transport/transport_verbs.h"

#include <errno.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINK_DIAL_NS (3 * NSEC_PER_SEC)
#define LINK_BACKOFF_MIN_NS (20 * NSEC_PER_MSEC)
#define LINK_BACKOFF_MAX_NS (1 * NSEC_PER_SEC)

const char *link_state_name(enum link_state s)
{
	switch (s) {
	case LINK_DOWN:
		return "down";
	case LINK_DIALING:
		return "dialing";
	case LINK_HANDSHAKE:
		return "handshake";
	case LINK_RESYNC:
		return "resync";
	case LINK_CATCHUP:
		return "catch-up";
	case LINK_LIVE:
		return "live";
	case LINK_REFUSED:
		return "refused";
	}
	return "unknown";
}

void link_set_state(struct link *l, enum link_state state)
{
	struct primary *p = l->primary;

	pthread_mutex_lock(&p->lock);
	l->state = state;
	if (state == LINK_LIVE)
		l->refused_err = 0;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

int link_fail(struct link *l, int err, const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&l->primary->lock);
	va_start(ap, fmt);
	vsnprintf(l->last_error, sizeof(l->last_error), fmt, ap);
	va_end(ap);
	pthread_mutex_unlock(&l->primary->lock);
	return err;
}

/* Errors that another attempt a moment later will not cure. A busy mirror may be free soon,
 * but says so. */
static bool link_is_refusal(int err)
{
	return err == -EPROTONOSUPPORT || err == -EXDEV || err == -EKEYREJECTED || err == -ESTALE ||
	       err == -ENOSPC || err == -EBUSY || err == -ENOTSUP || err == -ENOTUNIQ;
}

/* Not even trying again is harmless: each attempt throws out the session of the same node. */
static bool link_is_hopeless(int err)
{
	return err == -ENOTUNIQ;
}

static int link_attempt(struct link *l)
{
	const atomic_bool *stopping = &l->primary->stopping;
	int fd, err;

	verbs_devices_attend();
	/* REFUSED stays visible while the next attempt is under way. */
	if (l->refused_err == 0)
		link_set_state(l, LINK_DIALING);
	err = dial_connect(&l->addr, clock_mono_ns() + LINK_DIAL_NS, stopping, &fd);
	if (err) {
		if (err != -ECANCELED)
			link_metrics_connect_failed(&l->times);
		return link_fail(l, err, "cannot connect: %s", dial_error(err));
	}
	frame_socket_tune(fd);
	err = link_session_run(l, fd);
	close(fd);
	return err;
}

/* Waits for about delay_ns (so that links that failed together do not return together), or
 * for the end. */
static void link_back_off(struct link *l, uint64_t delay_ns)
{
	struct primary *p = l->primary;
	uint64_t jitter = randombytes_uniform((uint32_t)(delay_ns / 2));
	uint64_t deadline = clock_mono_ns() + delay_ns / 2 + jitter;
	int err = 0;

	pthread_mutex_lock(&p->lock);
	while (!err && !atomic_load_explicit(&p->stopping, memory_order_relaxed))
		err = thread_cond_wait_until(&p->changed, &p->lock, deadline);
	pthread_mutex_unlock(&p->lock);
}

static void link_settle(struct link *l, int err)
{
	struct primary *p = l->primary;
	bool refused = link_is_refusal(err);

	pthread_mutex_lock(&p->lock);
	l->refused_err = refused ? err : 0;
	l->state = refused ? LINK_REFUSED : LINK_DOWN;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

void *link_thread(void *arg)
{
	struct link *l = arg;
	uint64_t delay_ns = LINK_BACKOFF_MIN_NS;

	while (!link_stopping(l)) {
		uint64_t heard_before = l->last_heard_ns;
		int err = link_attempt(l);

		link_settle(l, err);
		/* It got as far as a session: try again at once. */
		if (l->last_heard_ns != heard_before) {
			delay_ns = LINK_BACKOFF_MIN_NS;
			link_count_add(&l->reconnects, 1);
		}
		do
			link_back_off(l, link_is_refusal(err) ? LINK_BACKOFF_MAX_NS : delay_ns);
		while (link_is_hopeless(err) && !link_stopping(l));
		delay_ns = delay_ns * 2 < LINK_BACKOFF_MAX_NS ? delay_ns * 2 : LINK_BACKOFF_MAX_NS;
	}
	return NULL;
}
