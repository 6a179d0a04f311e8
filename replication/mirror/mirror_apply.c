/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run goes to the log in one append, is acknowledged, and is applied; only then is its ring
 * space free. When both pools are full the run stays where it is and is tried again, while the
 * session goes on answering heartbeats. So it is when the store has no memory for a record: what
 * was acknowledged is applied, as soon as a checkpoint's copies or other programs give memory back,
 * if need be in a later session.
 */
#include "replication/mirror/mirror_internal.h"

#include "common/clock.h"
#include "replication/commit/commit.h"

#include <errno.h>
#include <string.h>

#define MIRROR_STALL_NS (120 * NSEC_PER_SEC)
#define MIRROR_ASK_NS (500 * NSEC_PER_MSEC)
#define MIRROR_FULL_PERCENT 70
#define MIRROR_APPLY_NS (200 * NSEC_PER_MSEC) /* then heartbeats are answered first */

static void mirror_want_checkpoint(struct mirror *m, unsigned pool, uint64_t epoch)
{
	if (m->wanted_pool == pool + 1)
		return;
	m->wanted_pool = pool + 1;
	if (m->ops->want_checkpoint)
		m->ops->want_checkpoint(m->ctx, epoch);
}

/* Now and then: asks for a checkpoint, once a pool, when the active pool fills up. */
static void mirror_watch_log(struct mirror *m)
{
	struct oplog_usage u;

	m->appended_since_look += m->run.bytes;
	oplog_usage(m->log, &u);
	if (m->appended_since_look < u.active_capacity_bytes / 64)
		return;
	m->appended_since_look = 0;
	if (u.active_used_bytes / MIRROR_FULL_PERCENT > u.active_capacity_bytes / 100)
		mirror_want_checkpoint(m, u.active_pool, m->last_epoch);
}

static int mirror_append(struct mirror *m)
{
	const struct mirror_run *run = &m->run;
	int err = oplog_append(m->log, run->iov, (int)run->count, run->first_lsn, run->count, true);

	if (err != -ENOSPC)
		return err;
	/* not the run's last epoch: the log takes no record of an older one than its
	 * pool begins with */
	err = oplog_switch(m->log, run->records[0].epoch);
	if (err)
		return err == -EBUSY ? -ENOSPC : err;
	m->wanted_pool = 0;
	return oplog_append(m->log, run->iov, (int)run->count, run->first_lsn, run->count, true);
}

/* No room: a checkpoint must make some. One that fails is asked for again. */
static int mirror_stall(struct mirror *m)
{
	uint64_t now = clock_mono_ns();

	if (!m->stalled_since_ns || now - m->asked_ns > MIRROR_ASK_NS) {
		if (!m->stalled_since_ns)
			m->stalled_since_ns = now;
		m->asked_ns = now;
		m->wanted_pool = 0;
		mirror_want_checkpoint(m, 0, m->run.records[0].epoch);
		m->wanted_pool = 0;
	}
	if (now - m->stalled_since_ns > MIRROR_STALL_NS) {
		return mirror_fail(m, -ENOSPC, "the log is full and no checkpoint makes room");
	}
	return 0;
}

static bool mirror_lacks_memory(int err)
{
	return err == -ENOSPC || err == -ENOMEM;
}

/* No memory for the next record: a store takes all of a record or nothing. */
static int mirror_apply_stall(struct mirror *m, int err)
{
	const struct mirror_run *run = &m->run;
	const struct record *r = &run->records[run->applied];
	uint64_t now = clock_mono_ns();

	if (!m->stalled_since_ns)
		m->stalled_since_ns = now;
	else if (now - m->stalled_since_ns <= MIRROR_STALL_NS)
		return 0;
	else
		m->stalled_since_ns = 0;
	return mirror_fail(m, m->stalled_since_ns ? 0 : err,
			   "no memory for record %llu (%s), is tried again: %s",
			   (unsigned long long)r->lsn, record_opcode_name(r->opcode),
			   strerror(-err));
}

