/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that misbehave: mirrors that acknowledge nonsense or free nothing, strangers at the
 * mirror's door, a mirror given twice, a record that does not apply. */
#include "common/byteorder.h"
#include "replication/ack.h"
#include "replication/dial.h"
#include "replication/frame.h"
#include "tests/unit/repl_rig.h"
#include "tests/unit/unit_main.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

static struct rig rig;

/* A transport whose acknowledgements are changed on their way out. */
static struct transport_ops liar_ops;
static void (*liar_change)(struct ack *a);
static _Atomic unsigned liar_acks, liar_lies;

static int liar_post(struct transport_ep *ep, unsigned lane, const struct transport_post *posts,
		     unsigned n)
{
	struct ack a;

	for (unsigned i = 0; i < n; i++) {
		if (posts[i].imm != TRANSPORT_IMM_ACK)
			continue;
		ck_assert_int_eq(ack_decode(posts[i].iov->iov_base, posts[i].iov->iov_len, &a), 0);
		liar_acks++;
		liar_change(&a);
		ack_encode(&a, posts[i].iov->iov_base);
	}
	return rig_net_ops()->post(ep, lane, posts, n);
}

static void liar_mirror_start(void (*change)(struct ack *a))
{
	liar_ops = *rig_net_ops();
	liar_ops.post = liar_post;
	liar_change = change;
	liar_acks = liar_lies = 0;
	rig_mirror_start(&rig.m[0], &liar_ops);
}

static void wait_for_error(const char *text)
{
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS;
	struct link_stats s;

	do {
		primary_stats(rig.p.primary, &s, 1);
		ck_assert_msg(clock_mono_ns() < deadline, "waited for %s, have %s", text,
			      s.last_error);
		sched_yield();
	} while (!strstr(s.last_error, text));
}

static void wait_for_session_end(const char *why)
{
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS, now_ns = clock_real_ns();
	struct link_stats s;

	do {
		primary_stats(rig.p.primary, &s, 1);
		ck_assert_msg(clock_mono_ns() < deadline,
			      "the session was not ended, last error: %s", s.last_error);
		sched_yield();
	} while (!s.ended_why[0]);
	ck_assert_msg(strstr(s.ended_why, why), "it ended with: %s", s.ended_why);
	ck_assert_uint_gt(s.ended_ns + RIG_WAIT_NS, now_ns);
	ck_assert_uint_le(s.ended_ns, clock_real_ns());
}

/* Several times: the primary reads only the newest acknowledgement of those that came together. */
#define LIAR_LIES 20

static bool liar_time_to_lie(void)
{
	return liar_acks > 50 && liar_lies < LIAR_LIES && ++liar_lies;
}

static void lie_freed_ahead(struct ack *a)
{
	if (liar_time_to_lie())
		a->ring_freed += 1ULL << 40;
}

static void lie_freed_back(struct ack *a)
{
	static _Atomic bool told;

	if (told && liar_time_to_lie())
		a->ring_freed = 0;
	else
		told |= a->ring_freed > 0;
}

static void lie_received_ahead(struct ack *a)
{
	if (liar_time_to_lie())
		a->received_lsn = a->durable_lsn += 1000000;
}

static void lie_durable_back(struct ack *a)
{
	if (liar_time_to_lie())
		a->applied_lsn = a->durable_lsn = 0;
}

static void (*const lies[])(struct ack *) = {
	lie_freed_ahead, lie_freed_back, lie_received_ahead, lie_durable_back,
};
#define LIES (int)(sizeof(lies) / sizeof(lies[0]))

/* Such an acknowledgement ends the session; no write fails, and a good session follows. */
START_TEST(nonsense_acknowledged)
{
	rig_open(&rig, rig_net());
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 0, RIG_TIMEOUT_NS);
	liar_mirror_start(lies[_i]);
	rig_primary_start(&rig, 1, 2, NULL);
	rig_wait_live(&rig, 1);
	for (int tries = 0; liar_lies == 0 && tries < 200; tries++)
		ck_assert_uint_eq(rig_write_many(&rig.p, 400, 16, 0), 0);
	ck_assert_uint_gt(liar_lies, 0);
	wait_for_session_end("acknowledges nonsense");
	rig_wait_live(&rig, 1);
	ck_assert_uint_eq(rig_write_many(&rig.p, 300, 16, 0), 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	rig_close(&rig);
}
END_TEST

static void hoard(struct ack *a)
{
	a->ring_freed = 0;
}

