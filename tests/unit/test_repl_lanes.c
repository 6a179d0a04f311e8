/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes die under a live session: they are made anew in it, nothing is lost, nothing is applied
 * twice (the rig's store takes each LSN once, in order), and the mirror never leaves the set that
 * is in sync. Where they can't be, the session ends and another catches up.
 */
#include "replication/mirror/mirror_internal.h"
#include "replication/primary/link.h"
#include "tests/unit/repl_rig.h"
#include "tests/unit/unit_main.h"

#include <poll.h>
#include <sys/socket.h>

#define LANES 4U
#define KILLS 14U

static struct rig rig;

static struct link_stats stats(void)
{
	struct link_stats s;

	ck_assert_uint_eq(primary_stats(rig.p.primary, &s, 1), 1);
	return s;
}

/* From outside of the session, as a failure of the network would. */
static void kill_at_primary(unsigned lane)
{
	struct link *l = &rig.p.primary->links[0];

	pthread_mutex_lock(&rig.p.primary->lock);
	if (l->wake_ep)
		l->tops->kill_lane(l->wake_ep, lane);
	pthread_mutex_unlock(&rig.p.primary->lock);
}

/* The primary may be live a moment before the mirror has its endpoint. */
static void kill_at_mirror(unsigned lane)
{
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS;
	struct mirror *m = rig.m[0].mirror;
	bool done;

	do {
		pthread_mutex_lock(&m->lock);
		done = m->wake_ep != NULL;
		if (done)
			m->wake_tops->kill_lane(m->wake_ep, lane);
		pthread_mutex_unlock(&m->lock);
		ck_assert_uint_lt(clock_mono_ns(), deadline);
	} while (!done && sched_yield() == 0);
}

static void await_replaced(unsigned n)
{
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS;
	struct link_stats s;

	do {
		s = stats();
		ck_assert_msg(clock_mono_ns() < deadline, "%u of %u replaced: %s",
			      s.lanes_replaced, n, s.last_error);
		sched_yield();
	} while (s.lanes_replaced < n);
}

static void start_with(enum addr_kind kind, const struct transport_ops *primary_ops,
		       const struct transport_ops *mirror_ops, unsigned lanes)
{
	rig_open(&rig, kind);
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 1, 2 * RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], mirror_ops);
	rig_primary_start(&rig, 1, lanes, primary_ops);
	rig_wait_live(&rig, 1);
}

/* The session is the first, the mirror has all, each record once, and still knows that it is in
 * sync. */
