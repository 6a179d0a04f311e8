/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who polls a live link's endpoint. While nothing is to be sent from the log the link's thread
 * lends it to the threads that serve requests ("helpers"): one that has posted records looks for
 * their acknowledgement itself, and so saves waking the link's thread, and that thread's waking it
 * again. A helper borrows the endpoint for one poll that does not wait. When it has no more time,
 * it recalls to the link's thread what is still on its way; so does every other thread that posts.
 *
 * Never lost: that owner says LENT, and that records are on their way or left to the link's thread
 * (behind), are each written before the other is read, all sequentially consistent, by the lender
 * and by whoever posts or leaves.
 */
#include "replication/primary/link.h"

#include "common/clock.h"
#include "common/thread.h"

#define HELP_NS (100 * NSEC_PER_USEC) /* an acknowledgement that takes longer is its thread's */
#define HELP_PAUSE 512 /* times that help, once in vain, is not given before it is tried again */

static _Thread_local bool is_helper;

static bool link_on_way(const struct link *l)
{
	return atomic_load(&l->sent_lsn) > atomic_load(&l->acked_lsn);
}

bool link_lend(struct link *l, uint64_t timeout_ns, int *ret_err)
{
	uint64_t deadline = clock_mono_ns() + timeout_ns;
	bool lent;
	int err = 0;

	pthread_mutex_lock(&l->lend_lock);
	atomic_store(&l->owner, LINK_LENT);
	lent = !atomic_load(&l->send.behind) &&
	       (!link_on_way(l) || atomic_load(&l->primary->helping) > 0);
	if (!lent)
		atomic_store(&l->owner, LINK_OWN);
	while (l->owner == LINK_LENT && !err)
		err = thread_cond_wait_until(&l->returned, &l->lend_lock, deadline);
	while (l->owner == LINK_BORROWED) { /* for one poll */
		l->recalled = true;
		pthread_cond_wait(&l->returned, &l->lend_lock);
	}
	atomic_store(&l->owner, LINK_OWN);
	l->recalled = false;
	*ret_err = l->lend_err;
	l->lend_err = 0;
	pthread_mutex_unlock(&l->lend_lock);
	return lent;
}

void link_recall(struct link *l)
{
	if (atomic_load(&l->owner) == LINK_OWN)
		return;
	pthread_mutex_lock(&l->lend_lock);
	if (l->owner == LINK_LENT) {
		atomic_store(&l->owner, LINK_OWN);
		pthread_cond_signal(&l->returned);
	} else if (l->owner == LINK_BORROWED) {
		l->recalled = true;
	}
	pthread_mutex_unlock(&l->lend_lock);
}

void link_posted(struct link *l)
{
	if (!is_helper || atomic_load(&l->send.behind))
		link_recall(l);
}

static bool link_borrow(struct link *l)
{
	bool got;

	if (atomic_load_explicit(&l->owner, memory_order_relaxed) != LINK_LENT)
		return false;
	pthread_mutex_lock(&l->lend_lock);
	got = l->owner == LINK_LENT;
	if (got)
		atomic_store(&l->owner, LINK_BORROWED);
	pthread_mutex_unlock(&l->lend_lock);
	return got;
}

static void link_give_back(struct link *l, int err)
{
	pthread_mutex_lock(&l->lend_lock);
	l->lend_err = err;
	if (err || l->recalled || link_pump_wanted(l)) {
		atomic_store(&l->owner, LINK_OWN);
		pthread_cond_signal(&l->returned);
	} else {
		atomic_store(&l->owner, LINK_LENT);
	}
	pthread_mutex_unlock(&l->lend_lock);
}

/* False: nothing is on its way, or its link's thread sees to it. */
static bool link_help(struct link *l)
{
	if (!link_on_way(l))
		return false;
	if (!link_borrow(l)) /* another helper has it? */
		return atomic_load_explicit(&l->owner, memory_order_relaxed) != LINK_OWN;
	link_give_back(l, link_session_poll(l, 0));
	return link_on_way(l);
}

static void helper_enter(struct primary_helper *h)
{
	is_helper = true;
	h->in = true;
	h->mean_ns = HELP_NS / 2;
	atomic_fetch_add_explicit(&h->primary->helpers, 1, memory_order_relaxed);
}

void primary_helper_leave(struct primary_helper *h)
{
	if (!h->in)
		return;
	is_helper = h->in = false;
	atomic_fetch_sub_explicit(&h->primary->helpers, 1, memory_order_relaxed);
	for (unsigned i = 0; i < h->primary->cfg.mirror_count; i++)
		link_recall(&h->primary->links[i]);
}

bool primary_help_begin(struct primary_helper *h)
{
	struct primary *p = h->primary;
	bool on_way = false;

	/* with protocol A nobody waits for what is on its way */
	if (!p || commit_protocol_of(p->commit) == COMMIT_PROTOCOL_A)
		return false;
	for (unsigned i = 0; i < p->cfg.mirror_count; i++)
		on_way |= link_on_way(&p->links[i]);
	if (!on_way)
		return false;
	if (!h->in && h->pause > 0) {
		h->pause--;
		return false;
	}
	if (!h->in)
		helper_enter(h);
	h->since_ns = clock_mono_ns();
	atomic_fetch_add(&p->helping, 1);
	return true;
}

bool primary_help(struct primary_helper *h)
{
	struct primary *p = h->primary;
	bool on_way = false;

	for (unsigned i = 0; i < p->cfg.mirror_count; i++)
		on_way |= link_help(&p->links[i]);
	h->took_ns = clock_mono_ns() - h->since_ns;
	h->in_vain = on_way && h->took_ns >= HELP_NS;
	return on_way && !h->in_vain;
}

void primary_help_end(struct primary_helper *h, bool back_soon)
{
	struct primary *p = h->primary;

	atomic_fetch_sub(&p->helping, 1);
	if (!back_soon || h->in_vain)
		h->mean_ns = (7 * h->mean_ns + (h->in_vain ? 2 * HELP_NS : h->took_ns)) / 8;
	if (h->mean_ns > HELP_NS) {
		h->pause = HELP_PAUSE;
		primary_helper_leave(h);
		return;
	}
	for (unsigned i = 0; i < p->cfg.mirror_count && (!back_soon || h->in_vain); i++)
		if (link_on_way(&p->links[i]))
			link_recall(&p->links[i]);
}
