/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of the transport seam where lanes die and are made anew, and where the peer goes:
 * one source, run over every transport. Both ends mostly live in this process and are polled in
 * turn.
 */
#include "tests/unit/transport_kinds.h"

#include <signal.h>
#include <sys/wait.h>

/* kill: 0 the sender kills, 1 the receiver. */
static void kill_in_batch(int kind, bool receiver_kills)
{
	struct transport_event ev;
	uint32_t got = 0;
	struct pair p;

	open_kind(&p, kind);
	ck_assert_int_eq(post_batch(&p, 1, 0, 20), 20);
	p.ops->kill_lane(receiver_kills ? p.mirror : p.primary, 1);
	/* What still arrives is a beginning of the batch. */
	while ((ev = pair_next(&p, p.mirror)).kind == TRANSPORT_EVENT_NOTICE)
		ck_assert_uint_eq(ev.imm, got++);
	ck_assert_int_eq(ev.kind, TRANSPORT_EVENT_LANE_DOWN);
	ck_assert_uint_eq(ev.lane, 1);
	ck_assert_int_lt(ev.err, 0);
	ev = pair_next(&p, p.primary);
	ck_assert_int_eq(ev.kind, TRANSPORT_EVENT_LANE_DOWN);
	ck_assert_uint_eq(ev.lane, 1);
	ck_assert_int_eq(post_batch(&p, 1, 20, 4), -ENOTCONN);
	ck_assert_int_eq(pair_post(&p, p.mirror, 1, "x", 1, 0, 1), -ENOTCONN);
	for (unsigned lane = 0; lane < LANES; lane++) {
		if (lane == 1)
			continue;
		ck_assert_int_eq(pair_post(&p, p.primary, lane, "x", 1, 0, 9), 1);
		ck_assert_uint_eq(pair_next(&p, p.mirror).lane, lane);
		ck_assert_int_eq(pair_post(&p, p.mirror, lane, "x", 1, 0, 9), 1);
		ck_assert_uint_eq(pair_next(&p, p.primary).lane, lane);
	}
	pair_close(&p);
}

START_TEST(goes_on_when_the_sender_loses_a_lane)
{
	kill_in_batch(_i, false);
}
END_TEST

START_TEST(goes_on_when_the_receiver_loses_a_lane)
{
	kill_in_batch(_i, true);
}
END_TEST

/* Takes what comes at both ends until both say that the lane is down. Notices of other lanes count
 * in *ret_others. */
static void await_lane_down(struct pair *p, unsigned lane, unsigned *ret_others)
{
	struct transport_ep *const ep[2] = { p->mirror, p->primary };
	struct transport_event ev;

	for (int i = 0; i < 2; i++) {
		while ((ev = pair_next(p, ep[i])).kind != TRANSPORT_EVENT_LANE_DOWN)
			*ret_others += ev.kind == TRANSPORT_EVENT_NOTICE && ev.lane != lane;
		ck_assert_uint_eq(ev.lane, lane);
	}
}

/* The mirror's next notice; the sender is polled as well, for credits it may wait for. */
static struct transport_event next_notice(struct pair *p)
{
	uint64_t deadline_ns = pair_deadline();
	struct transport_event ev, other;

	while (p->ops->poll(p->mirror, &ev, 1, NSEC_PER_MSEC) == 0 ||
	       ev.kind != TRANSPORT_EVENT_NOTICE) {
		p->ops->poll(p->primary, &other, 1, 0);
		ck_assert_uint_lt(clock_mono_ns(), deadline_ns);
	}
	return ev;
}

/* All of a lane's credits, and a message of full size each way. */
static void use_lane(struct pair *p, unsigned lane, uint32_t imm)
{
	struct transport_event ev;
	int n;

	for (uint32_t i = 0; i < ORDINARY; i++)
		ck_assert_int_eq(pair_post(p, p->primary, lane, &imm, sizeof(imm), 0, imm + i), 1);
	for (uint32_t i = 0; i < ORDINARY; i++) {
		ev = next_notice(p);
		ck_assert_uint_eq(ev.lane, lane);
		ck_assert_uint_eq(ev.imm, imm + i);
	}
	while ((n = post_batch(p, lane, imm, 30)) == 0) /* the credits are on their way back */
		p->ops->poll(p->primary, &ev, 1, NSEC_PER_MSEC);
	ck_assert_int_eq(n, 30);
	for (uint32_t i = 0; i < 30; i++) {
		ev = next_notice(p);
		ck_assert_uint_eq(ev.imm, imm + i);
		check_message(p, &ev);
	}
	ck_assert_int_eq(pair_post(p, p->mirror, lane, "ack", 3, 0, imm), 1);
	ck_assert_uint_eq(pair_next_of(p, p->primary, TRANSPORT_EVENT_NOTICE).imm, imm);
}

