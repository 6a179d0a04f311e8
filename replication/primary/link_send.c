/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sending records into the mirror's ring (link.h). Every record lies contiguous at a multiple of 64
 * bytes; where the rest of the ring is too short for it, the rest is skipped. Records go strictly
 * by LSN, each batch on one lane, batches in turn over the lanes. Only the mirror's acknowledgement
 * frees space.
 */
#include "replication/primary/link.h"

#include "common/clock.h"

#include <errno.h>
#include <string.h>

static uint64_t link_round_unit(uint64_t bytes)
{
	return (bytes + TRANSPORT_IMM_UNIT - 1) / TRANSPORT_IMM_UNIT * TRANSPORT_IMM_UNIT;
}

/* A place for bytes after head. False: not free yet. */
static bool link_ring_place(const struct link_sender *s, uint64_t head, uint64_t freed,
			    uint64_t bytes, uint64_t *ret_off, uint64_t *ret_head)
{
	uint64_t need = link_round_unit(bytes);
	uint64_t at = head % s->ring_bytes;
	uint64_t skip = at + need > s->ring_bytes ? s->ring_bytes - at : 0;

	if (head + skip + need - freed > s->ring_bytes)
		return false;
	*ret_off = skip ? 0 : at;
	*ret_head = head + skip + need;
	return true;
}

bool link_batch_add_locked(struct link *l, unsigned n, unsigned iov_at, unsigned iovcnt,
			   uint32_t bytes)
{
	struct link_sender *s = &l->send;
	uint64_t freed = atomic_load_explicit(&l->ring_freed, memory_order_acquire);
	uint64_t acked = atomic_load_explicit(&l->acked_lsn, memory_order_acquire);
	uint64_t head = n ? s->head_after[n - 1] :
			    atomic_load_explicit(&s->ring_head, memory_order_relaxed);
	uint64_t off;

	if (s->next_lsn + n - acked > s->window_records)
		return false;
	if (!link_ring_place(s, head, freed, bytes, &off, &s->head_after[n]))
		return false;
	s->bytes[n] = bytes;
	s->posts[n] = (struct transport_post){
		.iov = &s->iov[iov_at],
		.iovcnt = (int)iovcnt,
		.remote_off = off,
		.imm = (uint32_t)(off / TRANSPORT_IMM_UNIT),
	};
	return true;
}

/* In turn over those that are not parked. */
static unsigned link_next_lane_locked(struct link *l)
{
	struct link_sender *s = &l->send;

	s->lane = (s->lane + 1) % link_lanes_active(l, s->lanes);
	return s->lane;
}

static void link_suspend_locked(struct link_sender *s, uint64_t now_ns)
{
	if (!s->suspended)
		s->suspended_ns = now_ns;
	s->suspended = true;
	atomic_store(&s->behind, true); /* with owner: link_lend.c */
}

unsigned link_batch_post_locked(struct link *l, unsigned n)
{
	struct link_sender *s = &l->send;
	uint64_t bytes = 0, now = clock_mono_ns();
	int taken;

	if (n == 0)
		return 0;
	link_next_lane_locked(l);
	link_metrics_post(&l->times, s->next_lsn + n - 1, n, now);
	taken = l->tops->post(l->ep, s->lane, s->posts, n);
	link_metrics_posted(&l->times, s->next_lsn + n - 1, n, taken < 0 ? 0 : (unsigned)taken);
	if (taken == -ENOTCONN && link_replace_can(l)) {
		/* Some of it may have gone: nothing more until the mirror says what it has. */
		link_suspend_locked(s, now);
		s->perhaps_lsn = s->next_lsn + n - 1;
		s->perhaps_head = s->head_after[n - 1];
	} else if (taken < 0) {
		/* An error ends the session: the link's thread looks for it. */
		s->err = taken;
	}
	if (taken <= 0)
		return 0;
	s->posted[s->lane] += (unsigned)taken;
	for (int i = 0; i < taken; i++)
		bytes += s->bytes[i];
	atomic_store_explicit(&s->ring_head, s->head_after[taken - 1], memory_order_relaxed);
	s->next_lsn += (unsigned)taken;
	atomic_store_explicit(&l->lane_lsn[s->lane], s->next_lsn - 1, memory_order_relaxed);
	if (!s->unacked) {
		s->unacked = true;
		s->since_ns = now;
		s->since_lsn = s->next_lsn - 1;
	}
	atomic_store(&l->sent_lsn, s->next_lsn - 1); /* before owner is looked at: link_lend.c */
	link_count_add(&l->sent_bytes, bytes);
	link_count_add(&l->sent_records, (unsigned)taken);
	return (unsigned)taken;
}

