/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of the transport seam while nothing is lost: one source, run over every transport.
 * Both ends mostly live in this process and are polled in turn. Lanes that die are in
 * test_transport_lanes.c, connecting ever again in test_transport_cycles.c.
 */
#include "tests/unit/transport_kinds.h"

#include <stdatomic.h>

struct waker {
	struct pair *p;
	_Atomic int stop;
};

START_TEST(keeps_order_on_a_lane)
{
	const uint32_t total = 6000;
	struct transport_event ev[50];
	uint32_t sent = 0, got = 0;
	struct pair p;
	uint64_t deadline_ns = pair_deadline();

	open_kind(&p, _i);
	while (got < total) {
		unsigned n = 1 + sent % 64;
		int k;

		/* Not more on the way than the window has slots. */
		if (n > total - sent)
			n = total - sent;
		if (sent + n - got <= SLOTS && n > 0) {
			k = post_batch(&p, 1, sent, n);
			ck_assert_int_ge(k, 0);
			sent += (uint32_t)k;
		}
		k = p.ops->poll(p.mirror, ev, 50, got == sent ? 0 : NSEC_PER_MSEC);
		for (int i = 0; i < k; i++) {
			ck_assert_int_eq(ev[i].kind, TRANSPORT_EVENT_NOTICE);
			ck_assert_uint_eq(ev[i].lane, 1);
			ck_assert_uint_eq(ev[i].imm, got);
			check_message(&p, &ev[i]);
			got++;
		}
		k = p.ops->poll(p.primary, ev, 50, 0);
		for (int i = 0; i < k; i++)
			ck_assert_int_eq(ev[i].kind, TRANSPORT_EVENT_WRITABLE);
		ck_assert_uint_lt(clock_mono_ns(), deadline_ns);
	}
	pair_close(&p);
}
END_TEST

START_TEST(serves_all_lanes_both_ways)
{
	struct transport_event ev;
	uint32_t next[LANES] = { 0 };
	struct pair p;
	uint64_t bytes;

	open_kind(&p, _i);
	ck_assert_uint_eq(p.ops->lanes(p.mirror), LANES);
	ck_assert_uint_eq(p.ops->lanes(p.primary), LANES);
	ck_assert_uint_eq(p.ops->remote_window_bytes(p.primary), WINDOW);
	p.ops->window(p.primary, &bytes);
	ck_assert_uint_eq(p.ops->remote_window_bytes(p.mirror), bytes);
	for (uint32_t i = 0; i < 400; i++)
		ck_assert_int_eq(pair_post(&p, p.primary, i % LANES, &i, sizeof(i), i * 8, i), 1);
	for (uint32_t i = 0; i < 400; i++) {
		ev = pair_next(&p, p.mirror);
		ck_assert_int_eq(ev.kind, TRANSPORT_EVENT_NOTICE);
		ck_assert_uint_eq(ev.imm, next[ev.lane] * LANES + ev.lane);
		next[ev.lane]++;
		ck_assert_int_eq(pair_post(&p, p.mirror, ev.lane, "ack", 3, 0, TRANSPORT_IMM_ACK),
				 1);
		ev = pair_next(&p, p.primary);
		ck_assert_uint_eq(ev.imm, TRANSPORT_IMM_ACK);
		ck_assert_int_eq(memcmp(p.ops->window(p.primary, &bytes), "ack", 3), 0);
	}
	pair_close(&p);
}
END_TEST

