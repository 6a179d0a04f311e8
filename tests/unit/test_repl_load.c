/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mirror's load at its primary: what is taken and what is passed over (with a fake transport),
 * and that it comes over each real one. With KVFS_TEST_TRANSPORT=verbs (in the virtual-machine
 * rig) also that it comes again after a queue pair of the datagrams has died.
 */
#include "common/byteorder.h"
#include "replication/mirror/mirror_internal.h"
#include "replication/primary/link.h"
#include "replication/transport/transport_verbs_internal.h"
#include "tests/unit/repl_rig.h"
#include "tests/unit/unit_main.h"

static const struct load sample = {
	.epoch = 7, .sequence = 3, .apply_lag = 12, .node_id = 9, .cpu_permille = 1500,
	.log_permille = 700, .ring_permille = 20, .period_ms = 250,
};

START_TEST(goes_there_and_back)
{
	uint8_t buf[sizeof(struct repl_load)], bad[sizeof(buf)];
	struct load l;

	load_encode(&sample, buf);
	ck_assert_int_eq(load_decode(buf, sizeof(buf), &l), 0);
	ck_assert_uint_eq(l.cpu_permille, sample.cpu_permille);
	load_encode(&l, bad);
	ck_assert_int_eq(memcmp(bad, buf, sizeof(buf)), 0);
	ck_assert_int_eq(load_decode(buf, sizeof(buf) - 1, &l), -EBADMSG);
	for (size_t i = 0; i < 8 * sizeof(buf); i++) {
		memcpy(bad, buf, sizeof(buf));
		bad[i / 8] ^= (uint8_t)(1U << i % 8);
		ck_assert_int_eq(load_decode(bad, sizeof(bad), &l), -EBADMSG);
	}
}
END_TEST

/* A transport that has one datagram, or none. */
static struct {
	struct transport_ep *ep; /* never looked into */
	uint8_t bytes[sizeof(struct repl_load)];
	bool any, refuses;
	unsigned silent;
	uint8_t window[REPL_PRIMARY_WINDOW_BYTES];
} fake;

static int fake_recv(struct transport_ep *ep, void *bytes, size_t cap)
{
	(void)ep;
	if (fake.refuses)
		return -ENOTSUP;
	if (!fake.any)
		return 0;
	ck_assert_uint_ge(cap, sizeof(fake.bytes));
	memcpy(bytes, fake.bytes, sizeof(fake.bytes));
	fake.any = false;
	return sizeof(fake.bytes);
}

static bool fake_silent(struct transport_ep *ep)
{
	(void)ep;
	fake.silent++;
	return true;
}

static uint8_t *fake_window(struct transport_ep *ep, uint64_t *ret_bytes)
{
	(void)ep;
	*ret_bytes = sizeof(fake.window);
	return fake.window;
}

static const struct transport_ops fake_ops = {
	.window = fake_window, .datagram_recv = fake_recv, .datagram_silent = fake_silent,
};

static struct primary primary;
static struct link one; /* of primary's */

static struct link *fake_link(void)
{
	memset(&primary, 0, sizeof(primary));
	memset(&one, 0, sizeof(one));
	memset(&fake, 0, sizeof(fake));
	pthread_mutex_init(&primary.lock, NULL);
	primary.cfg.epoch = sample.epoch;
	one.primary = &primary;
	one.tops = &fake_ops;
	one.wake_ep = (struct transport_ep *)&fake;
	one.welcome.node_id = sample.node_id;
	link_load_begin(&one);
	return &one;
}

static void come(struct link *l, struct load load)
{
	load_encode(&load, fake.bytes);
	fake.any = true;
	link_load_tick(l, clock_mono_ns());
	ck_assert(!fake.any);
}

START_TEST(takes_the_newest_of_this_session)
{
	struct link *l = fake_link();
	struct link_stats s = { 0 };
	struct load other = sample;

	link_load_stats_locked(l, &s);
	ck_assert(!s.load_known);
	come(l, sample);
	other.sequence--;
	come(l, other);
	other.sequence = sample.sequence + 1;
	other.epoch++;
	come(l, other);
	other.epoch--;
	other.node_id++;
	come(l, other);
	link_load_stats_locked(l, &s);
	ck_assert(s.load_known);
	ck_assert_uint_eq(s.loads, 1);
	ck_assert_uint_eq(s.load_cpu_permille, 1500);
	ck_assert_uint_eq(s.load_log_permille, 700);
	other = sample;
	other.sequence += 5; /* some were lost */
	other.cpu_permille = 10;
	load_encode(&other, fake.window + load_slot_offset(other.sequence));
	link_load_notice(l);
	link_load_stats_locked(l, &s);
	ck_assert_uint_eq(s.loads, 2);
	ck_assert_uint_eq(s.load_cpu_permille, 10);
}
END_TEST