/* Acknowledges and beats, but never frees a byte of its ring: it falls out, writes go on. */
START_TEST(frees_nothing)
{
	struct primary_config cfg;
	struct commit_stats cs;

	rig_open(&rig, rig_net());
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 0, NSEC_PER_SEC);
	liar_mirror_start(hoard);
	cfg = rig_primary_config(&rig.p, &rig.m[0].listen, 1, 2);
	cfg.timeout_ns = NSEC_PER_SEC;
	rig_primary_start_with(&rig, &cfg);
	rig_wait_live(&rig, 1);
	ck_assert_uint_eq(rig_write_many(&rig.p, 8000, 32, 0), 0);
	commit_stats(rig.p.commit, &cs);
	ck_assert_uint_eq(cs.in_sync, 0);
	ck_assert_uint_eq(cs.timeouts, 0);
	rig_close(&rig);
}
END_TEST

static int stranger(const void *bytes, size_t len)
{
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS;
	int fd = -1, err;

	/* -EAGAIN: a local socket whose backlog is full just now */
	while ((err = dial_connect(&rig.m[0].listen, deadline, NULL, &fd)) == -EAGAIN &&
	       clock_mono_ns() < deadline)
		sched_yield();
	ck_assert_int_eq(err, 0);
	if (len)
		ck_assert_int_eq((int)send(fd, bytes, len, MSG_NOSIGNAL), (int)len);
	return fd;
}

/* A hello of this volume, and not a word after it. */
static int stranger_with_hello(void)
{
	struct repl_hello hello = { 0 };
	int fd = stranger(NULL, 0);

	memcpy(hello.uuid, rig_uuid, sizeof(hello.uuid));
	ck_assert_int_eq(frame_send(fd, REPL_HELLO, &hello, sizeof(hello),
				    clock_mono_ns() + RIG_WAIT_NS, NULL),
			 0);
	return fd;
}

/* However many silent, stuttering or half-done callers there are, the primary comes in at once. */
START_TEST(crowd_at_the_door)
{
	static const uint8_t half[40] = { 'K', 'V', 'F', 'C', 0, 1, 0, 1, 0, 0, 0, 56 };
	uint64_t began;
	int fds[60], n = 0;

	rig_open(&rig, _i ? ADDR_SHM : rig_net());
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 0, RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], NULL);
	while (n < 8)
		fds[n++] = stranger_with_hello();
	while (n < 60) {
		fds[n] = stranger(half, n % 3 == 0 ? 0 : n % 3 == 1 ? 4 : sizeof(half));
		n++;
	}
	began = clock_mono_ns();
	rig_primary_start(&rig, 1, 1, NULL);
	rig_wait_live(&rig, 1);
	ck_assert_uint_lt(clock_mono_ns() - began, 2 * NSEC_PER_SEC);
	ck_assert_uint_eq(rig_write_many(&rig.p, 20, 4, 0), 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	while (n > 0)
		close(fds[--n]);
	rig_close(&rig);
}
END_TEST

/* What is wrong with a stranger is no news while the mirror has its primary. */
START_TEST(strangers_are_no_error_of_a_session)
{
	static const uint8_t nonsense[64];
	struct mirror_stats s;
	char byte;
	ssize_t n;
	int fd;

	rig_open(&rig, ADDR_TCP);
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 0, RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], NULL);
	if (_i) {
		rig_primary_start(&rig, 1, 1, NULL);
		rig_wait_live(&rig, 1);
		rig_wait_connected(&rig.m[0], &s);
	}
	fd = stranger(nonsense, sizeof(nonsense));
	do /* until it is let go */
		n = recv(fd, &byte, 1, MSG_DONTWAIT);
	while ((n > 0 || (n < 0 && errno == EAGAIN)) && sched_yield() == 0);
	close(fd);
	mirror_stats(rig.m[0].mirror, &s);
	ck_assert_msg((s.last_error[0] == 0) == (_i != 0), "%s", s.last_error);
	rig_close(&rig);
}
END_TEST

static _Atomic int refusals; /* accept4() still has no descriptor so often */

/* Stands before the C library's. */
int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	static int (*real)(int, struct sockaddr *, socklen_t *, int);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "accept4");
	if (refusals > 0) {
		refusals--;
		errno = EMFILE;
		return -1;
	}
	return real(fd, addr, len, flags);
}

