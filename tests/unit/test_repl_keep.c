/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops whose values a transport sends from where they lie (link_keep.c): kept until the mirror has
 * them, though they are answered long before (protocol A), while lanes die and are made anew.
 * tcp, with posts that read the values late, as a device does: when the link polls next. What lay
 * on a lane that dies is read no more. A value that was freed meanwhile has another sum at the
 * mirror (and is AddressSanitizer's).
 */
#include "replication/memory/region.h"
#include "replication/primary/link.h"
#include "tests/unit/repl_rig.h"
#include "tests/unit/repl_writer.h"
#include "tests/unit/unit_main.h"

#define LANES 4U
#define KILLS 12U
#define LATE_MAX 8192
#define RECORDS 1500U

/* A post: its head is copied, its value stays where it is. */
struct late {
	struct transport_post post;
	struct iovec iov[8];
	uint8_t *copy; /* of the first piece; a record from the log is one piece */
};

static struct rig rig;
static pthread_mutex_t late_lock = PTHREAD_MUTEX_INITIALIZER;
static struct late queue[LANES][LATE_MAX]; /* late_lock */
static unsigned queued[LANES], most_queued; /* late_lock */
static struct transport_ops late_ops;

static void late_add_locked(unsigned lane, const struct transport_post *post)
{
	struct late *w = &queue[lane][queued[lane]++];

	ck_assert_uint_le(queued[lane], LATE_MAX);
	ck_assert_int_le(post->iovcnt, 8);
	*w = (struct late){ .post = *post };
	if (post->iovcnt == 0)
		return;
	memcpy(w->iov, post->iov, (size_t)post->iovcnt * sizeof(struct iovec));
	w->copy = malloc(w->iov[0].iov_len);
	memcpy(w->copy, w->iov[0].iov_base, w->iov[0].iov_len);
	w->iov[0].iov_base = w->copy;
}

static int late_post(struct transport_ep *ep, unsigned lane, const struct transport_post *posts,
		     unsigned n)
{
	pthread_mutex_lock(&late_lock);
	for (unsigned i = 0; i < n; i++)
		late_add_locked(lane, &posts[i]);
	if (queued[lane] > most_queued)
		most_queued = queued[lane];
	pthread_mutex_unlock(&late_lock);
	transport_tcp_ops.wake(ep);
	return (int)n;
}

static void late_drop_locked(unsigned lane, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		free(queue[lane][i].copy);
	queued[lane] -= n;
	memmove(queue[lane], queue[lane] + n, queued[lane] * sizeof(queue[lane][0]));
}

/* Now the bytes are read. */
static void late_send_locked(struct transport_ep *ep, unsigned lane)
{
	unsigned sent = 0;
	int r = 1;

	while (sent < queued[lane] && r == 1) {
		struct late *w = &queue[lane][sent];

		w->post.iov = w->iov;
		r = transport_tcp_ops.post(ep, lane, &w->post, 1);
		sent += r == 1;
	}
	late_drop_locked(lane, r < 0 ? queued[lane] : sent);
}

static int late_poll(struct transport_ep *ep, struct transport_event *ret_events, int max,
		     uint64_t timeout_ns)
{
	int n;

	pthread_mutex_lock(&late_lock);
	for (unsigned i = 0; i < transport_tcp_ops.lanes(ep); i++)
		late_send_locked(ep, i);
	pthread_mutex_unlock(&late_lock);
	n = transport_tcp_ops.poll(ep, ret_events, max, timeout_ns);
	pthread_mutex_lock(&late_lock);
	for (int i = 0; i < n; i++)
		if (ret_events[i].kind == TRANSPORT_EVENT_LANE_DOWN)
			late_drop_locked(ret_events[i].lane, queued[ret_events[i].lane]);
	pthread_mutex_unlock(&late_lock);
	return n;
}

static void kill_lane(unsigned lane)
{
	struct link *l = &rig.p.primary->links[0];

	pthread_mutex_lock(&rig.p.primary->lock);
	if (l->wake_ep)
		l->tops->kill_lane(l->wake_ep, lane);
	pthread_mutex_unlock(&rig.p.primary->lock);
}

/* Answered at once, so the writer is soon through; it ends when all its ops were given back. */
static void write_while_a_lane_dies(unsigned i)
{
	struct rig_writer w = { .n = &rig.p, .count = RECORDS, .depth = RECORDS, .seed = i };
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS;
	struct link_stats s;

	rig_progress_init(&w.progress);
	ck_assert_int_eq(thread_start(&w.thread, "writer", rig_writer_main, &w), 0);
	rig_progress_more(&w.progress);
	kill_lane(i % LANES);
	do {
		primary_stats(rig.p.primary, &s, 1);
		ck_assert_msg(clock_mono_ns() < deadline, "%u replaced: %s", s.lanes_replaced,
			      s.last_error);
		sched_yield();
	} while (s.lanes_replaced <= i);
	pthread_join(w.thread, NULL);
	ck_assert_uint_eq(w.progress.failed, 0);
	ck_assert_uint_eq(w.progress.freed, RECORDS);
}

START_TEST(values_stay_until_the_mirror_has_them)
{
	struct primary_config cfg;
	struct region_pool *pool;
	struct link_stats s;

	late_ops = transport_tcp_ops;
	late_ops.in_place = true;
	late_ops.post = late_post;
	late_ops.poll = late_poll;
	ck_assert_int_eq(region_pool_create(&region_memfd_ops, REGION_BYTES, 0, &pool), 0);
	rig_open(&rig, ADDR_TCP);
	rig_commit_start(&rig.p, COMMIT_PROTOCOL_A, 0, 2 * RIG_TIMEOUT_NS);
	rig_mirror_start(&rig.m[0], NULL);
	cfg = rig_primary_config(&rig.p, &rig.m[0].listen, 1, LANES);
	cfg.transport = &late_ops;
	cfg.memory = pool;
	rig_primary_start_with(&rig, &cfg);
	rig_wait_live(&rig, 1);
	for (unsigned i = 0; i < KILLS; i++)
		write_while_a_lane_dies(i);
	rig_expect_same(&rig.p, &rig.m[0]);
	primary_stats(rig.p.primary, &s, 1);
	ck_assert_msg(s.reconnects == 0, "%s", s.ended_why);
	ck_assert_uint_gt(most_queued, 1); /* values were read after their post */
	rig_close(&rig);
	region_pool_destroy(pool);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("repl_keep");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, values_stay_until_the_mirror_has_them);
	suite_add_tcase(s, t);
	return unit_run(s);
}