static void expect_one_session(void)
{
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS;
	struct link_stats s = stats();
	struct mirror_stats ms;

	ck_assert_msg(s.reconnects == 0, "%lu reconnects: %s", s.reconnects, s.ended_why);
	ck_assert_str_eq(s.ended_why, "");
	ck_assert_int_eq(s.state, LINK_LIVE);
	ck_assert_uint_eq(rig.p.noted_in, 1);
	ck_assert_uint_eq(rig.p.noted_out, 0);
	ck_assert_uint_eq(rig.m[0].told_out, 1); /* when the session began */
	ck_assert_uint_eq(rig.m[0].resyncs, 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	do
		mirror_stats(rig.m[0].mirror, &ms);
	while ((!ms.in_sync || ms.records < rig.p.last_lsn) && clock_mono_ns() < deadline &&
	       sched_yield() == 0);
	ck_assert(ms.in_sync);
	ck_assert_uint_eq(ms.records, rig.p.last_lsn);
	ck_assert_uint_eq(s.lanes, s.lanes_active);
}

/* A load, and lanes that die one after the other, at either end. */
static void die_under_load(enum addr_kind kind, unsigned lanes)
{
	struct rig_writer w = { .n = &rig.p, .count = RIG_RECORDS_MAX - 1, .depth = 64 };

	start_with(kind, NULL, NULL, lanes);
	rig_progress_init(&w.progress);
	ck_assert_int_eq(thread_start(&w.thread, "writer", rig_writer_main, &w), 0);
	for (unsigned i = 0; i < KILLS; i++) {
		rig_progress_more(&w.progress);
		if (i % 2)
			kill_at_mirror(i / 2 % lanes);
		else
			kill_at_primary(i / 2 % lanes);
		await_replaced(i + 1);
	}
	rig_progress_more(&w.progress);
	rig_progress_end(&w.progress);
	pthread_join(w.thread, NULL);
	ck_assert_uint_eq(w.progress.failed, 0);
	ck_assert_uint_eq(rig_write_many(&rig.p, 300, 16, 0), 0);
	ck_assert_uint_eq(stats().lanes_replaced, KILLS);
	ck_assert_uint_ge(stats().lanes_down, KILLS);
	expect_one_session();
	rig_close(&rig);
}

START_TEST(lanes_die_under_load)
{
	die_under_load(_i % 2 ? ADDR_SHM : ADDR_TCP, _i / 2 ? 1 : LANES);
}
END_TEST

/* In the middle of batches, on whatever lane it is, at both ends: records, acknowledgements,
 * heartbeats and notices of being in sync are lost with them; lanes overtake each other. */
START_TEST(lanes_die_in_batches)
{
	static const struct transport_fault_plan plans[] = {
		{ .seed = 1, .kill_lane_every = 397 },
		{ .seed = 2, .kill_lane_every = 401, .delay_permille = 100,
		  .delay_max_ns = 300 * NSEC_PER_USEC, .short_permille = 50 },
		{ .seed = 3, .peer_gone_at = 900 },
	};
	bool shm = _i % 2;

	transport_fault_use(shm ? &transport_shm_ops : rig_net_ops(), &plans[_i / 2]);
	start_with(shm ? ADDR_SHM : rig_net(), &transport_fault_ops, &transport_fault_ops, LANES);
	ck_assert_uint_eq(rig_write_many(&rig.p, 1500, 32, 0), 0);
	ck_assert_uint_ge(stats().lanes_replaced, 3);
	expect_one_session();
	rig_close(&rig);
}
END_TEST

START_TEST(all_lanes_die_at_once)
{
	struct rig_writer w = { .n = &rig.p, .count = RIG_RECORDS_MAX - 1, .depth = 64 };

	start_with(_i ? ADDR_SHM : ADDR_TCP, NULL, NULL, LANES);
	rig_progress_init(&w.progress);
	ck_assert_int_eq(thread_start(&w.thread, "writer", rig_writer_main, &w), 0);
	for (unsigned round = 1; round <= 4; round++) {
		rig_progress_more(&w.progress);
		for (unsigned i = 0; i < LANES; i++)
			if ((i + round) % 2)
				kill_at_mirror(i);
			else
				kill_at_primary(i);
		await_replaced(round * LANES);
	}
	rig_progress_end(&w.progress);
	pthread_join(w.thread, NULL);
	ck_assert_uint_eq(w.progress.failed, 0);
	expect_one_session();
	rig_close(&rig);
}
END_TEST

/* Nothing to do, and a lane dies: it is there again before anybody needs it. */
START_TEST(a_lane_dies_while_idle)
{
	start_with(_i ? ADDR_SHM : ADDR_TCP, NULL, NULL, 2);
	for (unsigned i = 0; i < 4; i++) {
		kill_at_mirror(i % 2);
		await_replaced(i + 1);
	}
	ck_assert_uint_eq(rig_write_many(&rig.p, 100, 8, 0), 0);
	expect_one_session();
	rig_close(&rig);
}
END_TEST

/* ---- where it can't be ---- */

static struct transport_ops crippled;
static _Atomic unsigned attempts;

static int refuse_lane(struct transport_ep *ep, int control_fd, const struct transport_relane *r,
		       const char **ret_why)
{
	(void)ep;
	(void)control_fd;
	(void)r;
	*ret_why = "the test says no";
	attempts++;
	return -EIO;
}

/* Takes no part until the other end has given up. */
static int sit_still(struct transport_ep *ep, int control_fd, const struct transport_relane *r,
		     const char **ret_why)
{
	struct pollfd p = { .fd = control_fd, .events = POLLRDHUP };

	(void)ep;
	(void)r;
	*ret_why = "the primary gave up";
	attempts++;
	ck_assert_int_gt(poll(&p, 1, (int)(RIG_WAIT_NS / NSEC_PER_MSEC)), 0);
	return -ECONNRESET;
}

static void await_new_session(const char *why)
{
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS;
	struct link_stats s;

	do {
		s = stats();
		ck_assert_msg(clock_mono_ns() < deadline, "the session goes on: %s", s.last_error);
		sched_yield();
	} while (s.reconnects == 0 || s.state != LINK_LIVE);
	ck_assert_msg(strstr(s.ended_why, why), "it ended with: %s", s.ended_why);
	ck_assert_uint_eq(rig_write_many(&rig.p, 200, 16, 0), 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	ck_assert_uint_eq(rig.m[0].resyncs, 0);
	ck_assert_uint_ge(rig.p.noted_out, 1);
}

/* A transport that can't, or an attempt that fails: as ever, the session ends. */
START_TEST(ends_where_no_lane_comes)
{
	static const char *const whys[] = { "lane 1 failed", "no new lane: the test says no" };

	crippled = transport_tcp_ops;
	crippled.lane_connect = _i == 1 ? refuse_lane : NULL;
	attempts = 0;
	start_with(ADDR_TCP, &crippled, NULL, 2);
	ck_assert_uint_eq(rig_write_many(&rig.p, 200, 16, 0), 0);
	kill_at_primary(1);
	await_new_session(whys[_i]);
	ck_assert_uint_eq(attempts > 0, _i == 1);
	ck_assert_uint_eq(stats().lanes_replaced, 0);
	rig_close(&rig);
}
END_TEST

/* Bounded: the mirror takes no part. */
START_TEST(ends_in_time)
{
	uint64_t began;

	crippled = transport_tcp_ops;
	crippled.lane_accept = sit_still;
	attempts = 0;
	start_with(ADDR_TCP, NULL, &crippled, 2);
	ck_assert_uint_eq(rig_write_many(&rig.p, 200, 16, 0), 0);
	began = clock_mono_ns();
	kill_at_primary(0);
	await_new_session("no new lane");
	ck_assert_uint_lt(clock_mono_ns() - began, 2 * RIG_TIMEOUT_NS);
	ck_assert_uint_eq(attempts, 1);
	rig_close(&rig);
}
END_TEST

START_TEST(ends_without_a_control_connection)
{
	struct link *l;

	start_with(_i ? ADDR_SHM : ADDR_TCP, NULL, NULL, 2);
	ck_assert_uint_eq(rig_write_many(&rig.p, 200, 16, 0), 0);
	l = &rig.p.primary->links[0];
	ck_assert_int_eq(shutdown(l->control_fd, SHUT_RDWR), 0);
	/* it is not needed until then */
	ck_assert_uint_eq(rig_write_many(&rig.p, 200, 16, 0), 0);
	ck_assert_uint_eq(stats().reconnects, 0);
	kill_at_primary(1);
	await_new_session(" failed: ");
	ck_assert_uint_eq(stats().lanes_replaced, 0);
	rig_close(&rig);
}
END_TEST

static int frozen_connect(int control_fd, const struct addr *peer, const struct transport_params *p,
			  struct transport_ep **ret_ep, const char **ret_why)
{
	(void)peer;
	(void)p;
	(void)ret_ep;
	return sit_still(NULL, control_fd, NULL, ret_why);
}

static int frozen_accept(int control_fd, const struct transport_params *p,
			 struct transport_ep **ret_ep, const char **ret_why)
{
	return frozen_connect(control_fd, NULL, p, ret_ep, ret_why);
}

/* A peer that stands still in set-up holds up nobody who is to stop: neither the mirror (nor who
 * else calls there, by the same way) nor the primary. */
START_TEST(a_frozen_set_up_is_left_at_once)
{
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS, began;
	enum addr_kind kind = _i / 2 ? ADDR_SHM : ADDR_TCP;

	crippled = *transport_for(kind);
	crippled.connect = _i % 2 ? frozen_connect : crippled.connect;
	crippled.accept = _i % 2 ? crippled.accept : frozen_accept;
	attempts = 0;
	rig_open(&rig, kind);
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 0, RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], &crippled);
	rig_primary_start(&rig, 1, 2, &crippled);
	while (attempts == 0 && clock_mono_ns() < deadline)
		sched_yield();
	ck_assert_uint_eq(attempts, 1);
	began = clock_mono_ns();
	if (_i % 2)
		rig_mirror_stop(&rig.m[0]);
	else
		rig_primary_stop(&rig.p);
	ck_assert_uint_lt(clock_mono_ns() - began, 2 * NSEC_PER_SEC);
	rig_close(&rig);
}
END_TEST

