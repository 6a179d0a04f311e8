/* SPDX-License-Identifier: Apache-2.0 */
/* The thread, over the simulated NIC as a host: windows of one millisecond. */
#include "tuner/loop.h"

#include "common/clock.h"
#include "common/thread.h"
#include "tests/unit/unit_main.h"
#include "tuner/model_file.h"
#include "tuner/policy_xgboost.h"
#include "tuner/sim_work.h"
#include "tuner/trace.h"
#include "tuner/trace_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
	pthread_mutex_t lock;
	pthread_cond_t passed;
	struct sim_trace *trace;
	struct tuner_settings in_force;
	unsigned windows, reports, decisions;
	char report[200];
	uint32_t conditions;
} host = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void host_snapshot(void *ctx, struct tuner_snapshot *ret_snapshot)
{
	struct tuner_window w;

	pthread_mutex_lock(&host.lock);
	sim_trace_window(host.trace, host.windows % host.trace->windows, host.in_force, &w);
	*ret_snapshot = host.trace->now;
	host.windows++;
	pthread_cond_broadcast(&host.passed);
	pthread_mutex_unlock(&host.lock);
}

static void host_limits(void *ctx, struct tuner_bounds *ret_bounds, uint32_t *ret_flags)
{
	tuner_bounds_all(ret_bounds);
	ret_bounds->hi[TUNER_KNOB_LANES] = 5;
	*ret_flags = 0;
}

static struct tuner_settings host_apply(void *ctx, struct tuner_settings wanted)
{
	ck_assert_uint_le(wanted.level[TUNER_KNOB_LANES], 5);
	pthread_mutex_lock(&host.lock);
	host.in_force = wanted;
	pthread_mutex_unlock(&host.lock);
	return wanted;
}

static void host_report(void *ctx, const char *text)
{
	pthread_mutex_lock(&host.lock);
	host.reports++;
	snprintf(host.report, sizeof(host.report), "%s", text);
	pthread_mutex_unlock(&host.lock);
}

static void host_decided(void *ctx, const struct tuner_decision *d)
{
	pthread_mutex_lock(&host.lock);
	host.decisions++;
	pthread_mutex_unlock(&host.lock);
}

static const struct tuner_host_ops ops = {
	.snapshot = host_snapshot,
	.limits = host_limits,
	.apply = host_apply,
	.report = host_report,
	.decided = host_decided,
};

static void wait_windows(unsigned more)
{
	uint64_t deadline = clock_mono_ns() + 50 * NSEC_PER_SEC;
	int err = 0;

	pthread_mutex_lock(&host.lock);
	more += host.windows;
	while (!err && host.windows < more)
		err = thread_cond_wait_until(&host.passed, &host.lock, deadline);
	ck_assert_msg(host.windows >= more, "%u windows, not %u", host.windows, more);
	pthread_mutex_unlock(&host.lock);
}

static struct tuner_loop *start(int dirfd, FILE *trace)
{
	struct tuner_loop_config c = { .host = &ops, .window_ns = NSEC_PER_MSEC, .dirfd = dirfd,
				       .trace = trace, .conditions = host.conditions };
	struct tuner_loop *l;

	tuner_config_init(&c.tuner);
	c.tuner.policy = &tuner_policy_xgboost;
	host.windows = host.reports = 0;
	ck_assert_int_eq(thread_cond_init(&host.passed), 0);
	ck_assert_int_eq(sim_trace_create(SIM_MIX, 1, false, &host.trace), 0);
	ck_assert_int_eq(tuner_loop_start(&c, &l), 0);
	return l;
}

static void stop(struct tuner_loop *l)
{
	tuner_loop_stop(l);
	pthread_cond_destroy(&host.passed);
	sim_trace_destroy(host.trace);
}

START_TEST(orders_take_effect)
{
	struct tuner_settings set = { { 6, 0, 3, 1 } }, clamped = { { 5, 0, 3, 1 } };
	struct tuner_loop *l = start(-1, NULL);
	struct tuner_loop_state state;
	json_t *j;

	wait_windows(50);
	tuner_loop_set(l, set);
	wait_windows(3);
	ck_assert(tuner_settings_equal(tuner_loop_settings(l), clamped));
	j = tuner_loop_explain(l, 10);
	ck_assert_uint_eq(json_array_size(j), 10);
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(j, 0), "action")),
			 "freeze");
	json_decref(j);
	tuner_loop_set_knobs(l, 1U << TUNER_KNOB_BATCH, (struct tuner_settings){ { 0, 0, 1, 0 } });
	tuner_loop_freeze(l, true); /* keeps what was set */
	wait_windows(3);
	clamped.level[TUNER_KNOB_BATCH] = 1;
	ck_assert(tuner_settings_equal(tuner_loop_settings(l), clamped));
	tuner_loop_state(l, &state);
	ck_assert(state.frozen && state.set_by_hand && !state.recording && !state.failure);
	ck_assert_uint_ge(host.decisions, 50);
	tuner_loop_freeze(l, false);
	wait_windows(20);
	tuner_loop_state(l, &state);
	ck_assert(!state.frozen && !state.set_by_hand);
	ck_assert(!tuner_settings_equal(tuner_loop_settings(l), clamped));
	stop(l);
}
END_TEST

