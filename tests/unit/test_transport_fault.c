/* SPDX-License-Identifier: Apache-2.0 */
/* The fault injector does what its plan says, and the transport below stays within its contract. */
#include "replication/transport/transport_fault.h"

#include "tests/unit/transport_pair.h"
#include "tests/unit/unit_main.h"

#define LANES 4U
#define WINDOW (64U << 10)

static const struct { const struct transport_ops *ops; bool over_tcp; } inners[] = {
	{ &transport_tcp_ops, true },
	{ &transport_shm_ops, false },
};

/* Only the primary's end is faulty; it runs in p under the injector's ops. */
static struct transport_ep *open_faulty(struct pair *p, int kind,
					const struct transport_fault_plan *plan)
{
	struct transport_ep *faulty;

	pair_open(p, inners[kind].ops, inners[kind].over_tcp, LANES, WINDOW);
	ck_assert_int_eq(transport_fault_wrap(p->primary, plan, &faulty), 0);
	p->primary = faulty;
	return faulty;
}

static int fault_post(struct pair *p, unsigned lane, const void *data, size_t len, uint32_t imm)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
	struct transport_post post = { .iov = &iov, .iovcnt = 1, .imm = imm };

	return transport_fault_ops.post(p->primary, lane, &post, 1);
}

static void close_faulty(struct pair *p)
{
	transport_fault_ops.close(p->primary);
	p->ops->close(p->mirror);
}

START_TEST(disorders_lanes_but_not_a_lane)
{
	const struct transport_fault_plan plan = { .seed = 7, .delay_permille = 500,
						   .delay_max_ns = 2 * NSEC_PER_MSEC };
	uint32_t last[LANES] = { 0 }, highest = 0, overtaken = 0;
	struct pair p;

	open_faulty(&p, _i, &plan);
	for (uint32_t i = 1; i <= 400; i++)
		ck_assert_int_eq(fault_post(&p, i % LANES, &i, sizeof(i), i), 1);
	for (uint32_t i = 0; i < 400; i++) {
		struct transport_event ev = pair_next(&p, p.mirror);

		ck_assert_uint_gt(ev.imm, last[ev.lane]);
		last[ev.lane] = ev.imm;
		overtaken += ev.imm < highest;
		highest = ev.imm > highest ? ev.imm : highest;
	}
	ck_assert_uint_gt(overtaken, 20);
	close_faulty(&p);
}
END_TEST

START_TEST(corrupts_bytes)
{
	const struct transport_fault_plan plan = { .seed = 3, .corrupt_permille = 500 };
	static const uint8_t zero[100];
	unsigned bad = 0;
	uint64_t bytes;
	struct pair p;

	open_faulty(&p, _i, &plan);
	for (uint32_t i = 0; i < 200; i++) {
		ck_assert_int_eq(fault_post(&p, 0, zero, sizeof(zero), i), 1);
		ck_assert_uint_eq(pair_next(&p, p.mirror).imm, i);
		bad += memcmp(p.ops->window(p.mirror, &bytes), zero, sizeof(zero)) != 0;
	}
	ck_assert_uint_gt(bad, 60);
	ck_assert_uint_lt(bad, 140);
	close_faulty(&p);
}
END_TEST

START_TEST(kills_a_lane_in_mid_batch)
{
	const struct transport_fault_plan plan = { .kill_lane_at = 6 };
	struct transport_post posts[10] = { 0 };
	struct transport_event ev;
	uint32_t got = 0;
	struct pair p;

	open_faulty(&p, _i, &plan);
	for (uint32_t i = 0; i < 10; i++)
		posts[i].imm = i;
	ck_assert_int_eq(transport_fault_ops.post(p.primary, 2, posts, 10), -ENOTCONN);
	while ((ev = pair_next(&p, p.mirror)).kind == TRANSPORT_EVENT_NOTICE)
		ck_assert_uint_eq(ev.imm, got++);
	ck_assert_int_eq(ev.kind, TRANSPORT_EVENT_LANE_DOWN);
	ck_assert_uint_eq(ev.lane, 2);
	ck_assert_uint_le(got, 5);
	ck_assert_int_eq(fault_post(&p, 2, "x", 1, 1), -ENOTCONN);
	ck_assert_int_eq(fault_post(&p, 1, "x", 1, 1), 1);
	ck_assert_uint_eq(pair_next(&p, p.mirror).lane, 1);
	ck_assert_int_eq(transport_fault_ops.poll(p.primary, &ev, 1, NSEC_PER_SEC), 1);
	ck_assert_int_eq(ev.kind, TRANSPORT_EVENT_LANE_DOWN);
	close_faulty(&p);
}
END_TEST