/* A lane dies in the middle of a batch, with credits used up and with notices not taken, again and
 * again: the new one has all its credits and brings nothing of the old one; the others go on. */
START_TEST(makes_a_dead_lane_anew)
{
	unsigned fds = 0, others;
	struct pair p;

	open_kind(&p, _i);
	for (uint32_t g = 1; g <= 3 * LANES; g++) {
		unsigned lane = g % LANES, other = (g + 1) % LANES;

		if (g == LANES)
			fds = open_fds();
		if (g % 3 == 0)
			post_until_short(&p, lane, 5);
		else
			ck_assert_int_eq(post_batch(&p, lane, 0, 20), 20);
		pair_post(&p, p.mirror, lane, "x", 1, 0, 1);
		ck_assert_int_eq(pair_post(&p, p.primary, other, "x", 1, 0, 9), 1);
		p.ops->kill_lane(g % 2 ? p.mirror : p.primary, lane);
		others = 0;
		await_lane_down(&p, lane, &others);
		if (kinds[_i].inner == NULL) /* an injector may hold it back, and lose it */
			ck_assert_int_eq(pair_post(&p, p.primary, lane, "x", 1, 0, 9), -ENOTCONN);
		if (others == 0)
			ck_assert_uint_eq(pair_next_of(&p, p.mirror, TRANSPORT_EVENT_NOTICE).lane,
					  other);
		pair_relane(&p, kinds[_i].over_tcp, lane, g);
		use_lane(&p, lane, g * 10000);
		ck_assert_int_eq(pair_post(&p, p.primary, other, "x", 1, 0, 9), 1);
		ck_assert_uint_eq(pair_next_of(&p, p.mirror, TRANSPORT_EVENT_NOTICE).lane, other);
	}
	ck_assert_uint_eq(open_fds(), fds);
	pair_close(&p);
}
END_TEST

/* Also the last one, and all of them. */
START_TEST(comes_back_when_all_lanes_were_down)
{
	struct pair p;

	open_kind(&p, _i);
	for (uint32_t g = 1; g <= 2; g++) {
		for (unsigned i = 0; i < LANES; i++)
			p.ops->kill_lane(p.primary, i);
		pair_next_of(&p, p.primary, TRANSPORT_EVENT_PEER_DOWN);
		pair_next_of(&p, p.mirror, TRANSPORT_EVENT_PEER_DOWN);
		for (unsigned i = 0; i < LANES; i++)
			pair_relane(&p, kinds[_i].over_tcp, i, g);
		for (unsigned i = 0; i < LANES; i++)
			use_lane(&p, i, g * 100000 + i * 10000);
	}
	pair_close(&p);
}
END_TEST

START_TEST(no_lane_comes_from_a_peer_that_is_gone)
{
	struct transport_relane r = { .lane = 1, .generation = 1 };
	const char *why = NULL;
	struct pair p;
	int fds[2];

	open_kind(&p, _i);
	pair_sockets(kinds[_i].over_tcp, fds);
	p.ops->close(p.primary);
	pair_next_of(&p, p.mirror, TRANSPORT_EVENT_PEER_DOWN);
	/* nobody answers, then nobody is there */
	r.deadline_ns = clock_mono_ns() + 100 * NSEC_PER_MSEC;
	ck_assert_int_lt(p.ops->lane_accept(p.mirror, fds[0], &r, &why), 0);
	ck_assert_ptr_nonnull(why);
	close(fds[1]);
	r.deadline_ns = pair_deadline();
	ck_assert_int_lt(p.ops->lane_accept(p.mirror, fds[0], &r, &why), 0);
	ck_assert_uint_lt(clock_mono_ns(), r.deadline_ns);
	ck_assert_int_eq(pair_post(&p, p.mirror, 1, "x", 1, 0, 1), -ENOTCONN);
	p.ops->close(p.mirror);
	close(fds[0]);
}
END_TEST

