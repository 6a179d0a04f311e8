/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which history counts: primaries that start again, lose their log's end, are promoted, or come
 * back after a promotion; and who knows that a mirror is in sync.
 */
#include "replication/transport/transport_fault.h"
#include "tests/unit/repl_rig.h"
#include "tests/unit/unit_main.h"

static struct rig rig;

static void wait_live(struct rig_node *p, unsigned n)
{
	const char *why = "";
	int err = primary_wait_live(p->primary, n, RIG_WAIT_NS, &why);

	ck_assert_msg(err == 0, "not live: %s: %s", strerror(-err), why);
}

/* p's log and store lose what is behind last_lsn. */
static void lose_tail(struct rig_node *p, uint64_t last_lsn)
{
	static uint8_t buf[RIG_LOG_BYTES];
	uint64_t next = 1, got;
	size_t at = 0, len, bytes;
	struct record r;

	while (next <= last_lsn) {
		ck_assert_int_eq(oplog_read(p->log, next, buf + at, sizeof(buf) - at, &len, &got),
				 0);
		at += len;
		next = got + 1;
	}
	ck_assert_int_eq(oplog_restart(p->log, 1, 1), 0);
	len = 0;
	for (next = 1; next <= last_lsn; next++, len += bytes) {
		struct iovec iov = { .iov_base = buf + len };

		ck_assert_int_eq(record_decode(buf + len, at - len, &r, &bytes), 0);
		iov.iov_len = bytes;
		ck_assert_int_eq(oplog_append(p->log, &iov, 1, next, 1, true), 0);
	}
	for (next = last_lsn + 1; next <= p->last_lsn; next++)
		p->sums[next] = 0;
	p->last_lsn = last_lsn;
}

/* A primary with count records, both mirrors in sync with all of them. */
static void open_with_two(unsigned count)
{
	rig_open(&rig, ADDR_TCP);
	for (int i = 0; i < 2; i++)
		rig_mirror_start(&rig.m[i], NULL);
	rig.p.epoch = 0;
	rig_serve(&rig.p, (struct addr[]){ rig.m[0].listen, rig.m[1].listen }, 2, false);
	wait_live(&rig.p, 2);
	ck_assert_uint_eq(rig_write_many(&rig.p, count / 2, 8, 0), 0);
	for (int i = 0; i < 2; i++)
		rig_expect_same(&rig.p, &rig.m[i]);
}

/* Whole histories, at different places in them: the log does it, however
 * often the primary starts. */
START_TEST(restart_needs_no_resync)
{
	struct addr addrs[2];

	open_with_two(100);
	for (int i = 0; i < 2; i++)
		addrs[i] = rig.m[i].listen;
	for (int round = 0; round < 4; round++) {
		rig_primary_stop(&rig.p);
		rig_mirror_stop(&rig.m[1]); /* misses a whole epoch, and is itself started again */
		rig_serve(&rig.p, addrs, 1, false);
		wait_live(&rig.p, 1);
		ck_assert_uint_eq(rig_write_many(&rig.p, 50, 8, 0), 0);
		rig_primary_stop(&rig.p);
		rig_serve(&rig.p, addrs, 1, false); /* an epoch without a record */
		rig_primary_stop(&rig.p);
		rig_mirror_start(&rig.m[1], NULL);
		rig_serve(&rig.p, addrs, 2, false);
		wait_live(&rig.p, 2);
		if (round % 2)
			ck_assert_uint_eq(rig_write_many(&rig.p, 20, 8, 0), 0);
		for (int i = 0; i < 2; i++)
			rig_expect_same(&rig.p, &rig.m[i]);
	}
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(rig.m[i].resyncs, 0);
		ck_assert_uint_eq(rig.m[i].keeps, 0);
		ck_assert_uint_eq(rig.m[i].promised, epoch_make(1, 13));
	}
	rig_close(&rig);
}
END_TEST

/* The mirror is ahead of a primary that lost its tail. _i: that goes on past the mirror's end
 * before they meet, so that both have a record of the mirror's last number. */