START_TEST(tells_the_transport_of_silence)
{
	struct link *l = fake_link();
	uint64_t now = clock_mono_ns();
	struct link_stats s = { 0 };

	link_load_tick(l, now + LINK_LOAD_SILENT_NS / 2);
	ck_assert_uint_eq(fake.silent, 0);
	link_load_tick(l, now + 2 * LINK_LOAD_SILENT_NS);
	link_load_tick(l, now + 2 * LINK_LOAD_SILENT_NS + 1);
	ck_assert_uint_eq(fake.silent, 1);
	link_load_tick(l, now + 4 * LINK_LOAD_SILENT_NS + 1);
	ck_assert_uint_eq(fake.silent, 2);
	link_load_stats_locked(l, &s);
	ck_assert_uint_eq(s.loads_rebuilt, 2);
	fake.refuses = true; /* there will be none: nothing to make new */
	link_load_tick(l, now + 9 * LINK_LOAD_SILENT_NS);
	ck_assert_uint_eq(fake.silent, 2);
}
END_TEST

/* How often the transport is told in an hour of silence from now on, at a tick a second. */
static unsigned told_in_an_hour(struct link *l, uint64_t now)
{
	unsigned before = fake.silent;

	for (unsigned s = 1; s <= 3600; s++)
		link_load_tick(l, now + s * NSEC_PER_SEC);
	return fake.silent - before;
}

/* A mirror that never sends a load costs no new queue pair every 2 s. */
START_TEST(gives_a_mirror_that_never_sends_ever_more_time)
{
	struct link *l = fake_link();
	unsigned told = told_in_an_hour(l, clock_mono_ns());

	ck_assert_uint_le(told, 5 + 3600 * NSEC_PER_SEC / LINK_LOAD_SILENT_MAX_NS);
	ck_assert_uint_ge(told, 3600 * NSEC_PER_SEC / LINK_LOAD_SILENT_MAX_NS);
	come(l, sample); /* one that does is missed as soon as ever */
	link_load_tick(l, clock_mono_ns() + LINK_LOAD_SILENT_NS + NSEC_PER_SEC);
	ck_assert_uint_eq(fake.silent, told + 1);
}
END_TEST

static struct rig rig;

/* Until the primary has heard so many more. */
static struct link_stats heard(uint64_t more)
{
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS, from;
	struct link_stats s;

	primary_stats(rig.p.primary, &s, 1);
	for (from = s.loads; s.loads < from + more; primary_stats(rig.p.primary, &s, 1)) {
		ck_assert_msg(clock_mono_ns() < deadline, "%lu of %lu came", s.loads - from, more);
		usleep(10000);
	}
	return s;
}

static void start(enum addr_kind kind)
{
	rig_open(&rig, kind);
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 1, RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], NULL);
	rig_primary_start(&rig, 1, 2, NULL);
	rig_wait_live(&rig, 1);
}

START_TEST(comes_over_each_transport)
{
	struct link_stats s;

	start(_i ? ADDR_SHM : rig_net());
	ck_assert_uint_eq(rig_write_many(&rig.p, 500, 16, 0), 0);
	s = heard(3);
	ck_assert(s.load_known);
	ck_assert_uint_lt(s.load_age_ns, LINK_LOAD_SILENT_NS);
	ck_assert_uint_gt(s.load_log_permille, 0);
	ck_assert_uint_eq(s.loads_rebuilt, 0);
	rig_close(&rig);
}
END_TEST

/* 0: the sender's queue pair dies, 1: the receiver's. */
START_TEST(comes_again_after_a_queue_pair_died)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct link_stats s;

	if (rig_net() != ADDR_VERBS)
		return; /* no datagrams */
	start(ADDR_VERBS);
	heard(3);
	for (int times = 0; times < 3; times++) {
		struct verbs_ep *ep = (struct verbs_ep *)(_i ? rig.p.primary->links[0].ep :
							       rig.m[0].mirror->ep);
		struct ibv_qp *qp = _i ? ep->datagrams.rx.qp : ep->datagrams.tx.qp;
		uint64_t before;

		primary_stats(rig.p.primary, &s, 1);
		before = s.loads_rebuilt;
		ck_assert_int_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
		s = heard(5);
		ck_assert_uint_gt(s.loads_rebuilt, before);
	}
	ck_assert_uint_eq(s.reconnects, 0);
	ck_assert_uint_eq(rig_write_many(&rig.p, 500, 16, 0), 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("repl_load");
	TCase *t = tcase_create("taken");

	tcase_add_test(t, goes_there_and_back);
	tcase_add_test(t, takes_the_newest_of_this_session);
	tcase_add_test(t, tells_the_transport_of_silence);
	tcase_add_test(t, gives_a_mirror_that_never_sends_ever_more_time);
	suite_add_tcase(s, t);
	t = tcase_create("load");
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, comes_over_each_transport, 0, 2);
	tcase_add_loop_test(t, comes_again_after_a_queue_pair_died, 0, 2);
	suite_add_tcase(s, t);
	return unit_run(s);
}
