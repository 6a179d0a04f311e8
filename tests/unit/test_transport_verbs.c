/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the verbs transport decides by itself, without a device: how messages become work
 * requests, what of the send queue and the stage may be used again, words for errors, choices of
 * device. The queue pair is a fake that executes a request late, when its completion is asked
 * for: bytes that were reused too early would arrive wrong. With a device everything else is
 * tests/unit/test_transport.c.
 */
#include "replication/transport/transport_verbs_internal.h"
#include "tests/unit/unit_main.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REMOTE (8U << 20)
#define SLOT 4096U

/* A request in the fake's send queue. */
struct request {
	struct ibv_send_wr wr;
	struct ibv_sge sge[VERBS_SGE_WANTED];
	uint8_t inlined[VERBS_INLINE_WANTED];
};

static struct {
	struct verbs_ep ep;
	struct rdma_cm_id id;
	struct ibv_qp qp;
	struct ibv_context context;
	struct ibv_mr window_mr, stage_mr;
	struct request queue[VERBS_SQ_WRS];
	uint32_t head, tail; /* posted, executed */
	unsigned doorbells, signalled;
	uint32_t imm[4096], imms; /* of notices, in order */
	size_t len[4096]; /* of message imm, all of whose bytes are imm % 251; 0: not known */
	uint8_t *remote;
} fake;

static void request_take(const struct ibv_send_wr *wr)
{
	struct request *r = &fake.queue[fake.head++ % VERBS_SQ_WRS];
	size_t at = 0;

	ck_assert_uint_le(fake.head - fake.tail, VERBS_SQ_WRS);
	ck_assert_int_le(wr->num_sge, VERBS_SGE_WANTED);
	r->wr = *wr;
	r->wr.sg_list = r->sge;
	fake.signalled += (wr->send_flags & IBV_SEND_SIGNALED) != 0;
	for (int i = 0; i < wr->num_sge; i++) {
		r->sge[i] = wr->sg_list[i];
		if (!(wr->send_flags & IBV_SEND_INLINE)) {
			ck_assert_uint_eq(r->sge[i].lkey, fake.stage_mr.lkey);
			continue;
		}
		ck_assert_uint_le(at + r->sge[i].length, sizeof(r->inlined));
		memcpy(r->inlined + at, (void *)(uintptr_t)r->sge[i].addr, r->sge[i].length);
		r->sge[i].addr = (uintptr_t)(r->inlined + at);
		at += r->sge[i].length;
	}
}

static int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp;
	(void)bad;
	fake.doorbells++;
	for (; wr; wr = wr->next)
		request_take(wr);
	return 0;
}

static void request_execute(const struct request *r)
{
	uint64_t at = r->wr.wr.rdma.remote_addr;

	for (int i = 0; i < r->wr.num_sge; i++) {
		ck_assert_uint_le(at + r->sge[i].length, REMOTE);
		memcpy(fake.remote + at, (void *)(uintptr_t)r->sge[i].addr, r->sge[i].length);
		at += r->sge[i].length;
	}
	if (r->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		uint32_t imm = ntohl(r->wr.imm_data);
		size_t wrong = 0;

		for (size_t i = 1; i <= fake.len[imm % 4096]; i++)
			wrong += fake.remote[at - i] != imm % 251;
		ck_assert_uint_eq(wrong, 0);
		fake.imm[fake.imms++ % 4096] = imm;
	}
}

/* Executes up to n requests, and completes what of them was signalled. */
static void fake_run(unsigned n)
{
	struct verbs_lane *l = &fake.ep.lane[0];

	while (n-- > 0 && fake.tail != fake.head) {
		struct request *r = &fake.queue[fake.tail++ % VERBS_SQ_WRS];

		request_execute(r);
		if (!(r->wr.send_flags & IBV_SEND_SIGNALED))
			continue;
		pthread_mutex_lock(&l->tx_lock);
		verbs_sends_done_locked(l, (uint32_t)r->wr.wr_id);
		pthread_mutex_unlock(&l->tx_lock);
	}
}

static void fake_open(uint64_t stage_bytes, unsigned sge_max)
{
	struct verbs_lane *l = &fake.ep.lane[0];

	memset(&fake, 0, sizeof(fake));
	fake.remote = calloc(1, REMOTE);
	fake.context.ops.post_send = fake_post_send;
	fake.qp.context = &fake.context;
	fake.id.qp = &fake.qp;
	fake.stage_mr.lkey = 77;
	fake.ep.stage_mr = &fake.stage_mr;
	fake.ep.window_mr = &fake.window_mr;
	fake.ep.base.lanes = 1;
	fake.ep.base.remote_bytes = REMOTE;
	l->ep = &fake.ep;
	l->id = &fake.id;
	l->stage = malloc(stage_bytes);
	l->stage_bytes = stage_bytes;
	l->sge_max = sge_max;
	l->inline_max = VERBS_INLINE_WANTED;
	pthread_mutex_init(&l->tx_lock, NULL);
}

