/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log room: reserved before a change is applied, so that a record with an LSN always fits, and
 * asking for the checkpoints that make more.
 */
#include "replication/commit/commit_internal.h"

#include "common/clock.h"

#include <errno.h>

/* Switching pools can leave up to one record's room unused at the old one's end, twice while a
 * group is split. Less in small pools, but for the largest record and the new pool's first one. */
#define COMMIT_ROOM_SLACK (2ULL * RECORD_BYTES_MAX)
#define COMMIT_ROOM_SLACK_MIN (RECORD_BYTES_MAX + 4096ULL)

/* A look that is meant for one record, whatever it is. */
#define COMMIT_ROOMY_BYTES RECORD_BYTES_MAX

/* The same of urgent ones, which have no data. */
#define COMMIT_URGENT_BYTES (64ULL << 10)

void commit_room_init(struct commit *c)
{
	struct oplog_usage u;

	oplog_usage(c->log, &u);
	c->slack = u.active_capacity_bytes / 8;
	if (c->slack > COMMIT_ROOM_SLACK)
		c->slack = COMMIT_ROOM_SLACK;
	if (c->slack < COMMIT_ROOM_SLACK_MIN && u.active_capacity_bytes / 4 > COMMIT_ROOM_SLACK_MIN)
		c->slack = COMMIT_ROOM_SLACK_MIN;
	c->reserve = c->slack + u.active_capacity_bytes / 16;
	commit_room_update_locked(c);
}

void commit_room_update_locked(struct commit *c)
{
	struct oplog_usage u;
	uint64_t room;

	if (c->failed || c->switching)
		return;
	oplog_usage(c->log, &u);
	room = u.active_capacity_bytes - u.active_used_bytes;
	if (u.covered && !commit_heeds_hold(&u))
		room += u.active_capacity_bytes - c->slack;
	atomic_store_explicit(&c->room, room, memory_order_seq_cst);
	/* of what it has already a checkpoint makes no room: that is for the next record to ask */
	if (u.active_used_bytes * 10 > u.active_capacity_bytes * 7 && !u.all_covered &&
	    !atomic_exchange_explicit(&c->checkpoint_wanted, true, memory_order_relaxed))
		c->cfg.want_checkpoint(c->cfg.ctx);
}

bool commit_room_give_up_rest_locked(struct commit *c)
{
	struct oplog_usage u;
	uint64_t left;

	oplog_usage(c->log, &u);
	left = u.active_capacity_bytes - c->slack;
	if (left < atomic_load_explicit(&c->room, memory_order_relaxed))
		atomic_store_explicit(&c->room, left, memory_order_seq_cst);
	if (atomic_load_explicit(&c->admitted, memory_order_seq_cst) <= left)
		return true;
	commit_room_update_locked(c);
	return false;
}

/* Who lowers room looks at admitted afterwards, and who adds to admitted at room: one of the two
 * sees the other. Bytes that were appended leave admitted after they have left room. */
static bool commit_admit_try(struct commit *c, uint32_t bytes, bool urgent)
{
	uint64_t keep = urgent ? 0 : c->reserve;
	uint64_t admitted;

	if (commit_is_read_only(c))
		return false;
	admitted = atomic_fetch_add_explicit(&c->admitted, bytes, memory_order_seq_cst) + bytes;
	if (admitted + keep <= atomic_load_explicit(&c->room, memory_order_seq_cst))
		return true;
	atomic_fetch_sub_explicit(&c->admitted, bytes, memory_order_relaxed);
	return false;
}

bool commit_is_roomy(const struct commit *c)
{
	uint64_t admitted = atomic_load_explicit(&c->admitted, memory_order_relaxed);
	uint64_t room = atomic_load_explicit(&c->room, memory_order_relaxed);

	return !atomic_load_explicit(&c->pace_bytes, memory_order_relaxed) &&
	       !commit_is_read_only(c) &&
	       admitted + c->reserve + COMMIT_ROOMY_BYTES <= room;
}

bool commit_has_urgent_room(const struct commit *c)
{
	return atomic_load_explicit(&c->admitted, memory_order_relaxed) + COMMIT_URGENT_BYTES <=
	       atomic_load_explicit(&c->room, memory_order_relaxed);
}

