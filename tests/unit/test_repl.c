/* SPDX-License-Identifier: Apache-2.0 */
/* Primary and mirrors together, over tcp and shm: live, catch-up, resync, refusals. */
#include "replication/transport/transport_fault.h"
#include "tests/unit/repl_rig.h"
#include "tests/unit/unit_main.h"

static struct rig rig;

static void run_live(enum addr_kind kind, unsigned mirrors, unsigned lanes,
		     enum commit_protocol protocol)
{
	rig_open(&rig, kind);
	rig_commit_start(&rig.p, protocol, mirrors, RIG_TIMEOUT_NS);
	for (unsigned i = 0; i < mirrors; i++)
		rig_mirror_start(&rig.m[i], NULL);
	rig_primary_start(&rig, mirrors, lanes, NULL);
	rig_wait_live(&rig, mirrors);
	ck_assert_uint_eq(rig_write_many(&rig.p, 1500, 16, 0), 0);
	for (unsigned i = 0; i < mirrors; i++)
		rig_expect_same(&rig.p, &rig.m[i]);
	rig_close(&rig);
}

START_TEST(live_tcp)
{
	run_live(rig_net(), 1, (unsigned)_i, COMMIT_PROTOCOL_C);
}
END_TEST

START_TEST(live_shm)
{
	run_live(ADDR_SHM, 1, (unsigned)_i, COMMIT_PROTOCOL_C);
}
END_TEST

START_TEST(live_two_mirrors)
{
	run_live(rig_net(), 2, 2, COMMIT_PROTOCOL_C);
}
END_TEST

START_TEST(live_protocols_a_b)
{
	run_live(ADDR_SHM, 1, 2, _i ? COMMIT_PROTOCOL_B : COMMIT_PROTOCOL_A);
}
END_TEST

START_TEST(live_with_early_answers)
{
	rig_early_every = 3;
	run_live(_i ? ADDR_SHM : rig_net(), 2, 2, COMMIT_PROTOCOL_C);
}
END_TEST

/* Nothing comes after a record that is owed (over tcp): the link sends it from the log. */
START_TEST(owed_records_go_by_themselves)
{
	bool owed = !_i && rig_net() == ADDR_TCP;
	struct rig_progress g;

	rig_progress_init(&g);
	rig_early_every = 1;
	rig_open(&rig, _i ? ADDR_SHM : rig_net());
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 1, RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], NULL);
	rig_primary_start(&rig, 1, 2, NULL);
	rig_wait_live(&rig, 1);
	rig_write(&rig.p, 0, &g);
	ck_assert_uint_eq(rig_progress_done(&g), 1);
	ck_assert_int_eq(commit_owed_since(rig.p.commit) != 0, owed);
	rig_expect_same(&rig.p, &rig.m[0]);
	ck_assert_int_eq(commit_owed_since(rig.p.commit) != 0, owed); /* still: the link sent it */
	commit_drive(rig.p.commit);
	rig_progress_wait(&g, 1, 1);
	ck_assert_uint_eq(g.failed, 0);
	rig_close(&rig);
}
END_TEST

/* Each plan on both transports, both ends' posts. Whatever happens, no write fails and the mirror
 * ends up the same. */
static const struct fault_case {
	struct transport_fault_plan plan;
	bool reconnects; /* the fault ends sessions */
} faults[] = {
	{ { .seed = 1, .delay_permille = 300, .delay_max_ns = 300 * NSEC_PER_USEC }, false },
	{ { .seed = 2, .short_permille = 200 }, false },
	{ { .seed = 3, .kill_lane_at = 700 }, false },
	{ { .seed = 4, .corrupt_permille = 1 }, true },
	{ { .seed = 5, .peer_gone_at = 900 }, false },
	{ { .seed = 6, .stall_at = 300, .stall_ns = 300 * NSEC_PER_MSEC }, false },
	{ { .seed = 7, .delay_permille = 100, .delay_max_ns = 200 * NSEC_PER_USEC,
	    .short_permille = 50, .kill_lane_at = 1500, .corrupt_permille = 1 }, true },
};
#define FAULTS (int)(sizeof(faults) / sizeof(faults[0]))