/* In the store's time: some records take long. */
static int mirror_apply_some(struct mirror *m)
{
	uint64_t until_ns = clock_mono_ns() + MIRROR_APPLY_NS;
	struct mirror_run *run = &m->run;
	int err = 0;

	while (run->applied < run->count && clock_mono_ns() < until_ns) {
		const struct record *r = &run->records[run->applied];

		err = m->ops->apply(m->ctx, r);
		if (err)
			break;
		run->applied++;
		m->applied_lsn = r->lsn;
	}
	atomic_store_explicit(&m->seen_applied, m->applied_lsn, memory_order_relaxed);
	return err;
}

/* What the run still has. 0 also when it waits for memory (stalled_since_ns), or is not done yet:
 * run->count is not 0 then. */
static int mirror_apply_run(struct mirror *m)
{
	struct mirror_run *run = &m->run;
	int err = mirror_apply_some(m);

	if (mirror_lacks_memory(err))
		return mirror_apply_stall(m, err);
	if (err) {
		const struct record *r = &run->records[run->applied];

		return mirror_fail_for_good(m, -EIO, "cannot apply record %llu (%s): %s",
					    (unsigned long long)r->lsn,
					    record_opcode_name(r->opcode), strerror(-err));
	}
	if (m->stalled_since_ns)
		mirror_forget_error(m);
	m->stalled_since_ns = 0;
	if (run->applied < run->count)
		return 0;
	m->ring_freed = run->ring_end;
	atomic_fetch_add_explicit(&m->records, run->count, memory_order_relaxed);
	atomic_fetch_add_explicit(&m->bytes, run->bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&m->batches, 1, memory_order_relaxed);
	mirror_run_clear(run);
	if (m->ops->applied)
		m->ops->applied(m->ctx, m->applied_lsn);
	return 0;
}

int mirror_apply_rest(struct mirror *m)
{
	int err = 0;

	m->stalled_since_ns = 0;
	while (!err && m->run.logged && !m->stalled_since_ns &&
	       !atomic_load_explicit(&m->stopping, memory_order_relaxed))
		err = mirror_apply_run(m);
	return err || m->run.count == 0 ? err : -ENOSPC;
}

/* The run is in the log and acknowledged from here on. *ret_stalled: the log had no room. */
static int mirror_log_run(struct mirror *m, bool *ret_stalled)
{
	int err;

	atomic_store_explicit(&m->seen_received, m->received_lsn, memory_order_relaxed);
	if (m->protocol == COMMIT_PROTOCOL_B && !m->stalled_since_ns)
		mirror_ack_send(m);
	err = mirror_append(m);
	*ret_stalled = err == -ENOSPC;
	if (err == -ENOSPC)
		return mirror_stall(m);
	if (err)
		return mirror_fail_for_good(m, -EIO, "the log failed: %s", strerror(-err));
	m->run.logged = true;
	m->stalled_since_ns = 0;
	m->durable_lsn = m->received_lsn;
	m->last_epoch = m->run_epoch;
	atomic_store_explicit(&m->seen_durable, m->durable_lsn, memory_order_relaxed);
	mirror_ack_send(m);
	mirror_watch_log(m);
	return 0;
}

/* One run, from memory to log and store. *ret_stalled: it waits for room in either, or takes
 * long. */
static int mirror_flush_run(struct mirror *m, bool *ret_stalled)
{
	bool logs = !m->run.logged;
	uint64_t acked_ns;
	int err;

	if (logs) {
		err = mirror_log_run(m, ret_stalled);
		if (err || *ret_stalled)
			return err;
	}
	if (!m->round_ns) {
		err = mirror_apply_run(m);
	} else {
		acked_ns = clock_mono_ns();
		if (logs)
			metric_observe(m->stage_mirror, acked_ns - m->round_ns);
		err = mirror_apply_run(m);
		m->round_ns = clock_mono_ns(); /* another run of this round begins here */
		metric_observe(m->stage_apply, m->round_ns - acked_ns);
	}
	*ret_stalled = m->run.count > 0;
	return err;
}

int mirror_flush(struct mirror *m)
{
	bool stalled = false;
	int err = 0;

	while (!err && !stalled && m->run.count > 0) {
		err = mirror_flush_run(m, &stalled);
		if (!err && !stalled)
			err = mirror_rx_pull(m);
	}
	/* The rest of the news can wait for the next acknowledgement, unless the sender may need
	 * the space. */
	if (m->ring_freed - m->ring_freed_told > m->ring_bytes / 4)
		m->ack_due = true;
	return err;
}