bool commit_admit_now(struct commit *c, uint32_t bytes, bool urgent)
{
	if (!urgent && atomic_load_explicit(&c->pace_bytes, memory_order_relaxed))
		return false;
	return commit_admit_try(c, bytes, urgent);
}

/* Waits for this admission's turn; one that is past its deadline goes on, and is told so by what
 * follows. */
static void commit_pace_wait(struct commit *c, uint32_t bytes, uint64_t deadline_ns)
{
	uint64_t now = clock_mono_ns(), pace, turn_ns;

	pthread_mutex_lock(&c->lock);
	pace = atomic_load_explicit(&c->pace_bytes, memory_order_relaxed);
	if (c->pace_turn_ns < now)
		c->pace_turn_ns = now;
	turn_ns = c->pace_turn_ns;
	if (pace && turn_ns < deadline_ns) /* a later turn is never waited for */
		c->pace_turn_ns += (uint64_t)bytes * NSEC_PER_SEC / pace;
	if (turn_ns > deadline_ns)
		turn_ns = deadline_ns;
	while (!c->failed && !commit_is_read_only(c) &&
	       atomic_load_explicit(&c->pace_bytes, memory_order_relaxed) &&
	       clock_mono_ns() < turn_ns)
		commit_sleep_locked(c, turn_ns);
	pthread_mutex_unlock(&c->lock);
}

void commit_pace(struct commit *c, uint64_t bytes_per_s)
{
	if (atomic_load_explicit(&c->pace_bytes, memory_order_relaxed) == bytes_per_s)
		return;
	pthread_mutex_lock(&c->lock);
	atomic_store_explicit(&c->pace_bytes, bytes_per_s, memory_order_relaxed);
	if (!bytes_per_s) {
		c->pace_turn_ns = 0;
		commit_wake_locked(c);
	}
	pthread_mutex_unlock(&c->lock);
}

void commit_log_released(struct commit *c)
{
	pthread_mutex_lock(&c->lock);
	commit_room_update_locked(c);
	commit_wake_locked(c);
	pthread_mutex_unlock(&c->lock);
}

int commit_admit(struct commit *c, uint32_t bytes, bool urgent, uint64_t deadline_ns)
{
	uint64_t mine;
	int err = 0, waited = 0;

	if (!urgent && atomic_load_explicit(&c->pace_bytes, memory_order_relaxed) &&
	    !commit_is_read_only(c))
		commit_pace_wait(c, bytes, deadline_ns);
	if (commit_admit_try(c, bytes, urgent))
		return 0;
	pthread_mutex_lock(&c->lock);
	mine = c->checkpoint_begun + 1; /* may find the disk space that the one before lacked */
	while (!c->failed && !commit_admit_try(c, bytes, urgent)) {
		if (commit_is_read_only(c)) {
			err = -EROFS;
			break;
		}
		if (waited || (c->checkpoint_err && c->checkpoint_ended >= mine)) {
			err = c->checkpoint_err == -ENOSPC ? -ENOSPC : -EIO;
			break;
		}
		if (!atomic_exchange_explicit(&c->checkpoint_wanted, true, memory_order_relaxed))
			c->cfg.want_checkpoint(c->cfg.ctx);
		waited = commit_sleep_locked(c, deadline_ns);
	}
	if (c->failed)
		err = -EIO;
	pthread_mutex_unlock(&c->lock);
	return err;
}

void commit_unadmit(struct commit *c, uint32_t bytes)
{
	atomic_fetch_sub_explicit(&c->admitted, bytes, memory_order_relaxed);
}

void commit_checkpoint_begin(struct commit *c)
{
	pthread_mutex_lock(&c->lock);
	c->checkpoint_begun++;
	pthread_mutex_unlock(&c->lock);
}

void commit_checkpoint_done(struct commit *c, int err)
{
	pthread_mutex_lock(&c->lock);
	c->checkpoint_ended = c->checkpoint_begun;
	c->checkpoint_err = err;
	atomic_store_explicit(&c->checkpoint_wanted, false, memory_order_relaxed);
	if (!err)
		commit_room_update_locked(c);
	commit_wake_locked(c);
	pthread_mutex_unlock(&c->lock);
}
