/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of the transport seam: one source, run over every transport. A test's loop index
 * chooses the transport (see kinds). Both ends mostly live in this process and are polled in turn.
 * verbs runs where there is an RDMA device: in the virtual-machine rig
 * (tests/vm/verbs_contract.sh).
 */
#include "replication/transport_fault.h"
#include "replication/transport_verbs.h"
#include "tests/unit/transport_pair.h"
#include "tests/unit/unit_main.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>

#define WINDOW (1U << 20)
#define SLOT 1024U
#define SLOTS (WINDOW / SLOT)
#define LANES 4U
#define ORDINARY (TRANSPORT_CREDITS - TRANSPORT_CREDITS_CONTROL)

static const struct kind {
	const struct transport_ops *ops;
	bool over_tcp;
	const struct transport_ops *inner; /* of the fault injector */
} kinds[] = {
	{ &transport_tcp_ops, true, NULL },
	{ &transport_shm_ops, false, NULL },
	{ &transport_fault_ops, true, &transport_tcp_ops },
	{ &transport_fault_ops, false, &transport_shm_ops },
	{ &transport_verbs_ops, true, NULL },
};


/* How many of the kinds this machine can run; KVFS_TEST_ONLY_VERBS: only the last. */
static int kinds_first(void)
{
	return getenv("KVFS_TEST_ONLY_VERBS") ? (int)(sizeof(kinds) / sizeof(kinds[0])) - 1 : 0;
}

static int kinds_end(void)
{
	int n = (int)(sizeof(kinds) / sizeof(kinds[0]));
	char text[VERBS_TEXT_BYTES];

	if (verbs_available(NULL, text, sizeof(text)) == 0 || getenv("KVFS_TEST_ONLY_VERBS"))
		return n;
	printf("transport verbs is left out: %s\n", text);
	return n - 1;
}

/* A network in which lanes overtake each other. */
static const struct transport_fault_plan delays = {
	.seed = 42, .delay_permille = 200, .delay_max_ns = 50000
};

static void use_kind(int kind)
{
	if (kinds[kind].inner != NULL)
		transport_fault_use(kinds[kind].inner, &delays);
}

static void open_kind(struct pair *p, int kind)
{
	use_kind(kind);
	pair_open(p, kinds[kind].ops, kinds[kind].over_tcp, LANES, WINDOW);
}

/* Message i: its place, length and bytes follow from i. */
static size_t message(uint32_t i, uint8_t buf[SLOT])
{
	size_t len = (i * 7919U) % (SLOT + 1);

	memset(buf, (int)(i * 31 + 7), len);
	return len;
}

/* A transport that does not know place and length says 0: the message is looked for where it must
 * be. */
static void check_message(struct pair *p, const struct transport_event *ev)
{
	uint64_t off = (uint64_t)(ev->imm % SLOTS) * SLOT;
	uint8_t buf[SLOT];
	uint64_t bytes;
	const uint8_t *w = p->ops->window(p->mirror, &bytes);
	size_t len = message(ev->imm, buf);

	ck_assert_uint_eq(ev->len, p->ops == &transport_verbs_ops ? 0 : len);
	ck_assert_uint_eq(ev->off, p->ops == &transport_verbs_ops ? 0 : off);
	ck_assert_int_eq(memcmp(w + off, buf, len), 0);
}

/* Posts messages [first, first + n) as one batch, each in two pieces; returns how
 * many were taken. */
static int post_batch(struct pair *p, unsigned lane, uint32_t first, unsigned n)
{
	static uint8_t bytes[64][SLOT];
	struct transport_post posts[64];
	struct iovec iov[64][2];

	ck_assert_uint_le(n, 64);
	for (unsigned i = 0; i < n; i++) {
		size_t len = message(first + i, bytes[i]);

		iov[i][0] = (struct iovec){ .iov_base = bytes[i], .iov_len = len / 3 };
		iov[i][1] =
			(struct iovec){ .iov_base = bytes[i] + len / 3, .iov_len = len - len / 3 };
		posts[i] = (struct transport_post){
			.iov = iov[i], .iovcnt = 2, .imm = first + i,
			.remote_off = (uint64_t)((first + i) % SLOTS) * SLOT
		};
	}
	return p->ops->post(p->primary, lane, posts, n);
}

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