START_TEST(runs_out_of_credits_and_gets_them_back)
{
	/* An injector may hold as many again; it says WRITABLE for itself, too. */
	unsigned factor = kinds[_i].inner != NULL ? 2 : 1;
	uint32_t posted, writable = 0;
	struct transport_event ev, told;
	struct pair p;

	open_kind(&p, _i);
	posted = post_until_short(&p, 0, 5);
	ck_assert_uint_ge(posted, ORDINARY);
	ck_assert_uint_le(posted, factor * ORDINARY);
	ck_assert_int_eq(pair_post(&p, p.primary, 1, "x", 1, 0, 5), 1);
	posted += post_until_short(&p, 0, TRANSPORT_IMM_HEARTBEAT);
	ck_assert_uint_ge(posted, TRANSPORT_CREDITS);
	ck_assert_uint_le(posted, factor * TRANSPORT_CREDITS);
	for (uint32_t got = 0; got < posted + 1;) {
		if (p.ops->poll(p.mirror, &ev, 1, NSEC_PER_MSEC) == 1) {
			ck_assert_int_eq(ev.kind, TRANSPORT_EVENT_NOTICE);
			got++;
		} else if (factor > 1) {
			writable += (uint32_t)p.ops->poll(p.primary, &told, 1, 0);
		}
	}
	if (writable > 0) {
		ck_assert_int_eq(told.kind, TRANSPORT_EVENT_WRITABLE);
		ck_assert_uint_eq(told.lane, 0);
	} else {
		ck_assert_uint_eq(pair_next_of(&p, p.primary, TRANSPORT_EVENT_WRITABLE).lane, 0);
	}
	/* An injector's early WRITABLE was for a part: there is another for the rest. */
	while (pair_post(&p, p.primary, 0, "x", 1, 0, 5) == 0)
		ck_assert_int_eq(pair_next(&p, p.primary).kind, TRANSPORT_EVENT_WRITABLE);
	ck_assert_uint_eq(pair_next(&p, p.mirror).lane, 0);
	pair_close(&p);
}
END_TEST

static void *await_writable_main(void *arg)
{
	struct waker *w = arg;

	pair_next_of(w->p, w->p->primary, TRANSPORT_EVENT_WRITABLE);
	atomic_store(&w->stop, 1);
	return NULL;
}

/* Credits that come back one by one wake a sleeping sender as soon as there are enough, not some
 * time later. */
START_TEST(wakes_a_sender_that_sleeps_for_credits)
{
	struct pair p;
	struct waker w = { .p = &p };
	pthread_t thread;

	open_kind(&p, _i);
	post_until_short(&p, 0, TRANSPORT_IMM_HEARTBEAT);
	post_until_short(&p, 0, 5);
	ck_assert_int_eq(thread_start(&thread, "kv-await", await_writable_main, &w), 0);
	while (!atomic_load(&w.stop)) {
		struct transport_event ev;

		p.ops->poll(p.mirror, &ev, 1, NSEC_PER_MSEC);
	}
	pthread_join(thread, NULL);
	pair_close(&p);
}
END_TEST

START_TEST(brings_credits_back_with_traffic)
{
	struct pair p;

	/* Far more than the credits, each answered: no lane may come to a halt. */
	open_kind(&p, _i);
	for (uint32_t i = 0; i < 3 * TRANSPORT_CREDITS; i++) {
		ck_assert_int_eq(pair_post(&p, p.primary, 2, &i, sizeof(i), 0, i), 1);
		ck_assert_uint_eq(pair_next(&p, p.mirror).imm, i);
		ck_assert_int_eq(pair_post(&p, p.mirror, 2, &i, sizeof(i), 0, i), 1);
		ck_assert_uint_eq(pair_next(&p, p.primary).imm, i);
	}
	pair_close(&p);
}
END_TEST

START_TEST(stands_a_stalled_receiver)
{
	static uint8_t big[64 << 10];
	unsigned factor = kinds[_i].inner != NULL ? 2 : 1;
	uint32_t sent = 0;
	struct pair p;
	int r;

	/* Nobody polls the mirror: posts must end short, whatever buffers there are. */
	open_kind(&p, _i);
	while ((r = pair_post(&p, p.primary, 3, big, sizeof(big), 0, sent)) == 1)
		sent++;
	ck_assert_int_eq(r, 0);
	ck_assert_uint_ge(sent, 1);
	ck_assert_uint_le(sent, factor * ORDINARY);
	for (uint32_t got = 0; got < sent;) {
		struct transport_event ev[4];
		int n = p.ops->poll(p.mirror, ev, 4, NSEC_PER_MSEC);

		for (int i = 0; i < n; i++)
			ck_assert_uint_eq(ev[i].imm, got++);
		if (got < sent && (n = p.ops->poll(p.primary, ev, 1, 0)) > 0)
			ck_assert_int_eq(ev[0].kind, TRANSPORT_EVENT_WRITABLE);
		if (n > 0 && ev[0].kind == TRANSPORT_EVENT_WRITABLE)
			r = 1;
	}
	if (r == 0)
		pair_next_of(&p, p.primary, TRANSPORT_EVENT_WRITABLE);
	ck_assert_int_eq(pair_post(&p, p.primary, 3, big, sizeof(big), 0, sent), 1);
	pair_close(&p);
}
END_TEST