/* Lanes that die time and again are not worth a session. */
START_TEST(ends_when_lanes_die_too_often)
{
	start_with(ADDR_SHM, NULL, NULL, 2);
	for (unsigned i = 0; stats().reconnects == 0; i++) {
		unsigned replaced = stats().lanes_replaced;

		ck_assert_uint_lt(i, 100);
		kill_at_primary(i % 2);
		while (stats().lanes_replaced == replaced && stats().reconnects == 0)
			sched_yield();
	}
	await_new_session("time and again");
	rig_close(&rig);
}
END_TEST

/* A way that takes small packets only: lanes open, small records get through, and a lane dies a
 * while after something large went out on it. */
#define NARROW_BYTES 1024
#define NARROW_DIES_NS (100 * NSEC_PER_MSEC)
static struct {
	atomic_bool on;
	_Atomic uint64_t dies_ns[LANES]; /* 0: nothing large went out on it */
} narrow;

static int narrow_post(struct transport_ep *ep, unsigned lane, const struct transport_post *posts,
		       unsigned n)
{
	size_t most = 0;

	for (unsigned i = 0; i < n; i++) {
		size_t bytes = 0;

		for (int k = 0; k < posts[i].iovcnt; k++)
			bytes += posts[i].iov[k].iov_len;
		most = bytes > most ? bytes : most;
	}
	if (narrow.on && most > NARROW_BYTES && !narrow.dies_ns[lane])
		narrow.dies_ns[lane] = clock_mono_ns() + NARROW_DIES_NS;
	/* what follows waits behind it, and is lost with it */
	return narrow.dies_ns[lane] ? (int)n : transport_tcp_ops.post(ep, lane, posts, n);
}