START_TEST(survives_faults)
{
	const struct fault_case *f = &faults[_i / 2];
	bool shm = _i % 2;
	struct link_stats s;
	struct mirror_stats ms;

	transport_fault_use(shm ? &transport_shm_ops : rig_net_ops(), &f->plan);
	rig_open(&rig, shm ? ADDR_SHM : rig_net());
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 1, 10 * RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], &transport_fault_ops);
	rig_primary_start(&rig, 1, 4, &transport_fault_ops);
	rig_wait_live(&rig, 1);
	ck_assert_uint_eq(rig_write_many(&rig.p, 2000, 32, 0), 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	primary_stats(rig.p.primary, &s, 1);
	mirror_stats(rig.m[0].mirror, &ms);
	if (f->plan.delay_permille)
		ck_assert_uint_gt(ms.reordered, 0);
	if (!f->reconnects && (f->plan.kill_lane_at || f->plan.peer_gone_at))
		ck_assert_uint_gt(s.lanes_replaced, 0);
	ck_assert_msg((s.reconnects > 0) == f->reconnects, "%lu reconnects: %s; %s", s.reconnects,
		      s.last_error, ms.last_error);
	ck_assert_uint_eq(rig.m[0].resyncs, 0);
	rig_close(&rig);
}
END_TEST

/* A mirror that stops answering falls out, writes go on without it, and it joins again. */
START_TEST(falls_out_and_joins)
{
	struct commit_stats cs;

	rig_open_stalling(&rig, rig_net(), rig_net_ops());
	ck_assert_uint_eq(rig_write_many(&rig.p, 1000, 32, 0), 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	rig_wait_live(&rig, 1);
	ck_assert_uint_ge(rig.p.noted_out, 1); /* it did fall out */
	commit_stats(rig.p.commit, &cs);
	ck_assert_uint_eq(cs.in_sync, 1);
	ck_assert_uint_eq(cs.timeouts, 0);
	rig_close(&rig);
}
END_TEST

/* A mirror that is away while writes go on without it is caught up from the log and joins again. */
START_TEST(catches_up)
{
	struct link_stats s;
	uint64_t end_ns;

	rig_open(&rig, _i ? ADDR_SHM : rig_net());
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 0, RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], NULL);
	rig_primary_start(&rig, 1, 2, NULL);
	rig_wait_live(&rig, 1);
	ck_assert_uint_eq(rig_write_many(&rig.p, 200, 8, 0), 0);
	for (int round = 0; round < 3; round++) {
		rig_mirror_stop(&rig.m[0]);
		ck_assert_uint_eq(rig_write_many(&rig.p, 500, 64, 0), 0);
		rig_mirror_start(&rig.m[0], NULL);
		rig_wait_live(&rig, 1);
		rig_expect_same(&rig.p, &rig.m[0]);
	}
	end_ns = clock_mono_ns() + RIG_WAIT_NS;
	do
		ck_assert_uint_eq(primary_stats(rig.p.primary, &s, 1), 1);
	while (s.acked_lsn < rig.p.last_lsn && clock_mono_ns() < end_ns && sched_yield() == 0);
	ck_assert_int_eq(s.state, LINK_LIVE);
	ck_assert_uint_ge(s.from_log_records, 3000);
	ck_assert_uint_eq(s.acked_lsn, rig.p.last_lsn);
	ck_assert_uint_eq(rig.m[0].resyncs, 0);
	rig_close(&rig);
}
END_TEST