static unsigned open_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

struct waker {
	struct pair *p;
	_Atomic int stop;
};

/* Posts small messages until none is taken. */
static uint32_t post_until_short(struct pair *p, unsigned lane, uint32_t imm)
{
	uint32_t n = 0;
	int r;

	while ((r = pair_post(p, p->primary, lane, "x", 1, 0, imm)) == 1)
		n++;
	ck_assert_int_eq(r, 0);
	return n;
}

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

/* Of what can be touched: an arena of malloc's is reserved as a whole. Not by /proc/self/statm,
 * which under qemu-user is qemu's own. */
static unsigned long mapped_pages(void)
{
	unsigned long pages = 0, from, to;
	char line[512], access;
	FILE *f = fopen("/proc/self/maps", "r");

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %c", &from, &to, &access) == 3 && access == 'r')
			pages += (to - from) / 4096;
	fclose(f);
	ck_assert_uint_gt(pages, 0);
	return pages;
}

/* CK_RUN_CASE=cycles KVFS_TEST_CYCLES=10000 for the long run. */
START_TEST(connects_and_disconnects_without_a_leak)
{
	const char *env = getenv("KVFS_TEST_CYCLES");
	long cycles = env ? strtol(env, NULL, 10) : kinds[_i].inner ? 50 : 300;
	unsigned long pages = 0;
	unsigned fds = 0;

	/* Else an endpoint (2 MiB over verbs) is on the heap from its second time on, in the arena
	 * of whichever thread has it, and a heap that grew once looks like a leak. */
	if (!UNIT_SANITIZED) /* their allocator has no such option */
		ck_assert_int_eq(mallopt(M_MMAP_THRESHOLD, 128 << 10), 1);
	for (long i = 0; i < cycles + 20; i++) {
		struct pair p;

		if (i == 20) { /* allocators and stacks have settled */
			fds = open_fds();
			pages = mapped_pages();
		}
		use_kind(_i);
		pair_open(&p, kinds[_i].ops, kinds[_i].over_tcp, 2, 64 << 10);
		ck_assert_int_eq(pair_post(&p, p.primary, 1, "x", 1, 0, 1), 1);
		ck_assert_uint_eq(pair_next(&p, p.mirror).imm, 1);
		pair_close(&p);
	}
	ck_assert_uint_eq(open_fds(), fds);
	if (!UNIT_SANITIZED) /* shadow memory grows */
		ck_assert_uint_lt(mapped_pages(), pages + 256);
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
	tcase_add_loop_test(t, goes_on_when_the_sender_loses_a_lane, first, end);
	tcase_add_loop_test(t, goes_on_when_the_receiver_loses_a_lane, first, end);
	tcase_add_loop_test(t, makes_a_dead_lane_anew, first, end);
	tcase_add_loop_test(t, comes_back_when_all_lanes_were_down, first, end);
	tcase_add_loop_test(t, no_lane_comes_from_a_peer_that_is_gone, first, end);
	tcase_add_loop_test(t, says_when_the_last_lane_is_gone, first, end);
	tcase_add_loop_test(t, notices_a_closed_peer, first, end);
	tcase_add_loop_test(t, notices_a_killed_peer_within_a_second, first, end);
	tcase_add_loop_test(t, refuses_posts_outside_the_window, first, end);
	tcase_add_loop_test(t, waits_and_wakes, first, end);
	tcase_add_loop_test(t, takes_posts_from_many_threads, first, end);
	suite_add_tcase(s, t);
	t = tcase_create("cycles");
	tcase_set_timeout(t, 600);
	tcase_add_loop_test(t, connects_and_disconnects_without_a_leak, first, end);
	suite_add_tcase(s, t);
	return unit_run(s);
}
