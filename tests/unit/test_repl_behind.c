/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mirrors that are behind while writers go on: the log is held, writers are slowed, and neither for
 * one that stands still; an image that takes long to install.
 */
#include "tests/unit/repl_rig.h"
#include "tests/unit/unit_main.h"

static struct rig rig;

static struct rig_progress *writing; /* ended: the mirror may go as fast as it can */
static bool were_slowed;             /* kv-mirror's, once it runs */
#define SLOW_RECORDS 9000            /* more than a ring of 4 MiB takes: sent all, it would join */
#define SLOW_BEHIND (SLOW_RECORDS + 500) /* of each of two writers, while it is away */

/* Never nearer to the writers, until they are slowed. */
static int slow_apply(void *ctx, const struct record *r)
{
	struct commit_stats cs;

	while (!were_slowed && !rig_progress_ended(writing) &&
	       oplog_last_lsn(rig.p.log) < r->lsn + SLOW_RECORDS) {
		rig_progress_more(writing);
		commit_stats(rig.p.commit, &cs);
		were_slowed = cs.pace_bytes > 0;
	}
	return rig_apply(ctx, r);
}

static enum link_state link_state(struct rig_node *p, struct link_stats *s)
{
	ck_assert_uint_eq(primary_stats(p->primary, s, 1), 1);
	return s->state;
}

/* A mirror that takes less than the writers give: the log is held for it, they are slowed, and it
 * gets there while they go on; it is not resynced. */