START_TEST(model_is_kept_and_a_broken_one_is_not)
{
	const struct model_file_kind kind = { XGBOOST_COLUMNS, 5 };
	char dir[] = "/tmp/kvfs-test-XXXXXX";
	struct tuner_loop *l;
	const char *why;
	void *bytes;
	size_t len;
	int fd, f;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	fd = open(dir, O_RDONLY | O_DIRECTORY);
	host.conditions = kind.conditions;
	l = start(fd, NULL);
	wait_windows(400);
	stop(l);
	ck_assert_uint_eq(host.reports, 1); /* no model yet */
	ck_assert_int_eq(model_file_load(fd, kind, &bytes, &len, &why), 0);
	free(bytes);
	l = start(fd, NULL);
	wait_windows(5);
	stop(l);
	ck_assert_uint_eq(host.reports, 0);
	host.conditions++; /* its levels would stand for other values */
	l = start(fd, NULL);
	wait_windows(5);
	stop(l);
	ck_assert_uint_eq(host.reports, 1);
	ck_assert_ptr_nonnull(strstr(host.report, "other options"));
	f = openat(fd, MODEL_FILE_NAME, O_WRONLY | O_TRUNC);
	for (int i = 0; i < 1000; i++)
		ck_assert_int_eq(write(f, &(char){ (char)(i * 37) }, 1), 1);
	close(f);
	l = start(fd, NULL);
	wait_windows(5);
	stop(l);
	ck_assert_uint_eq(host.reports, 1);
	ck_assert_ptr_nonnull(strstr(host.report, "not a tuner model"));
	unlinkat(fd, MODEL_FILE_NAME, 0);
	close(fd);
	rmdir(dir);
}
END_TEST

START_TEST(a_record_can_be_replayed)
{
	char *text = NULL;
	size_t len = 0;
	uint64_t window = 0;
	struct tuner_loop *l = start(-1, open_memstream(&text, &len));
	FILE *in;

	wait_windows(200);
	stop(l);
	in = fmemopen(text, len, "r");
	ck_assert_int_eq(tuner_trace_replay(in, NULL, NULL, &window), 0);
	fclose(in);
	free(text);
}
END_TEST

/* Also one that begins when the tuner has learnt and met loads. */
START_TEST(a_record_from_the_middle_can_be_replayed)
{
	char *text = NULL;
	size_t len = 0;
	uint64_t window = 0;
	struct tuner_loop *l = start(-1, NULL);
	FILE *in;

	wait_windows(500);
	tuner_loop_record(l, open_memstream(&text, &len));
	wait_windows(300);
	stop(l);
	in = fmemopen(text, len, "r");
	ck_assert_int_eq(tuner_trace_replay(in, NULL, NULL, &window), 0);
	fclose(in);
	ck_assert_ptr_nonnull(strstr(text, "\"try\""));
	free(text);
}
END_TEST

static int hanging_fd;

static int open_hanging(const char *path)
{
	(void)path;
	return hanging_fd;
}

/* Its file system hangs: the windows go on, the recording ends, and so does the loop. */
START_TEST(a_record_that_hangs_holds_nothing_up)
{
	struct tuner_loop_state state;
	struct tuner_loop *l;
	uint64_t began_ns;
	FILE *f = NULL;
	int fd[2];

	ck_assert_int_eq(pipe2(fd, O_CLOEXEC), 0);
	hanging_fd = fd[1];
	ck_assert_int_eq(trace_writer_open(open_hanging, "", 256U << 10, 50 * NSEC_PER_MSEC, &f),
			 0);
	l = start(-1, f);
	wait_windows(1000);
	tuner_loop_state(l, &state);
	ck_assert(!state.recording);
	began_ns = clock_mono_ns();
	stop(l);
	ck_assert_uint_lt(clock_mono_ns() - began_ns, 5 * NSEC_PER_SEC);
	ck_assert_uint_eq(host.reports, 1);
	ck_assert_ptr_nonnull(strstr(host.report, "cannot write the trace"));
	close(fd[0]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tuner loop");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, orders_take_effect);
	tcase_add_test(t, model_is_kept_and_a_broken_one_is_not);
	tcase_add_test(t, a_record_can_be_replayed);
	tcase_add_test(t, a_record_from_the_middle_can_be_replayed);
	tcase_add_test(t, a_record_that_hangs_holds_nothing_up);
	suite_add_tcase(s, t);
	return unit_run(s);
}