START_TEST(refuses_posts_outside_the_window)
{
	static uint8_t big[WINDOW + 1];
	struct iovec iov[2] = { { big, WINDOW }, { big, 1 } };
	struct transport_post good = { .iov = iov, .iovcnt = 1, .imm = 1 };
	struct transport_post posts[2] = { good, good };
	struct pair p;

	open_kind(&p, _i);
	ck_assert_int_eq(pair_post(&p, p.primary, 0, big, WINDOW + 1, 0, 1), -EINVAL);
	ck_assert_int_eq(pair_post(&p, p.primary, 0, big, WINDOW, 1, 1), -EINVAL);
	ck_assert_int_eq(pair_post(&p, p.primary, 0, big, 1, WINDOW, 1), -EINVAL);
	ck_assert_int_eq(pair_post(&p, p.primary, 0, big, 1, UINT64_MAX, 1), -EINVAL);
	ck_assert_int_eq(pair_post(&p, p.primary, LANES, big, 1, 0, 1), -EINVAL);
	posts[1].iovcnt = 2;
	ck_assert_int_eq(p.ops->post(p.primary, 0, posts, 2), -EINVAL);
	/* None of these left anything behind; the borders themselves are good. */
	ck_assert_int_eq(pair_post(&p, p.primary, 0, big, 0, WINDOW, 2), 1);
	ck_assert_int_eq(pair_post(&p, p.primary, 0, big, 1, WINDOW - 1, 3), 1);
	ck_assert_uint_eq(pair_next(&p, p.mirror).imm, 2);
	ck_assert_uint_eq(pair_next(&p, p.mirror).imm, 3);
	ck_assert_int_eq(pair_post(&p, p.primary, 0, big, WINDOW, 0, 4), 1);
	while (p.ops->poll(p.primary, &(struct transport_event){ 0 }, 1, 0) == 0) {
		struct transport_event ev;

		if (p.ops->poll(p.mirror, &ev, 1, NSEC_PER_MSEC) > 0) {
			ck_assert_uint_eq(ev.imm, 4);
			break;
		}
	}
	pair_close(&p);
}
END_TEST

static void *wake_main(void *arg)
{
	struct waker *w = arg;

	while (!atomic_load(&w->stop)) {
		w->p->ops->wake(w->p->mirror);
		sched_yield();
	}
	return NULL;
}

START_TEST(waits_and_wakes)
{
	struct transport_event ev;
	struct pair p;
	struct waker w = { .p = &p };
	uint64_t start_ns = clock_mono_ns();
	pthread_t thread;

	open_kind(&p, _i);
	ck_assert_int_eq(p.ops->poll(p.mirror, &ev, 1, 0), 0);
	ck_assert_int_eq(p.ops->poll(p.mirror, &ev, 1, 30 * NSEC_PER_MSEC), 0);
	ck_assert_uint_ge(clock_mono_ns() - start_ns, 30 * NSEC_PER_MSEC);
	p.ops->wake(p.mirror);
	ck_assert_int_eq(p.ops->poll(p.mirror, &ev, 1, UINT64_MAX), 0);
	ck_assert_int_eq(thread_start(&thread, "kv-waker", wake_main, &w), 0);
	for (int i = 0; i < 200; i++) {
		p.ops->set_poll_us(p.mirror, i % 2 ? 50 : 0);
		ck_assert_int_eq(p.ops->poll(p.mirror, &ev, 1, UINT64_MAX), 0);
	}
	atomic_store(&w.stop, 1);
	pthread_join(thread, NULL);
	pair_close(&p);
}
END_TEST