START_TEST(lost_tail_is_not_merged)
{
	struct addr addr;

	open_with_two(200);
	addr = rig.m[0].listen;
	rig_mirror_stop(&rig.m[1]);
	rig_primary_stop(&rig.p);
	lose_tail(&rig.p, 120);
	rig_serve(&rig.p, &addr, 0, false);
	if (_i)
		ck_assert_uint_eq(rig_write_many(&rig.p, 60, 8, 5), 0);
	rig_primary_stop(&rig.p);
	rig_serve(&rig.p, &addr, 1, false);
	wait_live(&rig.p, 1);
	ck_assert_uint_eq(rig_write_many(&rig.p, 20, 8, 5), 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	ck_assert_uint_eq(rig.m[0].resyncs, 1);
	ck_assert_uint_eq(rig.m[0].keeps, 1);
	ck_assert_uint_eq(rig.m[0].kept_after, 120);
	ck_assert_uint_eq(rig.m[0].kept_last, 200);
	/* one that was behind the place where they part is just caught up */
	rig_close(&rig);
}
END_TEST

/* The mirror ended before the tail that was lost: it lacks nothing and keeps nothing. */
START_TEST(behind_a_lost_tail)
{
	struct addr addr;

	open_with_two(100);
	addr = rig.m[1].listen;
	rig_mirror_stop(&rig.m[1]);
	ck_assert_uint_eq(rig_write_many(&rig.p, 50, 8, 0), 0);
	rig_primary_stop(&rig.p);
	lose_tail(&rig.p, 150);
	rig_mirror_start(&rig.m[1], NULL);
	rig_serve(&rig.p, &addr, 1, false);
	wait_live(&rig.p, 1);
	ck_assert_uint_eq(rig_write_many(&rig.p, 30, 8, 5), 0);
	rig_expect_same(&rig.p, &rig.m[1]);
	ck_assert_uint_eq(rig.m[1].resyncs, 0);
	rig_close(&rig);
}
END_TEST

/* m[0] is promoted; the old primary joins it as a mirror. _i: with records that nobody else has. */
START_TEST(old_primary_joins_the_promoted)
{
	struct addr addrs[2];

	open_with_two(100);
	rig_primary_stop(&rig.p);
	if (_i) {
		rig_serve(&rig.p, NULL, 0, false);
		ck_assert_uint_eq(rig_write_many(&rig.p, 20, 8, 9), 0);
		rig_primary_stop(&rig.p);
	}
	rig_mirror_stop(&rig.m[0]);
	rig.p.promised = rig.p.epoch;
	rig.p.promised_node = rig.p.node_id;
	snprintf(rig.p.listen.host, sizeof(rig.p.listen.host), "127.0.0.1");
	rig.p.listen.kind = ADDR_TCP;
	rig_mirror_start(&rig.p, NULL);
	addrs[0] = rig.p.listen;
	addrs[1] = rig.m[1].listen;
	rig_serve(&rig.m[0], addrs, 2, true);
	wait_live(&rig.m[0], 2);
	ck_assert_uint_eq(rig_write_many(&rig.m[0], 50, 8, 3), 0);
	rig_expect_same(&rig.m[0], &rig.p);
	rig_expect_same(&rig.m[0], &rig.m[1]);
	ck_assert_uint_eq(rig.m[1].resyncs, 0);
	ck_assert_uint_eq(rig.p.resyncs, _i);
	ck_assert_uint_eq(rig.p.keeps, _i);
	if (_i) {
		ck_assert_uint_eq(rig.p.kept_after, 100);
		ck_assert_uint_eq(rig.p.kept_last, 140);
	}
	ck_assert_uint_eq(epoch_term(rig.p.promised), 2);
	rig_close(&rig);
}
END_TEST

static void expect_refused(struct rig_node *p, const char *text)
{
	const char *why = "";

	ck_assert_int_eq(primary_wait_live(p->primary, 1, RIG_WAIT_NS, &why), -ESTALE);
	ck_assert_msg(strstr(why, text), "%s", why);
}

/* The old primary starts again and again: it never gets past the promotion that it missed. */
START_TEST(old_primary_stays_stale)
{
	struct addr addr;

	open_with_two(100);
	addr = rig.m[1].listen;
	rig_primary_stop(&rig.p);
	rig_mirror_stop(&rig.m[0]);
	rig_serve(&rig.m[0], &addr, 1, true);
	wait_live(&rig.m[0], 1);
	ck_assert_uint_eq(rig_write_many(&rig.m[0], 10, 8, 3), 0);
	for (int i = 0; i < 5; i++) {
		rig_serve(&rig.p, &addr, 1, false);
		ck_assert_int_ne(
		    primary_wait_live(rig.p.primary, 1, NSEC_PER_SEC / 5, &(const char *){ "" }),
		    0);
		rig_primary_stop(&rig.p);
	}
	wait_live(&rig.m[0], 1);
	rig_primary_stop(&rig.m[0]);
	rig_serve(&rig.p, &addr, 1, false);
	expect_refused(&rig.p, "stale epoch 1.");
	rig_primary_stop(&rig.p);
	ck_assert_uint_eq(rig.m[1].resyncs, 0);
	rig_close(&rig);
}
END_TEST

/* Both mirrors are promoted by hand: a third one obeys the first that calls, and is not given the
 * other's records, however often that starts. */
START_TEST(two_promoted_are_not_merged)
{
	struct addr addr;

	rig_open(&rig, ADDR_TCP);
	rig_mirror_start(&rig.p, NULL);
	addr = rig.p.listen;
	for (int i = 0; i < 2; i++) {
		rig_serve(&rig.m[i], &addr, 0, true);
		ck_assert_uint_eq(rig_write_many(&rig.m[i], 50, 8, 3 + (uint64_t)i), 0);
		rig_primary_stop(&rig.m[i]);
	}
	ck_assert_uint_eq(rig.m[0].epoch, rig.m[1].epoch);
	rig_serve(&rig.m[0], &addr, 1, false);
	wait_live(&rig.m[0], 1);
	rig_expect_same(&rig.m[0], &rig.p);
	rig_primary_stop(&rig.m[0]);
	for (int i = 0; i < 3; i++) {
		rig_serve(&rig.m[1], &addr, 1, false);
		expect_refused(&rig.m[1], i ? "this mirror obeys node 00000002 in term 2" : "");
		rig_primary_stop(&rig.m[1]);
	}
	rig_expect_same(&rig.m[0], &rig.p);
	ck_assert_uint_eq(rig.p.resyncs, 0);
	rig_close(&rig);
}
END_TEST

/* Same number, same epoch, but of another node: met through a third that was promoted later. */
START_TEST(same_epoch_of_another_node_differs)
{
	struct addr addr;

	rig_open(&rig, ADDR_TCP);
	for (int i = 0; i < 2; i++) {
		rig_serve(&rig.m[i], NULL, 0, true);
		ck_assert_uint_eq(rig_write_many(&rig.m[i], 50, 8, 3 + (uint64_t)i), 0);
		rig_primary_stop(&rig.m[i]);
	}
	rig.m[1].promised = rig.m[1].epoch;
	rig.m[1].promised_node = rig.m[1].node_id;
	rig_mirror_start(&rig.m[1], NULL);
	addr = rig.m[1].listen;
	rig_serve(&rig.m[0], &addr, 1, true); /* stands for one that followed it */
	wait_live(&rig.m[0], 1);
	ck_assert_uint_eq(rig_write_many(&rig.m[0], 20, 8, 3), 0);
	rig_expect_same(&rig.m[0], &rig.m[1]);
	ck_assert_uint_eq(rig.m[1].resyncs, 1);
	ck_assert_uint_eq(rig.m[1].kept_after, 0);
	ck_assert_uint_eq(rig.m[1].kept_last, 100);
	rig_close(&rig);
}
END_TEST

/* What a copy of its volume's directory would hold. */
struct copied {
	uint64_t epoch, promised, last_lsn;
	struct epochs epochs;
};

static struct copied copy_take(const struct rig_node *p)
{
	return (struct copied){ p->epoch, p->promised, p->last_lsn, p->epochs };
}

/* p is as it was when the copy was taken. */
static void copy_restore(struct rig_node *p, const struct copied *c)
{
	lose_tail(p, c->last_lsn);
	p->epoch = c->epoch;
	p->promised = c->promised;
	p->epochs = c->epochs;
}

/* The primary's volume is restored from a copy, and begins the same epochs again, with other
 * records. _i: 0 the mirror's end is beyond its own, 1 it has written past the mirror's end, 2 it
 * has come further than the mirror's promise. */
START_TEST(restored_primary_is_not_merged)
{
	struct copied before;
	struct addr addr;

	open_with_two(100);
	addr = rig.m[0].listen;
	rig_mirror_stop(&rig.m[1]);
	rig_primary_stop(&rig.p);
	before = copy_take(&rig.p); /* epoch 1.1, 100 records */
	rig_serve(&rig.p, &addr, 1, false);
	wait_live(&rig.p, 1);
	ck_assert_uint_eq(rig_write_many(&rig.p, 50, 8, 1), 0); /* 1.2 to 200 */
	rig_expect_same(&rig.p, &rig.m[0]);
	rig_primary_stop(&rig.p);
	copy_restore(&rig.p, &before);
	for (int i = 0; i < _i; i++) {
		rig_serve(&rig.p, NULL, 0, false); /* 1.2 again, alone */
		ck_assert_uint_eq(rig_write_many(&rig.p, i == 0 ? 80 : 10, 8, 9), 0);
		rig_primary_stop(&rig.p);
	}
	if (_i == 0) { /* the mirror has promised 1.2 to the life that is gone */
		rig_serve(&rig.p, &addr, 1, false);
		expect_refused(&rig.p, "another copy of this volume began epoch 1.2");
		rig_primary_stop(&rig.p);
		ck_assert_uint_eq(rig.m[0].last_lsn, 200);
	}
	rig_serve(&rig.p, &addr, 1, false);
	wait_live(&rig.p, 1);
	ck_assert_uint_eq(rig_write_many(&rig.p, 20, 8, 9), 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	ck_assert_uint_eq(rig.m[0].resyncs, 1);
	ck_assert_uint_eq(rig.m[0].keeps, 1);
	ck_assert_uint_eq(rig.m[0].kept_after, 100);
	ck_assert_uint_eq(rig.m[0].kept_last, 200);
	rig_close(&rig);
}
END_TEST

/* Restored from so old a copy that its epochs are below what the mirror has promised: each start
 * is refused, until it has passed that. */
START_TEST(restored_primary_starts_until_it_passes)
{
	struct copied before;
	struct addr addr;

	open_with_two(100);
	addr = rig.m[0].listen;
	rig_primary_stop(&rig.p);
	before = copy_take(&rig.p);
	for (int i = 0; i < 3; i++) { /* 1.2 to 1.4 */
		rig_serve(&rig.p, &addr, 1, false);
		wait_live(&rig.p, 1);
		ck_assert_uint_eq(rig_write_many(&rig.p, 10, 8, 1), 0);
		rig_expect_same(&rig.p, &rig.m[0]);
		rig_primary_stop(&rig.p);
	}
	copy_restore(&rig.p, &before);
	for (int i = 0; i < 3; i++) {
		rig_serve(&rig.p, &addr, 1, false);
		expect_refused(&rig.p, i < 2 ? "promised epoch 1.4; restored?" :
					       "another copy of this volume began epoch 1.4");
		rig_primary_stop(&rig.p);
	}
	ck_assert_uint_eq(rig.m[0].resyncs, 0);
	rig_serve(&rig.p, &addr, 1, false);
	wait_live(&rig.p, 1);
	rig_expect_same(&rig.p, &rig.m[0]);
	ck_assert_uint_eq(rig.m[0].kept_after, 100);
	ck_assert_uint_eq(rig.m[0].kept_last, 160);
	rig_close(&rig);
}
END_TEST

/* Two copies of one primary's volume run at once: the mirror obeys the first, whose session the
 * other does not disturb. */
START_TEST(twins_do_not_take_turns)
{
	struct link_stats s;
	struct addr addr;

	rig_open(&rig, ADDR_TCP);
	rig_mirror_start(&rig.m[0], NULL);
	addr = rig.m[0].listen;
	rig.p.epoch = 0;
	rig_serve(&rig.p, &addr, 1, false);
	wait_live(&rig.p, 1);
	rig.m[1].node_id = rig.p.node_id;
	rig.m[1].epoch = 0;
	rig_serve(&rig.m[1], &addr, 1, false);
	ck_assert_uint_eq(rig.m[1].epoch, rig.p.epoch);
	ck_assert_uint_eq(rig_write_many(&rig.m[1], 20, 8, 3), 0); /* alone: min_mirrors=0 */
	expect_refused(&rig.m[1], "another copy of this volume began epoch 1.1");
	ck_assert_uint_eq(rig_write_many(&rig.p, 50, 8, 4), 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	ck_assert_uint_eq(primary_stats(rig.p.primary, &s, 1), 1);
	ck_assert_uint_eq(s.reconnects, 0);
	ck_assert_int_eq(s.state, LINK_LIVE);
	ck_assert_uint_eq(rig.m[0].resyncs, 0);
	rig_primary_stop(&rig.m[1]);
	rig_close(&rig);
}
END_TEST

static void wait_sync(struct rig_node *m, uint64_t epoch)
{
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS;
	int err = 0;

	pthread_mutex_lock(&m->lock);
	while (!err && m->sync_epoch != epoch)
		err = thread_cond_wait_until(&m->changed, &m->lock, deadline);
	ck_assert_msg(m->sync_epoch == epoch, "the mirror notes %lu, not %lu", m->sync_epoch,
		      epoch);
	pthread_mutex_unlock(&m->lock);
}

/* The mirror knows durably, and the primary has noted it before it acknowledges anything without
 * the mirror. */
START_TEST(in_sync_is_noted_on_both_sides)
{
	struct mirror_stats s;
	uint64_t end_ns;

	open_with_two(100);
	for (int i = 0; i < 2; i++)
		wait_sync(&rig.m[i], rig.p.epoch);
	end_ns = clock_mono_ns() + RIG_WAIT_NS;
	do /* it notes first, and says so a moment later */
		mirror_stats(rig.m[0].mirror, &s);
	while (!s.in_sync && clock_mono_ns() < end_ns && sched_yield() == 0);
	ck_assert(s.in_sync);
	ck_assert_uint_eq(rig.p.noted_in, 2);
	ck_assert_uint_eq(rig.p.noted_out, 0);
	rig_mirror_stop(&rig.m[0]);
	ck_assert_uint_eq(rig_write_many(&rig.p, 20, 8, 0), 0);
	ck_assert_uint_eq(rig.p.noted_out, 1);
	/* away, it can't know; back, it does until it has caught up */
	ck_assert_uint_eq(rig.m[0].sync_epoch, rig.p.epoch);
	rig_mirror_start(&rig.m[0], NULL);
	wait_live(&rig.p, 2);
	wait_sync(&rig.m[0], rig.p.epoch);
	/* the primary leaves in good order: both have everything, and know it */
	rig_primary_stop(&rig.p);
	for (int i = 0; i < 2; i++)
		ck_assert_uint_eq(rig.m[i].sync_epoch, rig.p.epoch);
	ck_assert_uint_eq(rig.p.noted_out, 1);
	/* promoted elsewhere, with a mirror that never gets there: see falls_out_is_told */
	rig_close(&rig);
}
END_TEST

/* A live mirror that is too slow is told so before it is left behind. */
START_TEST(falls_out_is_told)
{
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS;
	struct rig_progress g;
	unsigned wrote = 0, told_out;
	bool was_out = false;

	rig_admits = true; /* out, it slows nobody: the log gets full */
	rig_progress_init(&g);
	rig_open_stalling(&rig, ADDR_TCP, &transport_tcp_ops);
	wait_sync(&rig.m[0], rig.p.epoch);
	told_out = rig.m[0].told_out;
	while (!was_out) {
		ck_assert_uint_lt(clock_mono_ns(), deadline);
		if (atomic_exchange(&rig.p.want_checkpoint, false))
			ck_assert_int_eq(rig_checkpoint(&rig.p), 0);
		if (rig_progress_done(&g) == wrote && wrote < RIG_RECORDS_MAX - 10) {
			rig_write(&rig.p, 0, &g);
			wrote++;
		}
		was_out = rig.m[0].told_out != told_out;
	}
	rig_wait_live(&rig, 1);
	wait_sync(&rig.m[0], rig.p.epoch);
	rig_progress_wait(&g, wrote, wrote);
	ck_assert_uint_ge(rig.p.noted_out, 1);
	ck_assert_uint_eq(g.failed, 0);
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("repl_history");
	TCase *history = tcase_create("history");
	TCase *sync = tcase_create("sync");

	tcase_set_timeout(history, 25);
	tcase_add_test(history, restart_needs_no_resync);
	tcase_add_loop_test(history, lost_tail_is_not_merged, 0, 2);
	tcase_add_test(history, behind_a_lost_tail);
	tcase_add_loop_test(history, old_primary_joins_the_promoted, 0, 2);
	tcase_add_test(history, old_primary_stays_stale);
	tcase_add_test(history, two_promoted_are_not_merged);
	tcase_add_test(history, same_epoch_of_another_node_differs);
	tcase_add_loop_test(history, restored_primary_is_not_merged, 0, 3);
	tcase_add_test(history, restored_primary_starts_until_it_passes);
	tcase_add_test(history, twins_do_not_take_turns);
	suite_add_tcase(s, history);
	tcase_set_timeout(sync, 25);
	tcase_add_test(sync, in_sync_is_noted_on_both_sides);
	tcase_add_test(sync, falls_out_is_told);
	suite_add_tcase(s, sync);
	return unit_run(s);
}
