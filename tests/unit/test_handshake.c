/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake between two threads over a socket pair, and with somebody in between; decoders;
 * acknowledgement slots. */
#include "common/byteorder.h"
#include "common/clock.h"
#include "common/thread.h"
#include "replication/ack.h"
#include "replication/frame.h"
#include "replication/handshake.h"

#include "tests/unit/unit_main.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint8_t uuid[16] = "volume of test 1";
static const uint8_t key[32] = "the key of volume of test number";

struct answer {
	int fd;
	const uint8_t *uuid, *key;
	enum repl_refusal refuse; /* 0: welcome */
	struct handshake_join join;
	char why[HANDSHAKE_WHY_BYTES];
	int result;
	pthread_t thread;
};

static const struct handshake_join a_join = {
	.epoch = 7, .arena_bytes = 1ULL << 40, .last_lsn = 99, .node_id = 0xABCD,
	.timeout_ms = 5000, .lanes = 4, .transport = REPL_TRANSPORT_SHM, .protocol = 2,
	.link = 0x12345601, .life = 0xFEDCBA98,
};
static const struct handshake_welcome a_welcome = {
	.last_lsn = 1234567890123, .last_epoch = 6, .promised_epoch = 7, .ring_bytes = 64 << 20,
	.arena_bytes = 1ULL << 41, .node_id = 0xEF01, .window_records = 16384, .lanes = 2,
	.last_node = 0xABCD, .last_life = 0x89ABCDEF,
};

static uint64_t soon(void)
{
	return clock_mono_ns() + 5 * NSEC_PER_SEC;
}

/* As kv-listen does it, which collects the frames bit by bit. */
static int answer(struct handshake *h, struct answer *a)
{
	uint8_t buf[REPL_SMALL_BYTES_MAX];
	struct frame f;
	int err = frame_recv(a->fd, buf, sizeof(buf), soon(), NULL, &f);

	if (err)
		return handshake_answer_lost(h, a->fd, err, "hello");
	err = handshake_answer_hello(h, a->fd, a->uuid, &f, buf);
	if (err)
		return err;
	err = frame_recv(a->fd, buf, sizeof(buf), soon(), NULL, &f);
	if (err)
		return handshake_answer_lost(h, a->fd, err, "join");
	return handshake_answer_join(h, a->fd, &f, buf, &a->join);
}

static void *answer_main(void *arg)
{
	struct answer *a = arg;
	struct handshake h = { .key = a->key };

	a->result = answer(&h, a);
	if (!a->result && a->refuse)
		a->result = handshake_refuse(&h, a->fd, a->refuse, "because of the test", soon());
	else if (!a->result)
		a->result = handshake_welcome(&h, a->fd, &a_welcome, soon());
	memcpy(a->why, h.why, sizeof(a->why));
	shutdown(a->fd, SHUT_RDWR);
	return NULL;
}

static void answer_start(struct answer *a, int fd)
{
	a->fd = fd;
	if (!a->uuid)
		a->uuid = uuid;
	if (!a->key)
		a->key = key;
	ck_assert_int_eq(thread_start(&a->thread, "mirror", answer_main, a), 0);
}

static void pair(int fds[2])
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
}

/* Dials a mirror that answers as *a says. */
static int dial(struct answer *a, char why[HANDSHAKE_WHY_BYTES], struct handshake_welcome *ret_w)
{
	struct handshake h = { .key = key };
	int fds[2], err;

	pair(fds);
	answer_start(a, fds[1]);
	err = handshake_dial(&h, fds[0], uuid, &a_join, soon(), ret_w);
	memcpy(why, h.why, HANDSHAKE_WHY_BYTES);
	close(fds[0]);
	pthread_join(a->thread, NULL);
	close(fds[1]);
	return err;
}