struct sender {
	struct pair *p;
	unsigned lane;
	uint32_t total;
	_Atomic uint32_t *posted;
};

static void *sender_main(void *arg)
{
	struct sender *s = arg;

	for (uint32_t i = 0; i < s->total;) {
		int r = pair_post(s->p, s->p->primary, s->lane, &i, sizeof(i), s->lane * 64, i);

		if (r == 1)
			i++;
		else if (r == 0)
			sched_yield();
		else
			break;
	}
	return NULL;
}

static void *primary_poll_main(void *arg)
{
	struct waker *w = arg;
	struct transport_event ev[8];

	while (!atomic_load(&w->stop))
		w->p->ops->poll(w->p->primary, ev, 8, 5 * NSEC_PER_MSEC);
	return NULL;
}

START_TEST(takes_posts_from_many_threads)
{
	const uint32_t total = 5000;
	struct sender s[LANES];
	uint32_t next[LANES] = { 0 };
	pthread_t thread[LANES + 1];
	struct pair p;
	struct waker w = { .p = &p };

	open_kind(&p, _i);
	for (unsigned i = 0; i < LANES; i++) {
		s[i] = (struct sender){ .p = &p, .lane = i, .total = total };
		ck_assert_int_eq(thread_start(&thread[i], "kv-sender", sender_main, &s[i]), 0);
	}
	ck_assert_int_eq(thread_start(&thread[LANES], "kv-poll", primary_poll_main, &w), 0);
	for (uint32_t i = 0; i < total * LANES; i++) {
		struct transport_event ev = pair_next_of(&p, p.mirror, TRANSPORT_EVENT_NOTICE);

		ck_assert_uint_eq(ev.imm, next[ev.lane]++);
		if (i % 3 == 0)
			pair_post(&p, p.mirror, ev.lane, "ack", 3, 0, TRANSPORT_IMM_ACK);
	}
	for (unsigned i = 0; i < LANES; i++)
		pthread_join(thread[i], NULL);
	atomic_store(&w.stop, 1);
	p.ops->wake(p.primary);
	pthread_join(thread[LANES], NULL);
	pair_close(&p);
}
END_TEST

/* Over a network there is one, and both ends of one machine's agree. */
START_TEST(knows_the_mtu_of_its_way)
{
	struct transport_mtu primary = { 0 }, mirror = { 0 };
	char text[TRANSPORT_MTU_NOTE_BYTES];
	struct pair p;

	open_kind(&p, _i);
	if (p.ops->mtu) {
		p.ops->mtu(p.primary, &primary);
		p.ops->mtu(p.mirror, &mirror);
		ck_assert_uint_ge(primary.path, 256);
		ck_assert_uint_eq(mirror.path, primary.path);
		transport_mtu_note(&primary, text, sizeof(text));
		ck_assert_str_eq(text, "");
	}
	ck_assert(p.ops->mtu != NULL || (p.ops != &transport_tcp_ops &&
					 p.ops != &transport_verbs_ops));
	if (p.ops == &transport_verbs_ops) {
		ck_assert(transport_mtu_known(&primary) && transport_mtu_known(&mirror));
		ck_assert_uint_eq(primary.path, primary.here);
	}
	pair_close(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("transport");
	TCase *t = tcase_create("contract");
	int first = kinds_first(), end = kinds_end();

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, keeps_order_on_a_lane, first, end);
	tcase_add_loop_test(t, serves_all_lanes_both_ways, first, end);
	tcase_add_loop_test(t, runs_out_of_credits_and_gets_them_back, first, end);
	tcase_add_loop_test(t, wakes_a_sender_that_sleeps_for_credits, first, end);
	tcase_add_loop_test(t, brings_credits_back_with_traffic, first, end);
	tcase_add_loop_test(t, stands_a_stalled_receiver, first, end);
	tcase_add_loop_test(t, refuses_posts_outside_the_window, first, end);
	tcase_add_loop_test(t, waits_and_wakes, first, end);
	tcase_add_loop_test(t, takes_posts_from_many_threads, first, end);
	tcase_add_loop_test(t, knows_the_mtu_of_its_way, first, end);
	suite_add_tcase(s, t);
	return unit_run(s);
}