/* The mirror goes and comes while writers wait for it. */
START_TEST(restarts_under_load)
{
	struct rig_writer w = { .n = &rig.p, .count = 4000, .depth = 32 };

	rig_progress_init(&w.progress);
	rig_open(&rig, _i ? ADDR_SHM : rig_net());
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 1, RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], NULL);
	rig_primary_start(&rig, 1, 3, NULL);
	rig_wait_live(&rig, 1);
	ck_assert_int_eq(thread_start(&w.thread, "writer", rig_writer_main, &w), 0);
	for (int i = 0; i < 4; i++) {
		rig_progress_wait(&w.progress, (unsigned)(i + 1) * 500, 0);
		rig_mirror_stop(&rig.m[0]);
		rig_mirror_start(&rig.m[0], NULL);
	}
	pthread_join(w.thread, NULL);
	ck_assert_uint_eq(w.progress.failed, 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	rig_close(&rig);
}
END_TEST

/* Several pools' worth of records: both logs are rewound behind checkpoints, and
 * the mirror follows. */
START_TEST(follows_over_many_pools)
{
	rig_open(&rig, ADDR_SHM);
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 1, RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], NULL);
	rig_primary_start(&rig, 1, 2, NULL);
	rig_wait_live(&rig, 1);
	ck_assert_uint_eq(rig_write_many(&rig.p, 18000, 64, 0), 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	ck_assert_uint_ge(rig.p.checkpoints, 1);
	ck_assert_uint_ge(rig.m[0].checkpoints, 1);
	ck_assert_uint_eq(rig.m[0].resyncs, 0);
	rig_close(&rig);
}
END_TEST

/* The log no longer reaches back to where the mirror stands. */
START_TEST(resyncs)
{
	rig_open(&rig, _i ? ADDR_SHM : rig_net());
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 0, RIG_TIMEOUT_NS);
	rig_primary_start(&rig, 0, 2, NULL);
	ck_assert_uint_eq(rig_write_many(&rig.p, 3000, 64, 0), 0);
	ck_assert_int_eq(rig_checkpoint(&rig.p), 0);
	ck_assert_int_eq(commit_switch_log(rig.p.commit), 0);
	ck_assert_uint_eq(rig_write_many(&rig.p, 100, 64, 0), 0);
	ck_assert_int_eq(rig_checkpoint(&rig.p), 0);
	ck_assert_int_eq(commit_switch_log(rig.p.commit), 0);
	ck_assert_uint_gt(oplog_first_lsn(rig.p.log), 1);
	primary_destroy(rig.p.primary);
	rig.p.primary = NULL;
	rig_mirror_start(&rig.m[0], NULL);
	rig_primary_start(&rig, 1, 2, NULL);
	ck_assert_uint_eq(rig_write_many(&rig.p, 500, 64, 0), 0);
	rig_wait_live(&rig, 1);
	rig_expect_same(&rig.p, &rig.m[0]);
	ck_assert_uint_eq(rig.m[0].resyncs, 1);
	ck_assert_uint_eq(rig.m[0].keeps, 0);
	rig_close(&rig);
}
END_TEST

/* A primary of the given epoch that never had the mirror's records, with fewer of its own the
 * higher less is. */
static void resync_from_another(uint64_t epoch, unsigned less)
{
	uint64_t mirror_lsn;

	rig_open(&rig, rig_net());
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 1, RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], NULL);
	rig_primary_start(&rig, 1, 1, NULL);
	rig_wait_live(&rig, 1);
	ck_assert_uint_eq(rig_write_many(&rig.p, 100, 8, 0), 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	mirror_lsn = oplog_last_lsn(rig.m[0].log);
	rig_primary_stop(&rig.p);
	rig.m[1].epoch = epoch;
	ck_assert_int_eq(oplog_start(rig.m[1].log, 1, epoch), 0);
	rig_commit_start(&rig.m[1], COMMIT_PROTOCOL_C, 0, RIG_TIMEOUT_NS);
	ck_assert_uint_eq(rig_write_many(&rig.m[1], 150 - less, 8, 7), 0);
	{
		struct primary_config cfg = rig_primary_config(&rig.m[1], &rig.m[0].listen, 1, 2);
		const char *why = "";

		ck_assert_int_eq(primary_create(rig.m[1].commit, rig.m[1].log, rig.m[1].ckpt, &cfg,
						&rig.m[1].primary), 0);
		ck_assert_int_eq(primary_wait_live(rig.m[1].primary, 1, RIG_WAIT_NS, &why), 0);
	}
	ck_assert_uint_eq(rig_write_many(&rig.m[1], 50, 8, 7), 0);
	rig_expect_same(&rig.m[1], &rig.m[0]);
	ck_assert_uint_eq(rig.m[0].resyncs, 1);
	ck_assert_uint_eq(rig.m[0].keeps, 1);
	ck_assert_uint_eq(rig.m[0].kept_last, mirror_lsn);
	ck_assert_uint_eq(rig.m[0].kept_epoch, epoch_make(1, 1));
}

