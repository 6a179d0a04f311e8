/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holding the log for a mirror that is being caught up or resynced, and slowing the writers so that
 * it gets there. All on the link's thread; what the links ask for together is worked out under
 * primary.lock.
 *
 * The log is two pools: while the mirror still needs the older one it is not rewound, so the other
 * can fill. Meanwhile the writers get what lets the mirror leave the older one (or end its resync)
 * before HOLD_END_PERCENT of the other are used, and HOLD_GRACE_NS after the catch-up began no more
 * than half of what the mirror takes, so that it catches up; never less than HOLD_PACE_MIN. While
 * the mirror installs its image they get what lasts until its end at the rate that it tells, and
 * ever less while it tells of nothing new (hold_install_pace), and keep that until it is seen what
 * the catch-up takes. At HOLD_END_PERCENT, or when the mirror has taken nothing for HOLD_STUCK_NS
 * (of an install for HOLD_INSTALL_TIMES what it was expected to take), the hold ends: the log is
 * rewound as if there were no mirror, and that gets a resync. So one slow mirror costs speed for a
 * while, and never room in the log that a writer was promised.
 */
#include "replication/primary/link.h"

#include "common/clock.h"

#define HOLD_END_PERCENT 55
#define HOLD_GRACE_NS (3 * NSEC_PER_SEC)
#define HOLD_STUCK_NS (2 * NSEC_PER_SEC)
#define HOLD_SAMPLE_NS (200 * NSEC_PER_MSEC)
#define HOLD_PACE_MIN (256ULL << 10) /* bytes a second */
#define HOLD_INSTALL_NS NSEC_PER_SEC  /* to install an image, at least; else the time to send it */
#define HOLD_INSTALL_TIMES 10         /* as much is the most that the log is held for it */

/* What all links want together goes to log and commit queue. */
static void hold_publish(struct link *l, uint64_t lsn, uint64_t pace)
{
	struct primary *p = l->primary;
	uint64_t min_lsn = UINT64_MAX, min_pace = 0;
	bool released;

	pthread_mutex_lock(&p->lock);
	released = lsn > l->hold_lsn;
	l->hold_lsn = lsn;
	l->hold_pace = pace;
	for (unsigned i = 0; i < p->cfg.mirror_count; i++) {
		const struct link *x = &p->links[i];

		if (x->hold_lsn < min_lsn)
			min_lsn = x->hold_lsn;
		if (x->hold_pace && (!min_pace || x->hold_pace < min_pace))
			min_pace = x->hold_pace;
	}
	oplog_hold(p->log, min_lsn);
	commit_pace(p->commit, min_pace); /* in the order in which it was worked out */
	pthread_mutex_unlock(&p->lock);
	if (released)
		commit_log_released(p->commit);
}

void link_hold_begin(struct link *l, uint64_t from_lsn, uint64_t done)
{
	/* after a resync the writers are as slow as they were until the first sample */
	uint64_t now = clock_mono_ns(), pace = l->hold.on ? l->hold_pace : 0;

	l->hold = (struct link_hold){
		.on = true,
		.began_ns = now,
		.moved_ns = now,
		.sample_ns = now,
		.sample_done = done,
		.last_done = done,
	};
	hold_publish(l, from_lsn, pace);
}

void link_hold_end(struct link *l)
{
	if (!l->hold.on)
		return;
	l->hold.on = false;
	hold_publish(l, UINT64_MAX, 0);
}

/* What the mirror takes a second, of some samples; done is what it has taken so far. */
static uint64_t hold_rate(struct link_hold *h, uint64_t done, uint64_t now)
{
	uint64_t elapsed = now - h->sample_ns;

	if (done != h->last_done)
		h->moved_ns = now;
	h->last_done = done;
	if (elapsed >= HOLD_SAMPLE_NS) {
		uint64_t rate = (uint64_t)((double)(done - h->sample_done) * 1e9 / (double)elapsed);

		h->rate = h->rate ? (3 * h->rate + rate) / 4 : rate;
		h->sample_ns = now;
		h->sample_done = done;
	}
	return h->rate;
}

static bool hold_log_lets(const struct oplog_usage *u)
{
	return !u->held || u->active_used_bytes / HOLD_END_PERCENT < u->active_capacity_bytes / 100;
}

/* Whether the hold goes on, as far as log and mirror let it. */
static bool hold_goes_on(struct link *l, const struct oplog_usage *u, uint64_t now)
{
	return now - l->hold.moved_ns <= HOLD_STUCK_NS && hold_log_lets(u);
}