START_TEST(withholds_credits_and_says_when_they_are_back)
{
	const struct transport_fault_plan plan = { .seed = 1, .short_permille = 300 };
	unsigned shorts = 0;
	struct pair p;

	open_faulty(&p, _i, &plan);
	for (uint32_t i = 0; i < 300;) {
		struct transport_event ev;
		int r = fault_post(&p, 0, &i, sizeof(i), i);

		if (r == 1) {
			ck_assert_uint_eq(pair_next(&p, p.mirror).imm, i++);
			continue;
		}
		ck_assert_int_eq(r, 0);
		shorts++;
		ck_assert_int_eq(transport_fault_ops.poll(p.primary, &ev, 1, NSEC_PER_SEC), 1);
		ck_assert_int_eq(ev.kind, TRANSPORT_EVENT_WRITABLE);
	}
	ck_assert_uint_gt(shorts, 50);
	close_faulty(&p);
}
END_TEST

START_TEST(stalls_the_receiver)
{
	const struct transport_fault_plan plan = { .stall_at = 1, .stall_ns = 50 * NSEC_PER_MSEC };
	struct transport_event ev;
	uint64_t start_ns;
	struct pair p;

	open_faulty(&p, _i, &plan);
	ck_assert_int_eq(pair_post(&p, p.mirror, 0, "x", 1, 0, 1), 1);
	ck_assert_int_eq(transport_fault_ops.poll(p.primary, &ev, 1, NSEC_PER_SEC), 1);
	start_ns = clock_mono_ns();
	ck_assert_int_eq(pair_post(&p, p.mirror, 0, "x", 1, 0, 2), 1);
	ck_assert_int_eq(transport_fault_ops.poll(p.primary, &ev, 1, 5 * NSEC_PER_MSEC), 0);
	transport_fault_ops.wake(p.primary);
	ck_assert_int_eq(transport_fault_ops.poll(p.primary, &ev, 1, NSEC_PER_SEC), 0);
	ck_assert_int_eq(transport_fault_ops.poll(p.primary, &ev, 1, NSEC_PER_SEC), 1);
	ck_assert_uint_eq(ev.imm, 2);
	ck_assert_uint_ge(clock_mono_ns() - start_ns, 45 * NSEC_PER_MSEC);
	close_faulty(&p);
}
END_TEST

START_TEST(takes_the_peer_away)
{
	const struct transport_fault_plan plan = { .peer_gone_at = 3 };
	struct pair p;

	open_faulty(&p, _i, &plan);
	ck_assert_int_eq(fault_post(&p, 0, "x", 1, 1), 1);
	ck_assert_int_eq(fault_post(&p, 1, "x", 1, 2), 1);
	ck_assert_int_eq(fault_post(&p, 2, "x", 1, 3), -ENOTCONN);
	pair_next_of(&p, p.mirror, TRANSPORT_EVENT_PEER_DOWN);
	ck_assert_int_eq(fault_post(&p, 3, "x", 1, 4), -ENOTCONN);
	close_faulty(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("transport_fault");
	TCase *t = tcase_create("all");
	const int kinds = sizeof(inners) / sizeof(inners[0]);

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, disorders_lanes_but_not_a_lane, 0, kinds);
	tcase_add_loop_test(t, corrupts_bytes, 0, kinds);
	tcase_add_loop_test(t, kills_a_lane_in_mid_batch, 0, kinds);
	tcase_add_loop_test(t, withholds_credits_and_says_when_they_are_back, 0, kinds);
	tcase_add_loop_test(t, stalls_the_receiver, 0, kinds);
	tcase_add_loop_test(t, takes_the_peer_away, 0, kinds);
	suite_add_tcase(s, t);
	return unit_run(s);
}
