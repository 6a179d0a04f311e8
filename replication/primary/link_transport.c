/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which transport a link uses. The address says it; where it does not, verbs where both ends
 * have it, else tcp. A link falls back where lanes can't be opened, and where they open but carry
 * nothing (a path that takes small packets only, say). It tries verbs again later, each time after
 * a longer while, and at once when a device comes back. The link's thread; the note for people
 * under the primary's lock.
 */
#include "replication/primary/link.h"

#include "common/clock.h"
#include "replication/dial.h"
#include "replication/transport/transport_verbs.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define VERBS_WAIT_MIN_NS (30 * NSEC_PER_SEC)
#define VERBS_WAIT_MAX_NS (600 * NSEC_PER_SEC)
#define VERBS_LOOK_NS (2 * NSEC_PER_SEC)
/* Not before the session that runs without it has ended. */
#define VERBS_AFTER_SESSION UINT64_MAX

__attribute__((format(printf, 2, 3))) static void note(struct link *l, const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&l->primary->lock);
	va_start(ap, fmt);
	vsnprintf(l->transport_note, sizeof(l->transport_note), fmt, ap);
	va_end(ap);
	pthread_mutex_unlock(&l->primary->lock);
}

static bool is_auto(const struct link *l)
{
	return l->addr.kind == ADDR_AUTO && !l->primary->cfg.transport;
}

void link_transport_choose(struct link *l)
{
	char text[VERBS_TEXT_BYTES];

	l->tops = l->primary->cfg.transport;
	if (!l->tops)
		l->tops = transport_for(l->addr.kind);
	if (!is_auto(l))
		return;
	if (clock_mono_ns() < l->verbs_retry_ns)
		return; /* the note says why */
	if (verbs_available(l->primary->cfg.rdma_device, text, sizeof(text)) == 0) {
		l->tops = &transport_verbs_ops;
		note(l, "found %.200s: uses verbs", text);
	} else {
		l->verbs_trial = false;
		note(l, "found %.200s: uses tcp", text);
	}
}

enum repl_transport link_transport_number(const struct link *l)
{
	return is_auto(l) && l->tops == &transport_verbs_ops ? REPL_TRANSPORT_VERBS
							     : dial_transport(&l->addr);
}

bool link_transport_fell_back(const struct link *l)
{
	return l->verbs_wait_ns && l->tops != &transport_verbs_ops;
}

uint64_t link_transport_setup_ns(const struct link *l)
{
	uint64_t setup = transport_setup_ns(primary_lanes_open(&l->primary->cfg, l->tops));
	uint64_t half = l->primary->cfg.timeout_ns / 2;

	return l->verbs_trial && half < setup ? half : setup;
}

void link_transport_connected(struct link *l)
{
	l->verbs_trial = false;
	l->verbs_since_ns = l->tops == &transport_verbs_ops ? clock_mono_ns() : 0;
}

/* That lanes open says little: only a session that lasted for so long shows that the way works. */
static void forget_failures(struct link *l)
{
	if (l->verbs_since_ns && clock_mono_ns() - l->verbs_since_ns >= VERBS_WAIT_MAX_NS)
		l->verbs_wait_ns = 0;
	l->verbs_since_ns = 0;
}

int link_transport_failed(struct link *l, int err)
{
	char why[LINK_ERROR_BYTES];

	if (!is_auto(l) || l->tops != &transport_verbs_ops || err == -ECANCELED)
		return err;
	l->verbs_trial = false;
	forget_failures(l);
	l->verbs_wait_ns = l->verbs_wait_ns ? l->verbs_wait_ns * 2 : VERBS_WAIT_MIN_NS;
	if (l->verbs_wait_ns > VERBS_WAIT_MAX_NS)
		l->verbs_wait_ns = VERBS_WAIT_MAX_NS;
	/* Where the formats differ one end has to be another kvfs first, and starts again for it:
	 * to end a session that works for a look would be in vain. */
	l->verbs_retry_ns = err == -EPROTONOSUPPORT ? VERBS_AFTER_SESSION
						    : clock_mono_ns() + l->verbs_wait_ns;
	pthread_mutex_lock(&l->primary->lock);
	memcpy(why, l->last_error, sizeof(why));
	pthread_mutex_unlock(&l->primary->lock);
	note(l, "verbs failed (%.180s): uses tcp", why);
	return -EAGAIN;
}

void link_transport_ended(struct link *l)
{
	forget_failures(l);
	if (l->tops != &transport_verbs_ops && l->verbs_retry_ns == VERBS_AFTER_SESSION)
		l->verbs_retry_ns = 0;
}

bool link_transport_better(struct link *l, uint64_t now_ns)
{
	char text[VERBS_TEXT_BYTES];

	if (!is_auto(l) || l->tops == &transport_verbs_ops || now_ns < l->verbs_retry_ns ||
	    now_ns - l->verbs_looked_ns < VERBS_LOOK_NS)
		return false;
	l->verbs_looked_ns = now_ns;
	l->verbs_trial = verbs_available(l->primary->cfg.rdma_device, text, sizeof(text)) == 0;
	return l->verbs_trial;
}

void link_transport_mtu(struct link *l)
{
	const struct primary_config *cfg = &l->primary->cfg;
	struct transport_mtu mtu = { 0 };
	char text[TRANSPORT_MTU_NOTE_BYTES], addr[sizeof(l->addr.host) + 16];

	if (l->tops->mtu)
		l->tops->mtu(l->ep, &mtu);
	atomic_store_explicit(&l->mtu_bytes, mtu.path, memory_order_relaxed);
	transport_mtu_note(&mtu, text, sizeof(text));
	/* the link alone writes it, and may read it without the lock */
	if (!transport_mtu_known(&mtu) || strcmp(text, l->mtu_note) == 0)
		return;
	pthread_mutex_lock(&l->primary->lock);
	memcpy(l->mtu_note, text, sizeof(text));
	pthread_mutex_unlock(&l->primary->lock);
	addr_format(&l->addr, addr, sizeof(addr));
	if (text[0] && cfg->warn)
		cfg->warn(cfg->ctx, addr, text);
}