START_TEST(agrees)
{
	struct answer a = { 0 };
	struct handshake_welcome w;
	char why[HANDSHAKE_WHY_BYTES];

	ck_assert_int_eq(dial(&a, why, &w), 0);
	ck_assert_int_eq(a.result, 0);
	ck_assert_uint_eq(a.join.epoch, a_join.epoch);
	ck_assert_uint_eq(a.join.arena_bytes, a_join.arena_bytes);
	ck_assert_uint_eq(a.join.last_lsn, a_join.last_lsn);
	ck_assert_uint_eq(a.join.node_id, a_join.node_id);
	ck_assert_uint_eq(a.join.timeout_ms, a_join.timeout_ms);
	ck_assert_uint_eq(a.join.lanes, a_join.lanes);
	ck_assert_uint_eq(a.join.protocol, a_join.protocol);
	ck_assert_int_eq(a.join.transport, a_join.transport);
	ck_assert_uint_eq(a.join.link, a_join.link);
	ck_assert_uint_eq(a.join.life, a_join.life);
	ck_assert_uint_eq(w.last_lsn, a_welcome.last_lsn);
	ck_assert_uint_eq(w.last_epoch, a_welcome.last_epoch);
	ck_assert_uint_eq(w.promised_epoch, a_welcome.promised_epoch);
	ck_assert_uint_eq(w.ring_bytes, a_welcome.ring_bytes);
	ck_assert_uint_eq(w.arena_bytes, a_welcome.arena_bytes);
	ck_assert_uint_eq(w.node_id, a_welcome.node_id);
	ck_assert_uint_eq(w.window_records, a_welcome.window_records);
	ck_assert_uint_eq(w.last_node, a_welcome.last_node);
	ck_assert_uint_eq(w.last_life, a_welcome.last_life);
	ck_assert_uint_eq(w.lanes, a_welcome.lanes);
}
END_TEST

START_TEST(wrong_key)
{
	static const uint8_t other[32] = "the key of volume of test numbeR";
	struct answer a = { .key = other };
	struct handshake_welcome w;
	char why[HANDSHAKE_WHY_BYTES];

	ck_assert_int_eq(dial(&a, why, &w), -EKEYREJECTED);
	ck_assert_msg(strstr(why, "key"), "%s", why);
	ck_assert_int_eq(a.result, -ECONNRESET);
}
END_TEST

START_TEST(other_volume)
{
	static const uint8_t other[16] = "volume of test 2";
	struct answer a = { .uuid = other };
	struct handshake_welcome w;
	char why[HANDSHAKE_WHY_BYTES];

	ck_assert_int_eq(dial(&a, why, &w), -EXDEV);
	ck_assert_int_eq(a.result, -EXDEV);
}
END_TEST

START_TEST(refusals)
{
	static const struct {
		enum repl_refusal code;
		int err;
	} cases[] = {
		{ REPL_REFUSE_STALE_EPOCH, -ESTALE }, { REPL_REFUSE_ARENA, -ENOSPC },
		{ REPL_REFUSE_BUSY, -EBUSY },         { REPL_REFUSE_TRANSPORT, -ENOTSUP },
		{ REPL_REFUSE_FAILED, -EIO },         { REPL_REFUSE_TWICE, -ENOTUNIQ },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct answer a = { .refuse = cases[i].code };
		struct handshake_welcome w;
		char why[HANDSHAKE_WHY_BYTES];

		ck_assert_int_eq(dial(&a, why, &w), cases[i].err);
		ck_assert_str_eq(why, "because of the test");
	}
}
END_TEST

/* A caller that knows the volume but not the key gets nonce and proof, and after a made-up proof a
 * bare refusal. */