/* As many of ops as one batch holds. Returns how many were posted. */
static unsigned link_post_some_locked(struct link *l, struct op *const *ops, unsigned n)
{
	struct link_sender *s = &l->send;
	unsigned count = 0, iovcnt = 0, max = link_batch_max(l);

	while (count < n && count < max) {
		struct op *op = ops[count];
		unsigned at = iovcnt;

		if (iovcnt + 1 + op->data_iovcnt > LINK_BATCH_IOV)
			break;
		s->iov[iovcnt++] = (struct iovec){ op->head, op->head_len };
		for (unsigned i = 0; i < op->data_iovcnt; i++)
			s->iov[iovcnt++] = op->data[i];
		if (!link_batch_add_locked(l, count, at, iovcnt - at, op->head_len + op->data_len))
			break;
		count++;
	}
	count = link_batch_post_locked(l, count);
	/* The leader holds them all until we return. */
	for (unsigned i = 0; i < count; i++)
		link_keep_locked(l, ops[i]);
	return count;
}

static void link_post_locked(struct link *l, struct op *const *ops, unsigned n)
{
	struct link_sender *s = &l->send;

	if (!s->streaming || atomic_load_explicit(&s->behind, memory_order_relaxed))
		return;
	/* The link's thread may have read the first of them from the log already. */
	while (n > 0 && ops[0]->lsn < s->next_lsn) {
		ops++;
		n--;
	}
	if (n == 0)
		return;
	if (ops[0]->lsn != s->next_lsn) {
		atomic_store(&s->behind, true); /* with owner: link_lend.c */
		return;
	}
	while (n > 0) {
		unsigned taken = link_post_some_locked(l, ops, n);

		if (taken == 0) {
			/* An acknowledgement or a WRITABLE event wakes the link's thread. */
			atomic_store(&s->behind, true);
			return;
		}
		ops += taken;
		n -= taken;
	}
}

static void link_post(void *ctx, struct op *const *ops, unsigned n)
{
	struct link *l = ctx;

	if (pthread_mutex_trylock(&l->send_lock) != 0) {
		/* seq_cst, with the exchange in link_unlock: either the holder sees missed, or we
		 * get the lock */
		atomic_store(&l->missed, true);
		if (pthread_mutex_trylock(&l->send_lock) != 0)
			return;
	}
	link_post_locked(l, ops, n);
	pthread_mutex_unlock(&l->send_lock);
	link_posted(l);
}

const struct commit_link_ops link_commit_ops = { .post = link_post };
const struct commit_link_ops link_commit_dear_ops = { .post = link_post, .dear = true };

/* Who has the endpoint gives send_lock back, and learns whether the leader came meanwhile and left
 * it its records. */
void link_unlock(struct link *l)
{
	pthread_mutex_unlock(&l->send_lock);
	if (atomic_exchange(&l->missed, false))
		l->pump_wanted = true;
}

void link_send_begin(struct link *l, uint64_t next_lsn)
{
	struct link_sender *s = &l->send;

	pthread_mutex_lock(&l->send_lock);
	s->next_lsn = next_lsn;
	s->ring_bytes = l->tops->remote_window_bytes(l->ep);
	atomic_store_explicit(&s->ring_head, 0, memory_order_relaxed);
	/* our own table of what is under way has no more places */
	s->window_records = l->welcome.window_records < REPL_WINDOW_RECORDS ?
				    l->welcome.window_records :
				    REPL_WINDOW_RECORDS;
	s->lanes = l->tops->lanes(l->ep);
	s->lane = 0;
	for (unsigned i = 0; i < TRANSPORT_LANES_MAX; i++)
		atomic_store_explicit(&l->lane_lsn[i], 0, memory_order_relaxed);
	memset(s->posted, 0, sizeof(s->posted));
	s->perhaps_lsn = s->perhaps_head = 0;
	s->unacked = s->waiting = s->suspended = false;
	s->err = 0;
	atomic_store_explicit(&s->behind, true, memory_order_relaxed);
	s->streaming = true;
	atomic_store_explicit(&l->ring_freed, 0, memory_order_release);
	atomic_store_explicit(&l->acked_lsn, next_lsn - 1, memory_order_release);
	atomic_store_explicit(&l->sent_lsn, next_lsn - 1, memory_order_relaxed);
	l->read_len = l->read_pos = 0;
	link_unlock(l);
}

void link_send_end(struct link *l)
{
	pthread_mutex_lock(&l->send_lock);
	l->send.streaming = false;
	l->send.unacked = l->send.waiting = false;
	/* nothing of it is on its way any more */
	atomic_store(&l->sent_lsn, atomic_load_explicit(&l->acked_lsn, memory_order_relaxed));
	link_unlock(l);
}

static bool link_covers_locked(const struct link_sender *s, uint64_t lsn, uint64_t ring_pos)
{
	return (lsn < s->next_lsn || lsn <= s->perhaps_lsn) &&
	       (ring_pos <= atomic_load_explicit(&s->ring_head, memory_order_relaxed) ||
		ring_pos <= s->perhaps_head);
}