static void fake_close(void)
{
	pthread_mutex_destroy(&fake.ep.lane[0].tx_lock);
	free(fake.ep.lane[0].stage);
	free(fake.remote);
}

static int post_one(const void *data, size_t len, uint64_t off, uint32_t imm)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
	struct transport_post p = { .iov = &iov, .iovcnt = 1, .remote_off = off, .imm = imm };

	return verbs_post(&fake.ep.base, 0, &p, 1);
}

START_TEST(sends_small_ones_inline_and_signals_some)
{
	uint8_t byte;

	fake_open(1 << 20, 4);
	for (uint32_t i = 0; i < 320; i++) {
		byte = (uint8_t)i;
		ck_assert_int_eq(post_one(&byte, 1, i, i), 1);
	}
	ck_assert_uint_eq(fake.signalled, 320 / VERBS_SIGNAL_EVERY);
	ck_assert_uint_eq(fake.ep.lane[0].stage_head, 0);
	fake_run(UINT32_MAX);
	for (uint32_t i = 0; i < 320; i++) {
		ck_assert_uint_eq(fake.remote[i], (uint8_t)i);
		ck_assert_uint_eq(fake.imm[i], i);
	}
	fake_close();
}
END_TEST

/* One doorbell a batch; more pieces than a request takes become WRITEs before the notice. */
START_TEST(posts_a_batch_as_one_list)
{
	static uint8_t data[64][3000];
	struct transport_post posts[64];
	struct iovec iov[64];

	fake_open(1 << 20, 4);
	for (uint32_t i = 0; i < 64; i++) {
		memset(data[i], (int)i + 1, sizeof(data[i]));
		iov[i] = (struct iovec){ data[i], sizeof(data[i]) };
		posts[i] = (struct transport_post){
			.iov = &iov[i], .iovcnt = 1, .remote_off = i * SLOT, .imm = i
		};
	}
	ck_assert_int_eq(verbs_post(&fake.ep.base, 0, posts, 64), 64);
	ck_assert_uint_eq(fake.doorbells, 1);
	memset(data, 0, sizeof(data)); /* copied: ours again */
	fake_run(UINT32_MAX);
	for (uint32_t i = 0; i < 64; i++) {
		ck_assert_uint_eq(fake.remote[i * SLOT], i + 1);
		ck_assert_uint_eq(fake.remote[i * SLOT + 2999], i + 1);
	}
	ck_assert_uint_eq(fake.imms, 64);
	fake_close();
}
END_TEST

/* The stage is full: the post is short, and an empty WRITE tells when there is room. */
START_TEST(tells_when_there_is_room)
{
	struct verbs_lane *l = &fake.ep.lane[0];
	static uint8_t big[48 << 10];

	fake_open(64 << 10, 4);
	memset(big, 7, sizeof(big));
	ck_assert_int_eq(post_one(big, sizeof(big), 0, 1), 1);
	ck_assert_int_eq(post_one(big, sizeof(big), SLOT * 20, 2), 0);
	ck_assert(l->want.any);
	ck_assert_uint_eq(l->signal_head - l->signal_tail, 1);
	ck_assert(!verbs_want_met_locked(l));
	fake_run(UINT32_MAX);
	ck_assert(verbs_want_met_locked(l));
	ck_assert_int_eq(post_one(big, sizeof(big), SLOT * 20, 2), 1);
	ck_assert_int_eq(post_one(big, (64 << 10) + 1, 0, 3), -EINVAL);
	fake_run(UINT32_MAX);
	ck_assert_uint_eq(fake.remote[SLOT * 20 + sizeof(big) - 1], 7);
	fake_close();
}
END_TEST

START_TEST(keeps_to_the_credits)
{
	struct verbs_lane *l = &fake.ep.lane[0];
	unsigned n = 0;

	fake_open(1 << 20, 4);
	while (post_one("x", 1, 0, 5) == 1) {
		fake_run(UINT32_MAX);
		n++;
	}
	ck_assert_uint_eq(n, TRANSPORT_CREDITS - TRANSPORT_CREDITS_CONTROL);
	ck_assert(!verbs_want_met_locked(l));
	l->credited = VERBS_CREDIT_EVERY;
	ck_assert(verbs_want_met_locked(l));
	ck_assert_int_eq(post_one("x", 1, 0, 5), 1);
	fake_close();
}
END_TEST

/* Any lengths and pieces, completions as they please: every byte and every notice arrives, in
 * order. */