/* A mirror without a descriptor for who calls tries again now and then, not all the time. */
START_TEST(no_descriptor_for_a_caller)
{
	uint64_t began;

	rig_open(&rig, _i ? ADDR_SHM : ADDR_TCP);
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 0, RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], NULL);
	refusals = 5;
	began = clock_mono_ns();
	rig_primary_start(&rig, 1, 1, NULL);
	rig_wait_live(&rig, 1);
	ck_assert_int_eq(refusals, 0);
	ck_assert_uint_ge(clock_mono_ns() - began, 5 * 100 * NSEC_PER_MSEC);
	rig_close(&rig);
}
END_TEST

/* The same mirror by two names: one link serves it, the other is refused for good. */
START_TEST(given_twice)
{
	struct addr addrs[2];
	struct primary_config cfg;
	struct link_stats s[2];
	const char *why = "";
	unsigned good;

	rig_open(&rig, rig_net());
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 0, RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], NULL);
	addrs[0] = addrs[1] = rig.m[0].listen;
	snprintf(addrs[1].host, sizeof(addrs[1].host), "localhost");
	cfg = rig_primary_config(&rig.p, addrs, 2, 1);
	rig_primary_start_with(&rig, &cfg);
	ck_assert_int_eq(primary_wait_live(rig.p.primary, 2, RIG_WAIT_NS, &why), -ENOTUNIQ);
	ck_assert_msg(strstr(why, "is the same node as"), "%s", why);
	rig_wait_live(&rig, 1);
	primary_stats(rig.p.primary, s, 2);
	good = s[0].state == LINK_LIVE ? 0 : 1;
	ck_assert_int_eq(s[1 - good].state, LINK_REFUSED);
	/* longer than a refused link would wait before it calls again: nothing disturbs the load */
	for (uint64_t end = clock_mono_ns() + 1500 * NSEC_PER_MSEC; clock_mono_ns() < end;)
		ck_assert_uint_eq(rig_write_many(&rig.p, 10, 8, 0), 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	primary_stats(rig.p.primary, s, 2);
	ck_assert_uint_eq(s[good].reconnects, 0);
	ck_assert_str_eq(s[good].ended_why, "");
	ck_assert_uint_eq(s[1 - good].reconnects, 0);
	ck_assert_int_eq(s[good].state, LINK_LIVE);
	rig_close(&rig);
}
END_TEST

/* What the mirror checks, logs and applies is not where the primary can still write. */
static struct transport_ops spy_ops;
static const uint8_t *spy_ring;
static uint64_t spy_bytes;
static _Atomic unsigned spy_inside, spy_outside;

static uint8_t *spy_window(struct transport_ep *ep, uint64_t *ret_bytes)
{
	uint8_t *ring = transport_shm_ops.window(ep, ret_bytes);

	spy_ring = ring;
	spy_bytes = *ret_bytes;
	return ring;
}

static int spy_apply(void *ctx, const struct record *r)
{
	const uint8_t *data = r->data;

	if (r->data_len && data >= spy_ring && data < spy_ring + spy_bytes)
		spy_inside++;
	else
		spy_outside++;
	return rig_apply(ctx, r);
}

START_TEST(applies_private_copies)
{
	struct mirror_ops ops = rig_mirror_ops;
	unsigned count = _i ? 400 : 4000;

	if (_i) { /* large ones, too, for which no checkpoint makes room in time */
		rig_data_max = 400000;
		rig_log_bytes = 4 * RIG_LOG_BYTES;
	}
	spy_ops = transport_shm_ops;
	spy_ops.window = spy_window;
	ops.apply = spy_apply;
	rig_open(&rig, ADDR_SHM);
	rig.m[0].mirror_ops = &ops;
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 1, RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], &spy_ops);
	rig_primary_start(&rig, 1, 3, NULL);
	rig_wait_live(&rig, 1);
	ck_assert_uint_eq(rig_write_many(&rig.p, count, 64, 0), 0);
	rig_expect_same(&rig.p, &rig.m[0]);
	ck_assert_uint_eq(spy_inside, 0);
	ck_assert_uint_eq(spy_outside, 2 * count);
	rig_close(&rig);
}
END_TEST

static pthread_mutex_t told_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told_changed;
static unsigned told; /* told_lock; so is told_why */
static char told_why[300];

static int apply_until_100(void *ctx, const struct record *r)
{
	return r->lsn < 100 ? rig_apply(ctx, r) : -EINVAL;
}