/* The mirror holds records of an older epoch that the new primary never had. */
START_TEST(resyncs_diverged_mirror)
{
	resync_from_another(epoch_make(2, 1), 0);
	ck_assert_uint_eq(rig.m[0].promised, epoch_make(2, 1));
	ck_assert_uint_eq(rig.m[0].promised_node, rig.m[1].node_id);
	ck_assert_uint_eq(rig.m[0].kept_after, 0);
	rig_close(&rig);
}
END_TEST

START_TEST(resyncs_mirror_that_is_ahead)
{
	resync_from_another(epoch_make(2, 1), 90);
	ck_assert_uint_eq(rig.m[0].kept_after, 0);
	rig_close(&rig);
}
END_TEST

static void expect_refused(const struct primary_config *cfg, int want, const char *text)
{
	const char *why = "";
	int err;

	rig_primary_start_with(&rig, cfg);
	err = primary_wait_live(rig.p.primary, 1, RIG_WAIT_NS, &why);
	ck_assert_int_eq(err, want);
	ck_assert_msg(strstr(why, text), "%s", why);
	primary_destroy(rig.p.primary);
	rig.p.primary = NULL;
}

START_TEST(refuses)
{
	struct primary_config cfg, good;
	struct mirror_stats s;

	rig_open(&rig, rig_net());
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 0, RIG_TIMEOUT_NS);
	rig.m[0].promised = epoch_make(1, 5);
	rig_mirror_start(&rig.m[0], NULL);
	good = rig_primary_config(&rig.p, &rig.m[0].listen, 1, 2);
	good.epoch = epoch_make(1, 5);

	cfg = good;
	cfg.key[3] ^= 1;
	expect_refused(&cfg, -EKEYREJECTED, "key");
	cfg = good;
	cfg.uuid[3] ^= 1;
	expect_refused(&cfg, -EXDEV, "another volume");
	cfg = good;
	cfg.epoch = epoch_make(1, 4);
	expect_refused(&cfg, -ESTALE, "stale epoch 1.4, this mirror has promised epoch 1.5");
	cfg = good;
	cfg.arena_bytes *= 2;
	expect_refused(&cfg, -ENOSPC, "smaller");

	rig_primary_start_with(&rig, &good);
	rig_wait_live(&rig, 1);
	rig_wait_connected(&rig.m[0], &s);
	ck_assert_str_eq(s.transport, rig_net_ops()->name);
	rig_close(&rig);
}
END_TEST

/* Another primary of the same epoch does not push out a live one. */
START_TEST(refuses_second_primary)
{
	struct primary_config cfg;
	struct primary *second;
	const char *why = "";

	rig_open(&rig, rig_net());
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 1, RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], NULL);
	rig_primary_start(&rig, 1, 1, NULL);
	rig_wait_live(&rig, 1);
	rig_commit_start(&rig.m[1], COMMIT_PROTOCOL_C, 0, RIG_TIMEOUT_NS);
	cfg = rig_primary_config(&rig.m[1], &rig.m[0].listen, 1, 1);
	ck_assert_int_eq(
		primary_create(rig.m[1].commit, rig.m[1].log, rig.m[1].ckpt, &cfg, &second), 0);
	ck_assert_int_eq(primary_wait_live(second, 1, RIG_WAIT_NS, &why), -EBUSY);
	ck_assert_msg(strstr(why, "busy"), "%s", why);
	primary_destroy(second);
	ck_assert_uint_eq(rig_write_many(&rig.p, 50, 8, 0), 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	rig_close(&rig);
}
END_TEST

