/* SPDX-License-Identifier: Apache-2.0 */
/* The set of links: life cycle, waiting for mirrors, figures. The work is in
 * link*.c (see link.h). */
#include "replication/primary/link.h"

#include "common/clock.h"
#include "common/thread.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int primary_link_init(struct primary *p, unsigned index)
{
	struct link *l = &p->links[index];
	char text[sizeof(l->addr.host) + 16];

	l->primary = p;
	l->index = index;
	l->addr = p->cfg.mirrors[index];
	l->hold_lsn = UINT64_MAX;
	addr_format(&l->addr, text, sizeof(text));
	link_metrics_init(&l->times, p->cfg.metrics, text);
	l->setup_fd = -1;
	l->read_buf = malloc(LINK_READ_BYTES);
	pthread_mutex_init(&l->send_lock, NULL);
	pthread_mutex_init(&l->lend_lock, NULL);
	thread_cond_init(&l->returned);
	return l->read_buf ? 0 : -ENOMEM;
}

static int primary_link_start(struct link *l)
{
	char name[16];
	int err;

	snprintf(name, sizeof(name), "kv-link-%u", l->index % 1000);
	err = thread_start(&l->thread, name, link_thread, l);
	l->started = !err;
	return err;
}

int primary_create(struct commit *c, struct oplog *log, struct ckpt *ckpt,
		   const struct primary_config *cfg, struct primary **ret_p)
{
	struct primary *p;
	int err = 0;

	assert(cfg->lanes > 0 && cfg->timeout_ns > 0);
	if (sodium_init() < 0)
		return -EIO;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->commit = c;
	p->log = log;
	p->ckpt = ckpt;
	p->cfg = *cfg;
	p->epochs = *cfg->epochs;
	p->cfg.epochs = &p->epochs;
	primary_init_knobs(p);
	p->instance = randombytes_uniform(1U << 24);
	pthread_mutex_init(&p->lock, NULL);
	thread_cond_init(&p->changed);
	p->links = calloc(cfg->mirror_count ? cfg->mirror_count : 1, sizeof(*p->links));
	if (!p->links)
		err = -ENOMEM;
	for (unsigned i = 0; !err && i < cfg->mirror_count; i++)
		err = primary_link_init(p, i);
	p->cfg.mirrors = NULL; /* the caller's; each link has its own copy */
	for (unsigned i = 0; !err && i < cfg->mirror_count; i++)
		err = primary_link_start(&p->links[i]);
	if (err) {
		primary_destroy(p);
		return err;
	}
	*ret_p = p;
	return 0;
}

static void primary_stop(struct primary *p)
{
	atomic_store_explicit(&p->stopping, true, memory_order_relaxed);
	pthread_mutex_lock(&p->lock);
	for (unsigned i = 0; p->links && i < p->cfg.mirror_count; i++) {
		struct link *l = &p->links[i];

		if (l->wake_ep)
			l->tops->wake(l->wake_ep);
		if (l->primary && l->setup_fd >= 0)
			(void)shutdown(l->setup_fd, SHUT_RDWR);
	}
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; p->links && i < p->cfg.mirror_count; i++)
		if (p->links[i].primary)
			link_recall(&p->links[i]);
}

void primary_destroy(struct primary *p)
{
	if (!p)
		return;
	primary_stop(p);
	for (unsigned i = 0; p->links && i < p->cfg.mirror_count; i++) {
		struct link *l = &p->links[i];

		if (!l->primary)
			break;
		if (l->started)
			pthread_join(l->thread, NULL);
		pthread_mutex_destroy(&l->send_lock);
		pthread_mutex_destroy(&l->lend_lock);
		pthread_cond_destroy(&l->returned);
		free(l->read_buf);
		free(l->send.held);
	}
	free(p->links);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	sodium_memzero(p->cfg.key, sizeof(p->cfg.key));
	free(p);
}

/* Under the lock: how many are live, and the first that refused or, failing that, is not live. */
static unsigned primary_count_live_locked(struct primary *p, unsigned *ret_refused,
					  struct link **ret_worst)
{
	unsigned live = 0, refused = 0;
	struct link *worst = NULL;

	for (unsigned i = 0; i < p->cfg.mirror_count; i++) {
		struct link *l = &p->links[i];

		if (l->state == LINK_LIVE) {
			live++;
		} else if (l->refused_err) {
			if (refused++ == 0)
				worst = l;
		} else if (!worst) {
			worst = l;
		}
	}
	*ret_refused = refused;
	*ret_worst = worst;
	return live;
}