static void tell(void *ctx, const char *why)
{
	(void)ctx;
	pthread_mutex_lock(&told_lock);
	snprintf(told_why, sizeof(told_why), "%s", why);
	told++;
	pthread_cond_broadcast(&told_changed);
	pthread_mutex_unlock(&told_lock);
}

/* A mirror that cannot apply says so, once, and takes nobody any more. */
START_TEST(tells_that_it_failed)
{
	struct mirror_ops ops = rig_mirror_ops;
	struct mirror_stats s;
	uint64_t deadline;
	int err = 0;

	thread_cond_init(&told_changed);
	ops.apply = apply_until_100;
	ops.failed = tell;
	rig_open(&rig, rig_net());
	rig.m[0].mirror_ops = &ops;
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 0, RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], NULL);
	rig_primary_start(&rig, 1, 1, NULL);
	rig_wait_live(&rig, 1);
	ck_assert_uint_eq(rig_write_many(&rig.p, 200, 8, 0), 0);
	deadline = clock_mono_ns() + RIG_WAIT_NS;
	pthread_mutex_lock(&told_lock);
	while (!told && !err)
		err = thread_cond_wait_until(&told_changed, &told_lock, deadline);
	pthread_mutex_unlock(&told_lock);
	wait_for_error("stopped");
	pthread_mutex_lock(&told_lock);
	ck_assert_uint_eq(told, 1);
	ck_assert_msg(strstr(told_why, "cannot apply record 100"), "%s", told_why);
	pthread_mutex_unlock(&told_lock);
	mirror_stats(rig.m[0].mirror, &s);
	ck_assert(s.failed);
	rig_close(&rig);
}
END_TEST

/* Records in the ring that are not of the epoch that the primary said it has, or not of the one
 * that its history has there: none is taken, whatever the handshake was, and over each transport,
 * as what one tells of a record's place and length differs. */
START_TEST(records_of_a_wrong_epoch)
{
	bool of_the_past = _i % 2;
	static const char *const whys[] = { "the primary's is", "by the primary's history of" };
	static struct rig_progress progress;
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS;
	struct mirror_stats s;

	rig_open(&rig, _i < 2 ? rig_net() : ADDR_SHM);
	if (!of_the_past)
		rig.p.epoch = epoch_make(1, 2); /* of the records */
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_C, 1, NSEC_PER_SEC);
	rig.p.epoch = epoch_make(1, of_the_past ? 2 : 1); /* of the handshake */
	if (of_the_past)
		ck_assert_int_eq(epochs_begin(&rig.p.epochs, rig.p.epoch, 1, rig.p.node_id,
					      rig.p.life), 0);
	rig_mirror_start(&rig.m[0], NULL);
	rig_primary_start(&rig, 1, 2, NULL);
	rig_wait_live(&rig, 1);
	rig_progress_init(&progress);
	for (unsigned i = 0; i < 5; i++) /* they stay in the queue until it goes */
		rig_write(&rig.p, 0, &progress);
	do {
		mirror_stats(rig.m[0].mirror, &s);
		ck_assert_msg(clock_mono_ns() < deadline, "%s", s.last_error);
		sched_yield();
	} while (!strstr(s.last_error, whys[of_the_past]));
	ck_assert_uint_eq(s.records, 0);
	ck_assert_uint_eq(rig_progress_done(&progress) - progress.failed, 0); /* none answered */
	ck_assert_uint_eq(rig.m[0].last_lsn, 0);
	ck_assert_uint_eq(oplog_last_lsn(rig.m[0].log), 0);
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("repl_hostile");
	TCase *t = tcase_create("hostile"), *epoch = tcase_create("epoch");

	tcase_set_timeout(t, 40);
	tcase_add_loop_test(t, nonsense_acknowledged, 0, LIES);
	tcase_add_test(t, frees_nothing);
	tcase_add_loop_test(t, crowd_at_the_door, 0, 2);
	tcase_add_loop_test(t, strangers_are_no_error_of_a_session, 0, 2);
	tcase_add_loop_test(t, no_descriptor_for_a_caller, 0, 2);
	tcase_add_test(t, given_twice);
	tcase_add_loop_test(t, applies_private_copies, 0, 2);
	tcase_add_test(t, tells_that_it_failed);
	suite_add_tcase(s, t);
	tcase_set_timeout(epoch, 40);
	tcase_add_loop_test(epoch, records_of_a_wrong_epoch, 0, 4);
	suite_add_tcase(s, epoch);
	return unit_run(s);
}