START_TEST(slow_mirror_gets_there)
{
	static struct mirror_ops ops;
	/* more than can be written in the time that a mirror has before writers are slowed */
	struct rig_writer w = {
		.n = &rig.p, .count = RIG_RECORDS_MAX - 2 * SLOW_BEHIND - 1000, .depth = 2,
	};
	bool held = false, slowed = false;
	struct commit_stats cs;
	struct link_stats s;
	const char *why = "";

	rig_admits = true;
	rig_progress_init(&w.progress);
	writing = &w.progress;
	were_slowed = false;
	rig_log_bytes = 2 * RIG_LOG_BYTES;
	rig_open(&rig, ADDR_SHM);
	rig_serve(&rig.p, NULL, 0, false);
	ck_assert_uint_eq(rig_write_many(&rig.p, SLOW_BEHIND, 64, 0), 0);
	rig_primary_stop(&rig.p);
	ops = rig_mirror_ops;
	ops.apply = slow_apply;
	rig.m[0].mirror_ops = &ops;
	rig_mirror_start(&rig.m[0], NULL);
	rig_serve(&rig.p, &rig.m[0].listen, 1, false);
	ck_assert_int_eq(thread_start(&w.thread, "writer", rig_writer_main, &w), 0);
	while (link_state(&rig.p, &s) != LINK_LIVE && rig_progress_done(&w.progress) < w.count) {
		held |= s.held_from_lsn > 0;
		slowed |= s.pace_bytes > 0;
		/* until it is live; hold and pace have no event: looked at in between */
		primary_wait_live(rig.p.primary, 1, NSEC_PER_MSEC / 10, &why);
	}
	ck_assert_msg(rig_progress_done(&w.progress) < w.count,
		      "not in sync while writers went on: lag %lu", s.lag_records);
	rig_progress_end(&w.progress);
	pthread_join(w.thread, NULL);
	ck_assert(held && slowed);
	ck_assert_uint_eq(w.progress.failed, 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	ck_assert_uint_eq(rig.m[0].resyncs, 0);
	link_state(&rig.p, &s);
	ck_assert_uint_eq(s.held_from_lsn, 0);
	commit_stats(rig.p.commit, &cs);
	ck_assert_uint_eq(cs.pace_bytes, 0);
	rig_close(&rig);
}
END_TEST

static int stuck_apply(void *ctx, const struct record *r)
{
	uint64_t deadline = clock_mono_ns() + 2 * RIG_WAIT_NS;
	struct rig_node *n = ctx;
	int err = 0;

	pthread_mutex_lock(&n->lock);
	while (!err && r->lsn > 1100 && !n->no_checkpoints) /* let go at the end */
		err = thread_cond_wait_until(&n->changed, &n->lock, deadline);
	pthread_mutex_unlock(&n->lock);
	ck_assert_int_eq(err, 0);
	return rig_apply(ctx, r);
}

/* One that takes nothing holds the log for a while only: writers lack no room, and it gets a
 * resync. */
START_TEST(stuck_mirror_holds_nothing)
{
	static struct mirror_ops ops;

	rig_admits = true;
	rig_open(&rig, ADDR_SHM);
	ops = rig_mirror_ops;
	ops.apply = stuck_apply;
	rig.m[0].mirror_ops = &ops;
	rig_mirror_start(&rig.m[0], NULL);
	rig_serve(&rig.p, NULL, 0, false);
	ck_assert_uint_eq(rig_write_many(&rig.p, 1000, 8, 0), 0);
	rig_primary_stop(&rig.p);
	rig_serve(&rig.p, &rig.m[0].listen, 1, false);
	ck_assert_uint_eq(rig_write_many(&rig.p, 18000, 64, 0), 0); /* two pools and more */
	ck_assert_uint_gt(oplog_first_lsn(rig.p.log), 1100);
	pthread_mutex_lock(&rig.m[0].lock);
	rig.m[0].no_checkpoints = true;
	pthread_cond_broadcast(&rig.m[0].changed);
	pthread_mutex_unlock(&rig.m[0].lock);
	rig_close(&rig);
}
END_TEST

/* Installs the image only when the writers are slowed for it, or the log has gone on without it. */
static int slow_install(void *ctx, const struct mirror_progress *p, uint64_t *ret_lsn)
{
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS;
	struct rig_node *n = ctx;
	struct ckpt_info infos[2];
	struct commit_stats cs;

	ck_assert_int_eq(ckpt_list(n->ckpt, infos), 1);
	do {
		rig_progress_more(writing);
		commit_stats(rig.p.commit, &cs);
		ck_assert_uint_lt(clock_mono_ns(), deadline);
	} while (!rig_progress_ended(writing) && !cs.pace_bytes &&
		 oplog_first_lsn(rig.p.log) <= infos[0].lsn + 1);
	return rig_resync_install(ctx, p, ret_lsn);
}

/* A mirror that takes longer over its image than the log lasts at the writers' pace: they are
 * slowed until it has installed it and is caught up. One resync is enough. */
START_TEST(slow_install_is_waited_for)
{
	static struct mirror_ops ops;
	struct rig_writer w = { .n = &rig.p, .count = RIG_RECORDS_MAX - 40000, .depth = 32 };
	struct link_stats s;
	const char *why = "";

	rig_admits = true;
	rig_progress_init(&w.progress);
	writing = &w.progress;
	rig_open(&rig, ADDR_SHM);
	rig_serve(&rig.p, NULL, 0, false);
	/* the log's beginning is gone */
	ck_assert_uint_eq(rig_write_many(&rig.p, 16000, 64, 0), 0);
	ck_assert_uint_gt(oplog_first_lsn(rig.p.log), 1);
	rig_primary_stop(&rig.p);
	ops = rig_mirror_ops;
	ops.resync_install = slow_install;
	rig.m[0].mirror_ops = &ops;
	rig_mirror_start(&rig.m[0], NULL);
	rig_serve(&rig.p, &rig.m[0].listen, 1, false);
	ck_assert_int_eq(thread_start(&w.thread, "writer", rig_writer_main, &w), 0);
	while (link_state(&rig.p, &s) != LINK_LIVE && rig_progress_done(&w.progress) < w.count)
		primary_wait_live(rig.p.primary, 1, NSEC_PER_MSEC, &why);
	ck_assert_msg(rig_progress_done(&w.progress) < w.count, "not in sync: %s", s.last_error);
	rig_progress_end(&w.progress);
	pthread_join(w.thread, NULL);
	ck_assert_uint_eq(w.progress.failed, 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	ck_assert_uint_eq(rig.m[0].resyncs, 1);
	rig_close(&rig);
}
END_TEST

/* Goes on when both ends show so many quarters of the image as installed. */
static void tell_and_await(const struct mirror_progress *p, uint64_t quarters)
{
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS;
	struct mirror_stats m;
	struct link_stats l;

	do {
		p->note(p->ctx, 1000 * quarters, 4000);
		link_state(&rig.p, &l);
		mirror_stats(rig.m[0].mirror, &m);
		ck_assert_msg(clock_mono_ns() < deadline, "%lu quarters: %lu and %lu of %lu",
			      quarters, l.resync_installed_bytes, m.resync_installed_bytes,
			      l.resync_total_bytes);
	} while (l.resync_installed_bytes != l.resync_total_bytes * quarters / 4 ||
		 l.resync_installed_bytes != m.resync_installed_bytes);
	ck_assert_int_eq(l.state, LINK_RESYNC);
	ck_assert_uint_eq(l.resync_done_bytes, l.resync_total_bytes);
}

static int telling_install(void *ctx, const struct mirror_progress *p, uint64_t *ret_lsn)
{
	for (uint64_t i = 1; i <= 3; i++)
		tell_and_await(p, i);
	return rig_resync_install(ctx, p, ret_lsn);
}

START_TEST(install_shows_progress)
{
	static struct mirror_ops ops;
	struct mirror_stats m;
	struct link_stats l;

	rig_open(&rig, _i ? ADDR_TCP : ADDR_SHM);
	rig_serve(&rig.p, NULL, 0, false);
	ck_assert_uint_eq(rig_write_many(&rig.p, 16000, 64, 0), 0);
	ck_assert_uint_gt(oplog_first_lsn(rig.p.log), 1);
	rig_primary_stop(&rig.p);
	ops = rig_mirror_ops;
	ops.resync_install = telling_install;
	rig.m[0].mirror_ops = &ops;
	rig_mirror_start(&rig.m[0], NULL);
	rig_serve(&rig.p, &rig.m[0].listen, 1, false);
	rig_wait_live(&rig, 1);
	ck_assert_uint_eq(rig.m[0].resyncs, 1);
	link_state(&rig.p, &l);
	mirror_stats(rig.m[0].mirror, &m);
	ck_assert_uint_gt(l.resync_total_bytes, 0);
	ck_assert_uint_eq(l.resync_installed_bytes, l.resync_total_bytes);
	ck_assert_uint_eq(m.resync_installed_bytes, l.resync_total_bytes);
	rig_expect_same(&rig.p, &rig.m[0]);
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("repl_behind");
	TCase *behind = tcase_create("behind");

	tcase_set_timeout(behind, 60);
	tcase_add_test(behind, slow_mirror_gets_there);
	tcase_add_test(behind, stuck_mirror_holds_nothing);
	tcase_add_test(behind, slow_install_is_waited_for);
	tcase_add_loop_test(behind, install_shows_progress, 0, 2);
	suite_add_tcase(s, behind);
	return unit_run(s);
}