START_TEST(fails_below_min_mirrors)
{
	const char *why = "";
	struct rig_progress g;

	rig_progress_init(&g);
	rig_open(&rig, rig_net());
	rig.m[0].listen.port = 1; /* nobody there */
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 1, 300 * NSEC_PER_MSEC);
	rig_primary_start(&rig, 1, 1, NULL);
	ck_assert_int_eq(primary_wait_live(rig.p.primary, 1, 300 * NSEC_PER_MSEC, &why),
			 -ETIMEDOUT);
	ck_assert_msg(strstr(why, "127.0.0.1:1: cannot connect"), "%s", why);
	rig_write(&rig.p, 0, &g);
	rig_progress_wait(&g, 1, 0);
	ck_assert_uint_eq(g.failed, 1);
	rig_primary_stop(&rig.p);
	ck_assert_uint_eq(g.freed, 1);
	rig_close(&rig);
}
END_TEST

#define STALLED_PUTS 40

/* Both pools of the mirror are full and no checkpoint comes: the mirror waits, and goes on once
 * there is one. */
START_TEST(waits_for_log_room)
{
	struct mirror_stats s;
	uint64_t began_ns;

	rig_open(&rig, ADDR_SHM);
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 0, RIG_TIMEOUT_NS);
	rig.m[0].no_checkpoints = true;
	rig_mirror_start(&rig.m[0], NULL);
	rig_primary_start(&rig, 1, 2, NULL);
	rig_wait_live(&rig, 1);
	do {
		ck_assert_uint_lt(rig.p.last_lsn, 38000);
		ck_assert_uint_eq(rig_write_many(&rig.p, 250, 64, 0), 0);
		mirror_stats(rig.m[0].mirror, &s);
	} while (s.durable_lsn == rig.p.last_lsn);
	ck_assert(s.connected);
	/* it answers heartbeats, so its session goes on: nobody waits for it again and again */
	began_ns = clock_mono_ns();
	for (int i = 0; i < STALLED_PUTS; i++)
		ck_assert_uint_eq(rig_write_many(&rig.p, 1, 1, 0), 0);
	ck_assert_uint_lt(clock_mono_ns() - began_ns,
			  unit_patience() * STALLED_PUTS * 10 * NSEC_PER_MSEC);
	mirror_stats(rig.m[0].mirror, &s);
	ck_assert(s.connected);
	rig.m[0].no_checkpoints = false;
	ck_assert_int_eq(rig_checkpoint(&rig.m[0]), 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	rig_close(&rig);
}
END_TEST

/* The checkpoints that the mirror asked for failed: it asks again, and goes on with the first that
 * succeeds. */
START_TEST(asks_again_for_log_room)
{
	struct mirror_stats s;

	rig_open(&rig, ADDR_SHM);
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 0, RIG_TIMEOUT_NS);
	rig.m[0].no_checkpoints = true;
	rig_mirror_start(&rig.m[0], NULL);
	rig_primary_start(&rig, 1, 2, NULL);
	rig_wait_live(&rig, 1);
	do {
		ck_assert_uint_lt(rig.p.last_lsn, 38000);
		ck_assert_uint_eq(rig_write_many(&rig.p, 250, 64, 0), 0);
		mirror_stats(rig.m[0].mirror, &s);
	} while (s.durable_lsn == rig.p.last_lsn);
	rig.m[0].no_checkpoints = false;
	rig_expect_same(&rig.p, &rig.m[0]);
	rig_close(&rig);
}
END_TEST

static atomic_bool store_full;
static _Atomic unsigned refusals;