START_TEST(keyless_caller_learns_nothing)
{
	struct answer a = { 0 };
	struct repl_hello hello = { .nonce = "a nonce" };
	struct repl_join join;
	struct handshake_refusal refusal;
	struct frame f;
	uint8_t buf[REPL_SMALL_BYTES_MAX];
	int fds[2];

	pair(fds);
	answer_start(&a, fds[1]);
	memcpy(hello.uuid, uuid, 16);
	ck_assert_int_eq(frame_send(fds[0], REPL_HELLO, &hello, sizeof(hello), soon(), NULL), 0);
	ck_assert_int_eq(frame_recv(fds[0], buf, sizeof(buf), soon(), NULL, &f), 0);
	ck_assert_int_eq(f.type, REPL_CHALLENGE);
	ck_assert_uint_eq(f.len, sizeof(struct repl_challenge));
	handshake_join_encode(&a_join, &join);
	/* the mirror's own proof, sent back */
	memcpy(join.proof, buf + offsetof(struct repl_challenge, proof), sizeof(join.proof));
	ck_assert_int_eq(frame_send(fds[0], REPL_JOIN, &join, sizeof(join), soon(), NULL), 0);
	ck_assert_int_eq(frame_recv(fds[0], buf, sizeof(buf), soon(), NULL, &f), 0);
	ck_assert_int_eq(f.type, REPL_REFUSE);
	ck_assert_int_eq(handshake_refuse_decode(buf, f.len, &refusal), 0);
	ck_assert_int_eq(refusal.code, REPL_REFUSE_WRONG_KEY);
	ck_assert_str_eq(refusal.text, "");
	ck_assert_int_eq(frame_recv(fds[0], buf, sizeof(buf), soon(), NULL, &f), -ECONNRESET);
	pthread_join(a.thread, NULL);
	ck_assert_int_eq(a.result, -EKEYREJECTED);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

/* Somebody between the two who passes frames on and flips bit `bit` of frame number `at` (its
 * checksum put right). */
struct between {
	int a, b;
	unsigned at, bit;
	bool flipped;
	uint8_t keep[4][REPL_SMALL_BYTES_MAX]; /* the frames as they passed */
};

static void *between_main(void *arg)
{
	struct between *m = arg;
	struct frame f;

	for (unsigned i = 0; i < 4; i++) {
		int from = i % 2 ? m->b : m->a, to = i % 2 ? m->a : m->b;
		uint8_t *buf = m->keep[i];

		if (frame_recv(from, buf, REPL_SMALL_BYTES_MAX, soon(), NULL, &f) != 0)
			break;
		if (i == m->at && m->bit / 8 < f.len) {
			buf[m->bit / 8] ^= (uint8_t)(1 << m->bit % 8);
			m->flipped = true;
		}
		if (frame_send(to, f.type, buf, f.len, soon(), NULL) != 0)
			break;
	}
	shutdown(m->a, SHUT_RDWR);
	shutdown(m->b, SHUT_RDWR);
	return NULL;
}

static int dial_through(struct between *m, struct answer *a)
{
	struct handshake h = { .key = key };
	struct handshake_welcome w;
	int near[2], far[2], err;
	pthread_t thread;

	pair(near);
	pair(far);
	m->a = near[1];
	m->b = far[0];
	answer_start(a, far[1]);
	ck_assert_int_eq(thread_start(&thread, "between", between_main, m), 0);
	err = handshake_dial(&h, near[0], uuid, &a_join, soon(), &w);
	shutdown(near[0], SHUT_RDWR);
	pthread_join(thread, NULL);
	pthread_join(a->thread, NULL);
	for (int i = 0; i < 2; i++) {
		close(near[i]);
		close(far[i]);
	}
	return err;
}

START_TEST(any_flipped_bit_is_noticed)
{
	unsigned tried = 0;

	for (unsigned at = 0; at < 4; at++) {
		for (unsigned byte = 0; byte < 100; byte++) {
			struct between m = { .at = at, .bit = byte * 8 + byte % 8 };
			struct answer a = { 0 };
			int err = dial_through(&m, &a);

			if (!m.flipped) {
				ck_assert_int_eq(err, 0);
				break;
			}
			ck_assert_int_ne(err, 0);
			ck_assert_msg(at == 3 || a.result != 0, "frame %u byte %u", at, byte);
			tried++;
		}
	}
	ck_assert_uint_eq(tried, sizeof(struct repl_hello) + sizeof(struct repl_challenge) +
					 sizeof(struct repl_join) + sizeof(struct repl_welcome));
}
END_TEST

/* What proved the key once proves nothing the next time. */
START_TEST(replay_is_refused)
{
	struct between m = { .at = 9 };
	struct answer a = { 0 }, again = { 0 };
	struct frame f;
	uint8_t buf[REPL_SMALL_BYTES_MAX];
	int fds[2];

	ck_assert_int_eq(dial_through(&m, &a), 0);
	pair(fds);
	answer_start(&again, fds[1]);
	ck_assert_int_eq(frame_send(fds[0], REPL_HELLO, m.keep[0], sizeof(struct repl_hello),
				    soon(), NULL),
			 0);
	ck_assert_int_eq(frame_recv(fds[0], buf, sizeof(buf), soon(), NULL, &f), 0);
	ck_assert_int_eq(frame_send(fds[0], REPL_JOIN, m.keep[2], sizeof(struct repl_join),
				    soon(), NULL),
			 0);
	pthread_join(again.thread, NULL);
	ck_assert_int_eq(again.result, -EKEYREJECTED);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

START_TEST(nonsense)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
	struct repl_frame h = { .magic = htobe32(REPL_MAGIC), .version = htobe16(REPL_VERSION + 1),
				.type = htobe16(REPL_HELLO) };
	struct repl_frame big = { .magic = htobe32(REPL_MAGIC),
				  .version = htobe16(REPL_VERSION),
				  .type = htobe16(REPL_HELLO),
				  .len = htobe32(REPL_SMALL_BYTES_MAX + 1) };
	const struct {
		const void *bytes;
		size_t len;
		int err;
	} cases[] = {
		{ http, sizeof(http), -EBADMSG },
		{ &h, sizeof(h), -EPROTONOSUPPORT },
		{ &big, sizeof(big), -EBADMSG },
	};

	for (size_t i = 0; i < 3; i++) {
		struct answer a = { 0 };
		int fds[2];

		pair(fds);
		answer_start(&a, fds[1]);
		ck_assert_int_eq(write(fds[0], cases[i].bytes, cases[i].len),
				 (ssize_t)cases[i].len);
		pthread_join(a.thread, NULL);
		ck_assert_int_eq(a.result, cases[i].err);
		close(fds[0]);
		close(fds[1]);
	}
}
END_TEST

START_TEST(silence_has_a_deadline)
{
	struct handshake h = { .key = key };
	struct handshake_welcome w;
	uint64_t began = clock_mono_ns();
	int fds[2];

	pair(fds);
	ck_assert_int_eq(handshake_dial(&h, fds[0], uuid, &a_join, began + 200 * NSEC_PER_MSEC, &w),
			 -ETIMEDOUT);
	ck_assert_uint_lt(clock_mono_ns() - began, 2 * NSEC_PER_SEC);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

START_TEST(ack_slots)
{
	static uint8_t window[REPL_ACK_WINDOW_BYTES];
	struct ack a, last = { 0 };

	ck_assert(!ack_scan(window, 0, &a));
	for (uint64_t seq = 1; seq <= 300; seq++) {
		struct ack w = { .sequence = seq,
				 .received_lsn = seq + 2,
				 .durable_lsn = seq + 1,
				 .applied_lsn = seq,
				 .ring_freed = seq * 64,
				 .heartbeats = seq / 10 };

		ack_encode(&w, window + ack_slot_offset(seq));
		/* looked at now and then, up to more than a lap later */
		if (seq % 37 && seq % 5)
			continue;
		ck_assert(ack_scan(window, last.sequence, &a));
		ck_assert_uint_eq(a.sequence, seq);
		ck_assert_uint_eq(a.ring_freed, seq * 64);
		ck_assert_uint_eq(a.heartbeats, seq / 10);
		ck_assert(!ack_scan(window, seq, &last));
		last = a;
	}
	window[ack_slot_offset(300) + 20] ^= 1;
	ck_assert(ack_scan(window, 298, &a));
	ck_assert_uint_eq(a.sequence, 299);
}
END_TEST

START_TEST(ack_rejects)
{
	const struct ack good = {
		.sequence = 5, .received_lsn = 9, .durable_lsn = 8, .applied_lsn = 7
	};
	struct ack bad = good, a;
	uint8_t buf[sizeof(struct repl_ack)];

	ack_encode(&good, buf);
	ck_assert_int_eq(ack_decode(buf, sizeof(buf), &a), 0);
	ck_assert_int_eq(ack_decode(buf, sizeof(buf) - 1, &a), -EBADMSG);
	for (size_t bit = 0; bit < sizeof(buf) * 8; bit++) {
		buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_int_eq(ack_decode(buf, sizeof(buf), &a), -EBADMSG);
		buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	bad.durable_lsn = 10;
	ack_encode(&bad, buf);
	ck_assert_int_eq(ack_decode(buf, sizeof(buf), &a), -EBADMSG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("handshake");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 30);
	tcase_add_test(t, agrees);
	tcase_add_test(t, wrong_key);
	tcase_add_test(t, other_volume);
	tcase_add_test(t, refusals);
	tcase_add_test(t, keyless_caller_learns_nothing);
	tcase_add_test(t, any_flipped_bit_is_noticed);
	tcase_add_test(t, replay_is_refused);
	tcase_add_test(t, nonsense);
	tcase_add_test(t, silence_has_a_deadline);
	tcase_add_test(t, ack_slots);
	tcase_add_test(t, ack_rejects);
	suite_add_tcase(s, t);
	return unit_run(s);
}