static int narrow_poll(struct transport_ep *ep, struct transport_event *ret_events, int max,
		       uint64_t timeout_ns)
{
	for (unsigned i = 0; i < transport_tcp_ops.lanes(ep); i++) {
		if (!narrow.dies_ns[i] || clock_mono_ns() < narrow.dies_ns[i])
			continue;
		transport_tcp_ops.kill_lane(ep, i);
		narrow.dies_ns[i] = 0;
	}
	return transport_tcp_ops.poll(ep, ret_events, max, timeout_ns);
}

/* New lanes that carry nothing are not tried for ever, though each one comes up. */
START_TEST(ends_where_new_lanes_carry_nothing)
{
	struct rig_writer w = { .n = &rig.p, .count = 200, .depth = 64 };
	uint64_t deadline;

	crippled = transport_tcp_ops;
	crippled.post = narrow_post;
	crippled.poll = narrow_poll;
	memset(&narrow, 0, sizeof(narrow));
	narrow.on = true;
	start_with(ADDR_TCP, &crippled, NULL, 2);
	rig_progress_init(&w.progress);
	ck_assert_int_eq(thread_start(&w.thread, "writer", rig_writer_main, &w), 0);
	deadline = clock_mono_ns() + RIG_WAIT_NS;
	while (stats().reconnects == 0) {
		ck_assert_msg(clock_mono_ns() < deadline, "goes on: %s", stats().last_error);
		sched_yield();
	}
	narrow.on = false;
	pthread_join(w.thread, NULL);
	ck_assert_uint_eq(w.progress.failed, 0);
	ck_assert_msg(stats().lanes_replaced >= 3, "%u replaced: %s", stats().lanes_replaced,
		      stats().ended_why);
	await_new_session("new lanes carry nothing either");
	rig_close(&rig);
}
END_TEST

/* A transport that gets no more than one of its lanes up in time. */
static struct transport_ops slow_ops;
static _Atomic unsigned slow_asked;

static int slow_connect(int control_fd, const struct addr *peer, const struct transport_params *p,
			struct transport_ep **ret_ep, const char **ret_why)
{
	slow_asked++;
	if (p->lanes > 1)
		return -EAGAIN;
	return rig_net_ops()->connect(control_fd, peer, p, ret_ep, ret_why);
}

/* It is asked for fewer, at once. */
START_TEST(fewer_lanes_where_some_are_late)
{
	struct primary_config cfg;
	struct link_stats s;

	slow_ops = *rig_net_ops();
	slow_ops.connect = slow_connect;
	rig_open(&rig, rig_net());
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 1, RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], NULL);
	cfg = rig_primary_config(&rig.p, &rig.m[0].listen, 1, 1);
	cfg.lanes_open = 4;
	cfg.transport = &slow_ops;
	rig_primary_start_with(&rig, &cfg);
	rig_wait_live(&rig, 1);
	primary_stats(rig.p.primary, &s, 1);
	ck_assert_uint_eq(s.lanes, 1);
	ck_assert_uint_eq(slow_asked, 3); /* for 4, 2, 1 */
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("repl_lanes");
	TCase *t = tcase_create("anew");
	TCase *batches = tcase_create("batches"); /* also over verbs, in the rig */
	TCase *ends = tcase_create("ends");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, lanes_die_under_load, 0, 4);
	tcase_add_loop_test(t, all_lanes_die_at_once, 0, 2);
	tcase_add_loop_test(t, a_lane_dies_while_idle, 0, 2);
	suite_add_tcase(s, t);
	tcase_set_timeout(batches, 60);
	tcase_add_loop_test(batches, lanes_die_in_batches, 0, 6);
	suite_add_tcase(s, batches);
	tcase_set_timeout(ends, 60);
	tcase_add_loop_test(ends, ends_where_no_lane_comes, 0, 2);
	tcase_add_test(ends, ends_in_time);
	tcase_add_loop_test(ends, ends_without_a_control_connection, 0, 2);
	tcase_add_loop_test(ends, a_frozen_set_up_is_left_at_once, 0, 4);
	tcase_add_test(ends, ends_when_lanes_die_too_often);
	tcase_add_test(ends, ends_where_new_lanes_carry_nothing);
	tcase_add_test(ends, fewer_lanes_where_some_are_late);
	suite_add_tcase(s, ends);
	return unit_run(s);
}