START_TEST(says_when_the_last_lane_is_gone)
{
	struct pair p;

	open_kind(&p, _i);
	for (unsigned i = 0; i < LANES; i++)
		p.ops->kill_lane(p.mirror, i);
	for (unsigned i = 0; i < LANES; i++) {
		ck_assert_int_eq(pair_next(&p, p.primary).kind, TRANSPORT_EVENT_LANE_DOWN);
		ck_assert_int_eq(pair_next(&p, p.mirror).kind, TRANSPORT_EVENT_LANE_DOWN);
	}
	ck_assert_int_eq(pair_next(&p, p.primary).kind, TRANSPORT_EVENT_PEER_DOWN);
	ck_assert_int_eq(pair_next(&p, p.mirror).kind, TRANSPORT_EVENT_PEER_DOWN);
	pair_close(&p);
}
END_TEST

START_TEST(notices_a_closed_peer)
{
	struct pair p;

	open_kind(&p, _i);
	ck_assert_int_eq(pair_post(&p, p.primary, 0, "x", 1, 0, 77), 1);
	p.ops->close(p.primary);
	ck_assert_int_lt(pair_next_of(&p, p.mirror, TRANSPORT_EVENT_PEER_DOWN).err, 0);
	for (unsigned i = 0; i < LANES; i++)
		ck_assert_int_eq(pair_post(&p, p.mirror, i, "x", 1, 0, 1), -ENOTCONN);
	p.ops->close(p.mirror);
}
END_TEST

/* The other process: connects, sends without end, is killed. */
static void peer_main(int kind, int fd)
{
	struct transport_params params = pair_params(LANES, 64 << 10);
	const struct addr addr = { .kind = ADDR_TCP };
	struct pair p = { .ops = kinds[kind].ops };
	struct transport_event ev;
	const char *why;

	if (p.ops->connect(fd, &addr, &params, &p.primary, &why) < 0)
		_exit(1);
	for (uint32_t i = 0;; i++) {
		pair_post(&p, p.primary, i % LANES, "x", 1, 0, i);
		p.ops->poll(p.primary, &ev, 1, 0);
	}
}

START_TEST(notices_a_killed_peer_within_a_second)
{
	struct transport_params params = pair_params(LANES, WINDOW);
	struct pair p = { .ops = kinds[_i].ops };
	const char *why;
	uint64_t killed_ns;
	int fds[2], status;
	pid_t pid;

	use_kind(_i);
	pair_sockets(kinds[_i].over_tcp, fds);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		close(fds[0]);
		peer_main(_i, fds[1]);
	}
	close(fds[1]);
	ck_assert_int_eq(p.ops->accept(fds[0], &params, &p.mirror, &why), 0);
	pair_next_of(&p, p.mirror, TRANSPORT_EVENT_NOTICE);
	kill(pid, SIGKILL);
	killed_ns = clock_mono_ns();
	pair_next_of(&p, p.mirror, TRANSPORT_EVENT_PEER_DOWN);
	ck_assert_uint_lt(clock_mono_ns() - killed_ns, NSEC_PER_SEC);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status));
	p.ops->close(p.mirror);
	close(fds[0]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("transport_lanes");
	TCase *t = tcase_create("lanes");
	int first = kinds_first(), end = kinds_end();

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, goes_on_when_the_sender_loses_a_lane, first, end);
	tcase_add_loop_test(t, goes_on_when_the_receiver_loses_a_lane, first, end);
	tcase_add_loop_test(t, makes_a_dead_lane_anew, first, end);
	tcase_add_loop_test(t, comes_back_when_all_lanes_were_down, first, end);
	tcase_add_loop_test(t, no_lane_comes_from_a_peer_that_is_gone, first, end);
	tcase_add_loop_test(t, says_when_the_last_lane_is_gone, first, end);
	tcase_add_loop_test(t, notices_a_closed_peer, first, end);
	tcase_add_loop_test(t, notices_a_killed_peer_within_a_second, first, end);
	suite_add_tcase(s, t);
	return unit_run(s);
}
