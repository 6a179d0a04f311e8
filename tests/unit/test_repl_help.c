/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that look for acknowledgements themselves, in the place of the links' threads. */
#include "common/clock.h"
#include "tests/unit/repl_rig.h"
#include "tests/unit/unit_main.h"

#include <sched.h>

static struct rig rig;

struct help_writer {
	unsigned count, helped, borrowed;
	pthread_t thread;
	struct rig_progress progress;
};

/* One record after the other; each time as a thread that serves requests does. */
static void *help_writer_main(void *arg)
{
	struct help_writer *w = arg;
	struct primary_helper h = { .primary = rig.p.primary };

	for (unsigned i = 1; i <= w->count; i++) {
		rig_write(&rig.p, 0, &w->progress);
		if (primary_help_begin(&h)) {
			w->borrowed++;
			while (rig_progress_done(&w->progress) < i && primary_help(&h))
				sched_yield();
			w->helped += rig_progress_done(&w->progress) == i;
			primary_help_end(&h, false);
		}
		rig_progress_wait(&w->progress, i, 0);
	}
	primary_helper_leave(&h);
	rig_progress_wait(&w->progress, w->count, w->count);
	return NULL;
}

static void open_live(enum addr_kind kind, unsigned mirrors)
{
	rig_open(&rig, kind);
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 0, RIG_TIMEOUT_NS);
	for (unsigned i = 0; i < mirrors; i++)
		rig_mirror_start(&rig.m[i], NULL);
	rig_primary_start(&rig, mirrors, 2, NULL);
	rig_wait_live(&rig, mirrors);
}

static void write_helping(unsigned count, struct help_writer w[2])
{
	for (int i = 0; i < 2; i++) {
		w[i] = (struct help_writer){ .count = count };
		rig_progress_init(&w[i].progress);
		ck_assert_int_eq(
			thread_start(&w[i].thread, "helper", help_writer_main, &w[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(w[i].thread, NULL);
}

/* Two helpers, one mirror or two, shm or the network: all is acknowledged, and by them. */
START_TEST(helpers_take_acknowledgements)
{
	struct help_writer w[2];
	unsigned mirrors = 1 + (unsigned)_i / 2;

	open_live(_i % 2 ? rig_net() : ADDR_SHM, mirrors);
	write_helping(2000, w);
	ck_assert_uint_eq(w[0].progress.failed + w[1].progress.failed, 0);
	ck_assert_uint_gt(w[0].helped + w[1].helped, 0);
	for (unsigned i = 0; i < mirrors; i++)
		rig_expect_same(&rig.p, &rig.m[i]);
	rig_close(&rig);
}
END_TEST

/* While a link is lent to a helper that does nothing, others post: their acknowledgements don't
 * wait for the link's thread to look now and then. */
START_TEST(others_do_not_wait_for_helpers)
{
	struct primary_helper idle = { 0 };
	struct help_writer w[2];
	struct rig_progress g;
	uint64_t start_ns;

	open_live(ADDR_SHM, 1);
	idle.primary = rig.p.primary;
	write_helping(50, w);
	rig_progress_init(&g);
	/* entered (which takes a record that is still on its way), and never helping again */
	for (unsigned i = 1; !idle.in; i++) {
		ck_assert_uint_lt(i, 10000);
		rig_write(&rig.p, 0, &g);
		if (primary_help_begin(&idle))
			primary_help_end(&idle, true);
		rig_progress_wait(&g, i, i);
	}
	start_ns = clock_mono_ns();
	ck_assert_uint_eq(rig_write_many(&rig.p, 200, 1, 0), 0);
	/* 50 ms for each would be 10 s */
	ck_assert_uint_lt(clock_mono_ns() - start_ns, 5 * NSEC_PER_SEC);
	primary_helper_leave(&idle);
	rig_expect_same(&rig.p, &rig.m[0]);
	rig_close(&rig);
}
END_TEST

/* The mirror goes while its link is lent: the helper finds out, or the link's thread does; writes
 * go on without it, and it comes back. */
START_TEST(mirror_leaves_a_lent_link)
{
	struct help_writer w[2];
	unsigned borrowed = 0;

	open_live(_i ? rig_net() : ADDR_SHM, 1);
	for (int round = 0; round < 3; round++) {
		write_helping(200, w);
		borrowed += w[0].borrowed + w[1].borrowed;
		rig_mirror_stop(&rig.m[0]);
		write_helping(200, w);
		ck_assert_uint_eq(w[0].progress.failed + w[1].progress.failed, 0);
		rig_mirror_start(&rig.m[0], NULL);
		rig_wait_live(&rig, 1);
	}
	write_helping(200, w);
	ck_assert_uint_gt(borrowed, 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("repl_help");
	TCase *help = tcase_create("help");

	tcase_set_timeout(help, 40);
	tcase_add_loop_test(help, helpers_take_acknowledgements, 0, 4);
	tcase_add_test(help, others_do_not_wait_for_helpers);
	tcase_add_loop_test(help, mirror_leaves_a_lent_link, 0, 2);
	suite_add_tcase(s, help);
	return unit_run(s);
}