void link_send_suspend(struct link *l, uint32_t *ret_posted)
{
	struct link_sender *s = &l->send;

	pthread_mutex_lock(&l->send_lock);
	link_suspend_locked(s, clock_mono_ns());
	memcpy(ret_posted, s->posted, sizeof(s->posted));
	link_unlock(l);
}

int link_send_resume(struct link *l, uint64_t lanes, uint64_t lsn, uint64_t ring_pos)
{
	struct link_sender *s = &l->send;
	int err = -EPROTO;

	pthread_mutex_lock(&l->send_lock);
	/* that the mirror has freed what lies before is known: lanes_ready_decode */
	if (link_covers_locked(s, lsn, ring_pos)) {
		err = 0;
		s->perhaps_lsn = s->perhaps_head = 0;
		s->next_lsn = lsn + 1;
		atomic_store_explicit(&s->ring_head, ring_pos, memory_order_relaxed);
		atomic_store(&l->sent_lsn, lsn);
		s->suspended = false;
		l->read_len = l->read_pos = 0;
	}
	for (unsigned i = 0; i < s->lanes; i++)
		if (lanes & 1ULL << i)
			s->posted[i] = 0;
	link_unlock(l);
	return err;
}

bool link_send_sync(struct link *l, bool in_sync)
{
	struct transport_post post = { .imm = in_sync ? REPL_IMM_IN_SYNC : REPL_IMM_OUT_OF_SYNC,
				       .control = true };
	struct link_sender *s = &l->send;
	int taken;

	pthread_mutex_lock(&l->send_lock);
	taken = l->tops->post(l->ep, REPL_SYNC_LANE, &post, 1);
	s->posted[REPL_SYNC_LANE] += taken == 1;
	link_unlock(l);
	return taken == 1;
}

bool link_send_notice(struct link *l, uint32_t imm)
{
	struct transport_post post = { .imm = imm, .control = true };
	struct link_sender *s = &l->send;
	int taken;

	pthread_mutex_lock(&l->send_lock);
	taken = l->tops->post(l->ep, link_next_lane_locked(l), &post, 1);
	s->posted[s->lane] += taken == 1;
	link_unlock(l);
	return taken == 1;
}

bool link_send_covers(struct link *l, uint64_t lsn, uint64_t ring_pos)
{
	struct link_sender *s = &l->send;
	bool covers;

	if (lsn <= atomic_load_explicit(&l->sent_lsn, memory_order_relaxed) &&
	    ring_pos <= atomic_load_explicit(&s->ring_head, memory_order_relaxed))
		return true;
	/* It may be faster than the post it answers was in counting. */
	pthread_mutex_lock(&l->send_lock);
	covers = link_covers_locked(s, lsn, ring_pos);
	link_unlock(l);
	return covers;
}

/* Ages what the log holds and the mirror lets us not send. last_lsn: of the log. */
static void link_watch_unsent_locked(struct link_sender *s, uint64_t last_lsn, uint64_t now_ns)
{
	if (s->next_lsn > last_lsn) {
		s->waiting = false;
		return;
	}
	if (!s->waiting || s->next_lsn > s->waiting_lsn) {
		s->waiting_lsn = last_lsn;
		s->waiting_since_ns = now_ns;
	}
	if (!s->waiting || s->next_lsn != s->stuck_lsn) {
		s->stuck_lsn = s->next_lsn;
		s->stuck_since_ns = now_ns;
	}
	s->waiting = true;
}

/* The leader may have posted after the caller took the time. */
static uint64_t link_age(bool holds, uint64_t since_ns, uint64_t now_ns)
{
	return holds && now_ns > since_ns ? now_ns - since_ns : 0;
}

int link_send_check(struct link *l, uint64_t acked_lsn, uint64_t now_ns, struct link_ages *ret_ages)
{
	struct link_sender *s = &l->send;
	int err;

	pthread_mutex_lock(&l->send_lock);
	if (s->unacked && acked_lsn >= s->since_lsn) {
		s->unacked = s->next_lsn - 1 > acked_lsn;
		s->since_lsn = s->next_lsn - 1;
		s->since_ns = now_ns;
	}
	link_watch_unsent_locked(s, oplog_last_lsn(l->primary->log), now_ns);
	*ret_ages = (struct link_ages){
		.unacked_ns = link_age(s->unacked, s->since_ns, now_ns),
		.unsent_ns = link_age(s->waiting, s->waiting_since_ns, now_ns),
		.stuck_ns = link_age(s->waiting, s->stuck_since_ns, now_ns),
		.suspended_ns = link_age(s->suspended, s->suspended_ns, now_ns),
	};
	err = s->err;
	link_unlock(l);
	return err;
}