static const char *primary_explain_locked(struct primary *p, const struct link *l)
{
	char text[sizeof(l->addr.host) + 16];

	if (!l)
		return "no mirror is configured";
	addr_format(&l->addr, text, sizeof(text));
	snprintf(p->why, sizeof(p->why), "mirror %s: %s", text,
		 l->last_error[0] ? l->last_error : link_state_name(l->state));
	return p->why;
}

int primary_wait_live(struct primary *p, unsigned n, uint64_t timeout_ns, const char **ret_why)
{
	uint64_t deadline = clock_mono_ns() + timeout_ns;
	struct link *worst;
	unsigned refused;
	int err = 0;

	pthread_mutex_lock(&p->lock);
	while (primary_count_live_locked(p, &refused, &worst) < n && !err) {
		if (refused && p->cfg.mirror_count - refused < n)
			err = worst->refused_err;
		else
			err = thread_cond_wait_until(&p->changed, &p->lock, deadline);
	}
	if (err && primary_count_live_locked(p, &refused, &worst) >= n)
		err = 0;
	if (err)
		*ret_why = primary_explain_locked(p, worst);
	pthread_mutex_unlock(&p->lock);
	return err;
}

static void primary_link_stats_locked(const struct link *l, struct link_stats *s)
{
	uint64_t last = oplog_last_lsn(l->primary->log);
	uint64_t acked = atomic_load_explicit(&l->acked_lsn, memory_order_relaxed);
	unsigned lanes = atomic_load_explicit(&l->lanes, memory_order_relaxed);
	uint64_t sent_records = atomic_load_explicit(&l->sent_records, memory_order_relaxed);

	*s = (struct link_stats){
		.state = l->state,
		.held_from_lsn = l->hold_lsn == UINT64_MAX ? 0 : l->hold_lsn,
		.pace_bytes = l->hold_pace,
		.acked_lsn = acked,
		.applied_lsn = atomic_load_explicit(&l->applied_lsn, memory_order_relaxed),
		.sent_lsn = atomic_load_explicit(&l->sent_lsn, memory_order_relaxed),
		.lag_records = last > acked ? last - acked : 0,
		.sent_bytes = atomic_load_explicit(&l->sent_bytes, memory_order_relaxed),
		.sent_records = sent_records,
		.reconnects = atomic_load_explicit(&l->reconnects, memory_order_relaxed),
		.from_log_records =
			atomic_load_explicit(&l->from_log_records, memory_order_relaxed),
		.resync_done_bytes = atomic_load_explicit(&l->resync_done, memory_order_relaxed),
		.resync_total_bytes = atomic_load_explicit(&l->resync_total, memory_order_relaxed),
		.resync_rate_bytes = atomic_load_explicit(&l->resync_rate, memory_order_relaxed),
		.resync_installed_bytes =
			atomic_load_explicit(&l->resync_installed, memory_order_relaxed),
		.mtu_bytes = atomic_load_explicit(&l->mtu_bytes, memory_order_relaxed),
		.lanes = lanes,
		.lanes_down = atomic_load_explicit(&l->lanes_down, memory_order_relaxed),
		.lanes_replaced = atomic_load_explicit(&l->lanes_replaced, memory_order_relaxed),
		.lanes_active = lanes ? link_lanes_active(l, lanes) : 0,
		.lanes_draining = link_lanes_draining(l),
		.knobs = l->wake_ep ? l->tops->knobs : 0,
		.rtt_ns = atomic_load_explicit(&l->rtt_ns, memory_order_relaxed),
	};
	/* An estimate: records behind times the mean size so far. */
	if (sent_records)
		s->lag_bytes = s->lag_records * (s->sent_bytes / sent_records);
	link_load_stats_locked(l, s);
	addr_format(&l->addr, s->addr, sizeof(s->addr));
	memcpy(s->transport, l->transport, sizeof(s->transport));
	memcpy(s->interface, l->interface, sizeof(s->interface));
	memcpy(s->transport_note, l->transport_note, sizeof(s->transport_note));
	memcpy(s->mtu_note, l->mtu_note, sizeof(s->mtu_note));
	memcpy(s->last_error, l->last_error, sizeof(s->last_error));
	memcpy(s->ended_why, l->ended_why, sizeof(s->ended_why));
	s->ended_ns = l->ended_ns;
}

unsigned primary_stats(struct primary *p, struct link_stats *ret_stats, unsigned max)
{
	unsigned n = p->cfg.mirror_count < max ? p->cfg.mirror_count : max;

	pthread_mutex_lock(&p->lock);
	for (unsigned i = 0; i < n; i++)
		primary_link_stats_locked(&p->links[i], &ret_stats[i]);
	pthread_mutex_unlock(&p->lock);
	return n;
}
