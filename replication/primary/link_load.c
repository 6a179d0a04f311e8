/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a mirror says of its own load (load_format.h), as the primary keeps it: the newest, with its
 * age. It comes as a datagram, which the link's thread fetches each tick, or by a notice. Where
 * datagrams stay away for LINK_LOAD_SILENT_NS the transport is told, and makes them a new way: a
 * mirror sends several a second as long as the session lives. Where none comes by the new way
 * either, the next one waits twice as long: there are mirrors that never send.
 *
 * Threads: whoever has ep; what status reads is under primary.lock.
 */
#include "replication/primary/link.h"

#include "common/clock.h"

#include <errno.h>

void link_load_begin(struct link *l)
{
	uint64_t now = clock_mono_ns();

	pthread_mutex_lock(&l->primary->lock);
	l->load.newest = (struct load){ 0 };
	l->load.heard_ns = now;
	l->load.any = false;
	pthread_mutex_unlock(&l->primary->lock);
	l->load.silent_since_ns = now;
	l->load.patience_ns = LINK_LOAD_SILENT_NS;
}

/* Of this session and newer than the last, or passed over: what is wrong with one is the next's to
 * put right. */
static void load_take(struct link *l, const void *bytes, size_t len)
{
	uint64_t now = clock_mono_ns();
	struct load load;

	if (load_decode(bytes, len, &load) != 0 || load.epoch != l->primary->cfg.epoch ||
	    load.node_id != l->welcome.node_id || load.sequence <= l->load.newest.sequence)
		return;
	l->load.silent_since_ns = now;
	l->load.patience_ns = LINK_LOAD_SILENT_NS;
	pthread_mutex_lock(&l->primary->lock);
	l->load.newest = load;
	l->load.heard_ns = now;
	l->load.any = true;
	l->load.taken++;
	pthread_mutex_unlock(&l->primary->lock);
}

void link_load_notice(struct link *l)
{
	uint64_t bytes;
	const uint8_t *window = l->tops->window(l->ep, &bytes);

	/* one that is being written meanwhile has a wrong checksum, and a notice to come */
	for (unsigned i = 0; i < REPL_LOAD_SLOTS; i++)
		load_take(l, window + load_slot_offset(i), sizeof(struct repl_load));
}

void link_load_tick(struct link *l, uint64_t now_ns)
{
	uint8_t buf[TRANSPORT_DATAGRAM_BYTES];
	int n;

	if (!l->tops->datagram_recv)
		return;
	n = l->tops->datagram_recv(l->ep, buf, sizeof(buf));
	if (n > 0)
		load_take(l, buf, (size_t)n);
	if (n < 0 || now_ns < l->load.silent_since_ns + l->load.patience_ns)
		return;
	l->load.silent_since_ns = now_ns;
	if (!l->tops->datagram_silent(l->ep))
		return;
	if (l->load.patience_ns < LINK_LOAD_SILENT_MAX_NS)
		l->load.patience_ns *= 2;
	pthread_mutex_lock(&l->primary->lock);
	l->load.rebuilt++;
	pthread_mutex_unlock(&l->primary->lock);
}

void link_load_stats_locked(const struct link *l, struct link_stats *s)
{
	uint64_t now = clock_mono_ns();

	s->loads = l->load.taken;
	s->loads_rebuilt = l->load.rebuilt;
	if (!l->wake_ep)
		return;
	s->load_known = l->load.any;
	s->load_age_ns = now > l->load.heard_ns ? now - l->load.heard_ns : 0;
	s->load_cpu_permille = l->load.newest.cpu_permille;
	s->load_log_permille = l->load.newest.log_permille;
	s->load_ring_permille = l->load.newest.ring_permille;
	s->load_apply_lag = l->load.newest.apply_lag;
}
