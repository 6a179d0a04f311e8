/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes, batches and polling of a primary change while it sends: nothing is lost, a parked lane
 * gets nothing, and what it had drains. */
#include "replication/primary/link.h"
#include "replication/transport/transport_internal.h"
#include "tests/unit/repl_rig.h"
#include "tests/unit/unit_main.h"

#define OPENED 4

static struct rig rig;
static atomic_bool stop;

static void start(enum addr_kind kind)
{
	struct primary_config cfg;

	rig_open(&rig, kind);
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 1, RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], NULL);
	cfg = rig_primary_config(&rig.p, &rig.m[0].listen, 1, 2);
	cfg.lanes_open = OPENED;
	rig_primary_start_with(&rig, &cfg);
	rig_wait_live(&rig, 1);
}

static void set(unsigned lanes, unsigned batch, unsigned poll_us)
{
	struct primary_knobs k = { .lanes = lanes, .batch = batch, .poll_us = poll_us };

	primary_set_knobs(rig.p.primary, &k);
}

static uint64_t lane_lsn(unsigned lane)
{
	return atomic_load(&rig.p.primary->links[0].lane_lsn[lane]);
}

/* Changes all three knobs as fast as it can. */
static void *change(void *arg)
{
	unsigned x = 1, *changes = arg;

	while (!atomic_load(&stop)) {
		x = x * 1103515245U + 12345U;
		set(1 + (x >> 16) % OPENED, 1 + (x >> 8) % PRIMARY_BATCH_MAX, (x >> 20) % 60);
		++*changes;
		sched_yield();
	}
	return NULL;
}

START_TEST(changes_under_load_lose_nothing)
{
	unsigned changes = 0;
	pthread_t thread;

	start(_i ? ADDR_SHM : rig_net());
	atomic_store(&stop, false);
	ck_assert_int_eq(thread_start(&thread, "change", change, &changes), 0);
	ck_assert_uint_eq(rig_write_many(&rig.p, 2000, 32, 0), 0);
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	ck_assert_uint_gt(changes, 10);
	rig_expect_same(&rig.p, &rig.m[0]);
	rig_close(&rig);
}
END_TEST

START_TEST(parked_lanes_get_nothing)
{
	uint64_t before[OPENED];
	struct link_stats s;

	start(_i ? ADDR_SHM : rig_net());
	primary_stats(rig.p.primary, &s, 1);
	ck_assert_uint_eq(s.lanes, OPENED);
	ck_assert_uint_eq(s.lanes_active, 2);
	ck_assert_uint_eq(rig_write_many(&rig.p, 200, 16, 0), 0);
	ck_assert_uint_gt(lane_lsn(1), 0);
	ck_assert_uint_eq(lane_lsn(2) + lane_lsn(3), 0);
	set(OPENED, 4, 0);
	ck_assert_uint_eq(rig_write_many(&rig.p, 200, 16, 0), 0);
	for (unsigned i = 0; i < OPENED; i++) {
		before[i] = lane_lsn(i);
		ck_assert_uint_gt(before[i], 400);
	}
	set(1, 4, 0);
	ck_assert_uint_eq(rig_write_many(&rig.p, 200, 16, 0), 0);
	ck_assert_uint_gt(lane_lsn(0), before[0]);
	for (unsigned i = 1; i < OPENED; i++)
		ck_assert_uint_eq(lane_lsn(i), before[i]);
	primary_stats(rig.p.primary, &s, 1);
	ck_assert_uint_eq(s.lanes_active, 1);
	ck_assert_uint_eq(s.lanes_draining, 0);
	ck_assert_uint_eq(s.lanes, OPENED);
	rig_close(&rig);
}
END_TEST

START_TEST(what_a_parked_lane_has_drains)
{
	struct rig_writer w = { .n = &rig.p, .count = 8000, .depth = 64 };
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS;
	struct link_stats s = { 0 };

	start(_i ? ADDR_SHM : rig_net());
	rig_progress_init(&w.progress);
	ck_assert_int_eq(thread_start(&w.thread, "writer", rig_writer_main, &w), 0);
	while (s.lanes_draining == 0 && clock_mono_ns() < deadline) {
		set(OPENED, 1, 0);
		rig_progress_more(&w.progress);
		set(1, 1, 0);
		primary_stats(rig.p.primary, &s, 1);
	}
	rig_progress_end(&w.progress);
	pthread_join(w.thread, NULL);
	ck_assert_uint_gt(s.lanes_draining, 0);
	primary_stats(rig.p.primary, &s, 1);
	ck_assert_uint_eq(s.lanes_draining, 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	rig_close(&rig);
}
END_TEST

/* Knobs outlive a session: the next one begins with them. */
START_TEST(knobs_outlive_a_session)
{
	struct link *l;

	start(rig_net());
	set(1, 7, 3);
	rig_mirror_stop(&rig.m[0]);
	rig_mirror_start(&rig.m[0], NULL);
	ck_assert_uint_eq(rig_write_many(&rig.p, 50, 4, 0), 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	/* of the new session itself: its endpoint's polling, and what its lanes were given */
	l = &rig.p.primary->links[0];
	ck_assert_uint_eq(atomic_load(&((struct transport_ep *)l->ep)->poll_us), 3);
	ck_assert_uint_gt(lane_lsn(0), 0);
	for (unsigned i = 1; i < OPENED; i++)
		ck_assert_uint_eq(lane_lsn(i), 0);
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("repl_knobs");
	TCase *c = tcase_create("all");

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, changes_under_load_lose_nothing, 0, 2);
	tcase_add_loop_test(c, parked_lanes_get_nothing, 0, 2);
	tcase_add_loop_test(c, what_a_parked_lane_has_drains, 0, 2);
	tcase_add_test(c, knobs_outlive_a_session);
	suite_add_tcase(s, c);
	return unit_run(s);
}