static int apply_with_room(void *ctx, const struct record *r)
{
	if (r->lsn < 100 || !store_full)
		return rig_apply(ctx, r);
	refusals++;
	return refusals % 2 ? -ENOSPC : -ENOMEM;
}

static void wait_for_refusals(unsigned more)
{
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS;
	unsigned before = refusals;

	while (refusals < before + more) {
		ck_assert_uint_lt(clock_mono_ns(), deadline);
		sched_yield();
	}
}

/* What the mirror has acknowledged and can't apply, as it lacks memory, it applies when it has
 * some. _i: in a later session, which does not begin before. */
START_TEST(waits_for_store_room)
{
	struct mirror_ops ops = rig_mirror_ops;
	struct commit_stats cs;
	struct mirror_stats s;

	ops.apply = apply_with_room;
	store_full = true;
	rig_open(&rig, rig_net());
	rig.m[0].mirror_ops = &ops;
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 1, RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], NULL);
	rig_primary_start(&rig, 1, 2, NULL);
	rig_wait_live(&rig, 1);
	ck_assert_uint_eq(rig_write_many(&rig.p, 50, 1, 0), 0);
	wait_for_refusals(2);
	mirror_stats(rig.m[0].mirror, &s);
	ck_assert_msg(strstr(s.last_error, "no memory for record 100"), "%s", s.last_error);
	ck_assert(s.connected && !s.failed);
	ck_assert_uint_eq(s.applied_lsn, 99);
	if (_i) {
		rig_primary_stop(&rig.p);
		rig.p.epoch = epoch_next(rig.p.epoch, false);
		rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 0, RIG_TIMEOUT_NS);
		rig_primary_start(&rig, 1, 2, NULL);
		wait_for_refusals(3);
		commit_stats(rig.p.commit, &cs);
		ck_assert_uint_eq(cs.in_sync, 0);
	}
	store_full = false;
	rig_wait_live(&rig, 1);
	ck_assert_uint_eq(rig_write_many(&rig.p, 50, 8, 1), 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	mirror_stats(rig.m[0].mirror, &s);
	ck_assert_str_eq(s.last_error, "");
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("repl");
	TCase *live = tcase_create("live");
	TCase *fault = tcase_create("fault");
	TCase *away = tcase_create("away");
	TCase *refuse = tcase_create("refuse");

	tcase_set_timeout(live, 25);
	tcase_add_loop_test(live, live_tcp, 1, 5);
	tcase_add_loop_test(live, live_shm, 1, 5);
	tcase_add_test(live, live_two_mirrors);
	tcase_add_loop_test(live, live_protocols_a_b, 0, 2);
	tcase_add_loop_test(live, live_with_early_answers, 0, 2);
	tcase_add_loop_test(live, owed_records_go_by_themselves, 0, 2);
	tcase_add_test(live, follows_over_many_pools);
	suite_add_tcase(s, live);
	tcase_set_timeout(fault, 25);
	tcase_add_loop_test(fault, survives_faults, 0, 2 * FAULTS);
	tcase_add_test(fault, falls_out_and_joins);
	suite_add_tcase(s, fault);
	tcase_set_timeout(away, 25);
	tcase_add_loop_test(away, catches_up, 0, 2);
	tcase_add_loop_test(away, restarts_under_load, 0, 2);
	tcase_add_loop_test(away, resyncs, 0, 2);
	tcase_add_test(away, resyncs_diverged_mirror);
	tcase_add_test(away, resyncs_mirror_that_is_ahead);
	tcase_add_test(away, waits_for_log_room);
	tcase_add_test(away, asks_again_for_log_room);
	tcase_add_loop_test(away, waits_for_store_room, 0, 2);
	suite_add_tcase(s, away);
	tcase_set_timeout(refuse, 25);
	tcase_add_test(refuse, refuses);
	tcase_add_test(refuse, refuses_second_primary);
	tcase_add_test(refuse, fails_below_min_mirrors);
	suite_add_tcase(s, refuse);
	return unit_run(s);
}