START_TEST(never_reuses_too_early)
{
	static uint8_t data[16][40000];
	uint32_t sent = 0, seen = 0;
	unsigned seed = (unsigned)_i + 1;

	fake_open(96 << 10, 3);
	while (sent < 3000) {
		struct iovec iov[80];
		uint8_t *d = data[sent % 16];
		unsigned pieces = 1 + (unsigned)rand_r(&seed) % (sent % 7 ? 5 : 80);
		struct transport_post p = { .iov = iov,
					    .iovcnt = (int)pieces,
					    .imm = sent,
					    .remote_off = (uint64_t)(sent % 64) * 65536 };
		size_t len = 0;
		int r;

		for (unsigned i = 0; i < pieces; i++) {
			size_t some = (unsigned)rand_r(&seed) % (40000 / pieces);

			iov[i] = (struct iovec){ d + len, some };
			len += some;
		}
		memset(d, (int)(sent % 251), len);
		fake.len[sent % 4096] = len;
		r = verbs_post(&fake.ep.base, 0, &p, 1);
		ck_assert_int_ge(r, 0);
		memset(d, 0xEE, len);
		if (r == 0 || rand_r(&seed) % 3 == 0)
			fake_run(1 + (unsigned)rand_r(&seed) % 40);
		sent += (uint32_t)r;
		for (; seen < fake.imms; seen++)
			ck_assert_uint_eq(fake.imm[seen % 4096], seen);
		fake.ep.lane[0].credited = seen;
		if (r == 1 && fake.tail == fake.head && len > 0)
			ck_assert_uint_eq(fake.remote[p.remote_off + len - 1], p.imm % 251);
	}
	fake_run(UINT32_MAX);
	ck_assert_uint_eq(fake.imms, 3000);
	fake_close();
}
END_TEST

START_TEST(understands_choices)
{
	static const char *const bad[] = { ":1",    "a:",      "a:0",  "a:x",    "a:1:",
					   "a:1:x", "a:1:2:3", "../x", "a:1:300" };
	struct verbs_choice c;

	ck_assert_int_eq(verbs_choice_parse("", &c), 0);
	ck_assert(verbs_choice_any(&c));
	ck_assert_int_eq(verbs_choice_parse("mlx5_0:2:3", &c), 0);
	ck_assert_str_eq(c.name, "mlx5_0");
	ck_assert_uint_eq(c.port, 2);
	ck_assert_int_eq(c.gid_index, 3);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_int_eq(verbs_choice_parse(bad[i], &c), -EINVAL);
}
END_TEST

START_TEST(says_cause_and_remedy)
{
	struct ibv_wc wc = { .status = IBV_WC_RETRY_EXC_ERR, .qp_num = 0x11, .vendor_err = 0x81 };
	char text[VERBS_TEXT_BYTES];

	ck_assert_ptr_nonnull(strstr(verbs_remedy(-ENOMEM), "mr_cache_size"));
	ck_assert_ptr_nonnull(strstr(verbs_remedy(-EIO), "firmware"));
	ck_assert_ptr_nonnull(strstr(verbs_remedy(-ETIMEDOUT), "ack_timeout"));
	ck_assert_ptr_null(verbs_remedy(-EPROTO));
	verbs_status_why(&wc, 3, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "0x11"));
	ck_assert_ptr_nonnull(strstr(text, "0x81"));
	ck_assert_ptr_nonnull(strstr(text, "ack_timeout"));
	ck_assert_int_eq(verbs_status_errno(IBV_WC_RETRY_EXC_ERR), -ETIMEDOUT);
	ck_assert_int_eq(verbs_status_errno(IBV_WC_WR_FLUSH_ERR), -ECONNRESET);
	ck_assert_int_eq(verbs_status_errno(IBV_WC_LOC_QP_OP_ERR), -EIO);
}
END_TEST

/* Both sides end at once, with a sentence that says what to do. */
START_TEST(refuses_without_a_device)
{
	struct transport_params p = { .lanes = 1,
				      .window_bytes = 65536,
				      .deadline_ns = clock_mono_ns() + 5 * NSEC_PER_SEC };
	struct transport_ep *ep = NULL;
	const char *why = "";
	int fds[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	close(fds[1]);
	ck_assert_int_lt(transport_verbs_ops.connect(fds[0], NULL, &p, &ep, &why), 0);
	ck_assert(strlen(why) > 10);
	ck_assert_int_lt(transport_verbs_ops.accept(fds[0], &p, &ep, &why), 0);
	ck_assert(strlen(why) > 10);
	ck_assert_ptr_null(ep);
	p.device = "no:such:device:at:all";
	ck_assert_int_lt(transport_verbs_ops.accept(fds[0], &p, &ep, &why), 0);
	ck_assert_ptr_nonnull(strstr(why, "NAME:PORT"));
	p.lanes = 0;
	ck_assert_int_eq(transport_verbs_ops.connect(fds[0], NULL, &p, &ep, &why), -EINVAL);
	close(fds[0]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("transport_verbs");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, sends_small_ones_inline_and_signals_some);
	tcase_add_test(t, posts_a_batch_as_one_list);
	tcase_add_test(t, tells_when_there_is_room);
	tcase_add_test(t, keeps_to_the_credits);
	tcase_add_loop_test(t, never_reuses_too_early, 0, 8);
	tcase_add_test(t, understands_choices);
	tcase_add_test(t, says_cause_and_remedy);
	tcase_add_test(t, refuses_without_a_device);
	suite_add_tcase(s, t);
	return unit_run(s);
}