/* Bytes that may still be written before the hold ends. */
static uint64_t hold_room(const struct oplog_usage *u)
{
	uint64_t end = u->active_capacity_bytes / 100 * HOLD_END_PERCENT;

	return end > u->active_used_bytes ? end - u->active_used_bytes : 0;
}

/* What may be written a second, when room is to last until left of something are done at rate. */
static uint64_t hold_share(uint64_t room, uint64_t rate, uint64_t left)
{
	return (uint64_t)((double)room * (double)rate / (double)(left + 1));
}

static uint64_t hold_at_least(uint64_t pace)
{
	return pace < HOLD_PACE_MIN ? HOLD_PACE_MIN : pace;
}

/* Mean bytes of the records that the mirror got. */
static uint64_t hold_record_bytes(const struct link *l)
{
	uint64_t n = atomic_load_explicit(&l->sent_records, memory_order_relaxed);

	return n ? atomic_load_explicit(&l->sent_bytes, memory_order_relaxed) / n : 0;
}

void link_hold_catchup(struct link *l, uint64_t acked_lsn, uint64_t now)
{
	struct link_hold *h = &l->hold;
	uint64_t rate, half, pace = 0;
	struct oplog_usage u;

	if (!h->on)
		return;
	rate = hold_rate(h, acked_lsn, now);
	oplog_usage(l->primary->log, &u);
	if (!hold_goes_on(l, &u, now)) {
		link_hold_end(l);
		return;
	}
	if (!rate) {
		hold_publish(l, acked_lsn + 1, l->hold_pace);
		return;
	}
	half = rate * hold_record_bytes(l) / 2;
	if (u.held && u.active_base_lsn > acked_lsn)
		pace = hold_at_least(
			hold_share(hold_room(&u), rate, u.active_base_lsn - acked_lsn));
	if (now - h->began_ns > HOLD_GRACE_NS && (!pace || half < pace))
		pace = hold_at_least(half);
	hold_publish(l, acked_lsn + 1, pace);
}

void link_hold_resync(struct link *l, uint64_t done, uint64_t total, uint64_t now)
{
	struct link_hold *h = &l->hold;
	struct oplog_usage u;
	uint64_t rate, pace = 0;

	if (!h->on)
		return;
	rate = hold_rate(h, done, now);
	oplog_usage(l->primary->log, &u);
	if (!hold_goes_on(l, &u, now)) {
		link_hold_end(l);
		return;
	}
	if (rate && total > done && u.held)
		pace = hold_at_least(hold_share(hold_room(&u), rate, total - done));
	hold_publish(l, l->hold_lsn, pace);
}

/* Of room bytes, when a wait that was expected to take expected_ns has taken so long: the room left
 * falls as one over the time, and a wait of any length leaves some. */
static uint64_t hold_install_pace(uint64_t room, uint64_t expected_ns, uint64_t waited_ns)
{
	return (uint64_t)((double)room * 1e9 / (double)(expected_ns + waited_ns));
}

void link_hold_install_begin(struct link *l, uint64_t now)
{
	struct link_hold *h = &l->hold;

	h->sent_ns = h->moved_ns = h->sample_ns = now;
	h->sample_done = h->last_done = h->rate = 0;
}

/* What it takes, before anything is seen of it: as long as to send it. */
static uint64_t hold_install_expected(const struct link_hold *h)
{
	uint64_t expected = h->sent_ns - h->began_ns;

	return expected < HOLD_INSTALL_NS ? HOLD_INSTALL_NS : expected;
}

void link_hold_install(struct link *l, uint64_t done, uint64_t total, uint64_t now)
{
	struct link_hold *h = &l->hold;
	uint64_t rate, pace, share, waited, expected;
	struct oplog_usage u;

	if (!h->on)
		return;
	rate = done ? hold_rate(h, done, now) : 0;
	expected = hold_install_expected(h);
	/* it tells of nothing, or has come to what can't be told, or stands still */
	waited = now - h->moved_ns;
	oplog_usage(l->primary->log, &u);
	if (waited / HOLD_INSTALL_TIMES > expected || !hold_log_lets(&u)) {
		link_hold_end(l);
		return;
	}
	pace = hold_install_pace(hold_room(&u), expected, waited);
	if (rate && done < total) {
		share = hold_share(hold_room(&u), rate, total - done);
		if (share < pace)
			pace = share;
	}
	hold_publish(l, l->hold_lsn, u.held ? hold_at_least(pace) : 0);
}
