/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake on a socket: who says what when, and the proofs (handshake.h). */
#include "replication/handshake.h"

#include "common/byteorder.h"
#include "common/clock.h"
#include "replication/frame.h"

#include <errno.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static_assert(REPL_PROOF_BYTES <= crypto_generichash_BYTES_MAX, "proof length");
static_assert(HANDSHAKE_KEY_BYTES <= crypto_generichash_KEYBYTES_MAX, "key length");

/* Distinct, so that no proof of one message passes for another's (reflection). */
static const char LABEL_CHALLENGE[] = "kvfs replication 1: mirror, challenge";
static const char LABEL_JOIN[] = "kvfs replication 1: primary, join";
static const char LABEL_WELCOME[] = "kvfs replication 1: mirror, welcome";
static const char LABEL_REFUSE[] = "kvfs replication 1: mirror, refuse";

__attribute__((format(printf, 3, 4)))
static int handshake_fail(struct handshake *h, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(h->why, sizeof(h->why), fmt, ap);
	va_end(ap);
	return err;
}

static int handshake_fail_io(struct handshake *h, int err, const char *what)
{
	switch (err) {
	case -ETIMEDOUT:
		return handshake_fail(h, err, "no answer in time (%s)", what);
	case -ECONNRESET:
		return handshake_fail(h, err, "the connection was closed (%s)", what);
	case -EPROTONOSUPPORT:
		return handshake_fail(h, err, "the peer speaks another version of the protocol");
	case -EBADMSG:
	case -EMSGSIZE:
		return handshake_fail(h, -EBADMSG, "the peer does not speak kvfs replication (%s)",
				      what);
	default:
		return handshake_fail(h, err, "%s (%s)", strerror(-err), what);
	}
}

/* A message's bytes, without its proof, become part of what later proofs cover. */
static void handshake_note(struct handshake *h, enum repl_frame_type type, const void *msg,
			   size_t len)
{
	assert(h->transcript_len + len + 1 <= sizeof(h->transcript));
	h->transcript[h->transcript_len++] = (uint8_t)type;
	memcpy(h->transcript + h->transcript_len, msg, len);
	h->transcript_len += len;
}

static void handshake_prove(const struct handshake *h, const char *label,
			    uint8_t out[REPL_PROOF_BYTES])
{
	crypto_generichash_state st;

	crypto_generichash_init(&st, h->key, HANDSHAKE_KEY_BYTES, REPL_PROOF_BYTES);
	crypto_generichash_update(&st, (const unsigned char *)label, strlen(label) + 1);
	crypto_generichash_update(&st, h->transcript, h->transcript_len);
	crypto_generichash_final(&st, out, REPL_PROOF_BYTES);
	sodium_memzero(&st, sizeof(st));
}

static bool handshake_proof_is(const struct handshake *h, const char *label,
			       const uint8_t proof[REPL_PROOF_BYTES])
{
	uint8_t want[REPL_PROOF_BYTES];
	bool same;

	handshake_prove(h, label, want);
	same = sodium_memcmp(want, proof, sizeof(want)) == 0;
	sodium_memzero(want, sizeof(want));
	return same;
}

/* Sends a message whose last REPL_PROOF_BYTES are the proof over everything up to and with it. */
static int handshake_send_proved(struct handshake *h, int fd, enum repl_frame_type type, void *msg,
				 size_t len, const char *label, uint64_t deadline_ns)
{
	handshake_note(h, type, msg, len - REPL_PROOF_BYTES);
	handshake_prove(h, label, (uint8_t *)msg + len - REPL_PROOF_BYTES);
	return frame_send(fd, type, msg, len, deadline_ns, h->cancel);
}

/* Whether a received message carries the right proof; it is noted either way. */
static bool handshake_check_proved(struct handshake *h, enum repl_frame_type type, const void *msg,
				   size_t len, const char *label)
{
	handshake_note(h, type, msg, len - REPL_PROOF_BYTES);
	return handshake_proof_is(h, label, (const uint8_t *)msg + len - REPL_PROOF_BYTES);
}

static int handshake_refused(struct handshake *h, const void *msg, size_t len)
{
	struct handshake_refusal r;
	int err = handshake_refuse_decode(msg, len, &r);

	if (err)
		return handshake_fail_io(h, err, "refusal");
	/* Before we know that it is our mirror, its text is not repeated. */
	if (!h->proved) {
		err = handshake_refusal_errno(r.code);
		switch (r.code) {
		case REPL_REFUSE_VERSION:
			return handshake_fail(h, err,
					      "the mirror speaks another version of the protocol");
		case REPL_REFUSE_OTHER_VOLUME:
			return handshake_fail(h, err, "it is a mirror of another volume");
		default:
			return handshake_fail(h, -EPROTO, "refused before the key was proved");
		}
	}
	if (r.code == REPL_REFUSE_WRONG_KEY)
		return handshake_fail(h, -EKEYREJECTED, "the mirror rejects this volume's key");
	if (!handshake_check_proved(h, REPL_REFUSE, msg, len, LABEL_REFUSE))
		return handshake_fail(h, -EKEYREJECTED, "the mirror's refusal is not authentic");
	return handshake_fail(h, handshake_refusal_errno(r.code), "%s", r.text);
}

static int handshake_recv(struct handshake *h, int fd, enum repl_frame_type want, void *buf,
			  uint64_t deadline_ns, const char *what, struct frame *ret_frame)
{
	struct frame f;
	int err = frame_recv(fd, buf, REPL_SMALL_BYTES_MAX, deadline_ns, h->cancel, &f);

	if (err)
		return handshake_fail_io(h, err, what);
	if (f.type == REPL_REFUSE)
		return handshake_refused(h, buf, f.len);
	if (f.type != want)
		return handshake_fail_io(h, -EBADMSG, what);
	*ret_frame = f;
	return 0;
}

static int handshake_dial_challenge(struct handshake *h, int fd, const uint8_t uuid[16],
				    uint64_t deadline_ns)
{
	uint8_t buf[REPL_SMALL_BYTES_MAX];
	struct repl_challenge challenge;
	struct frame f;
	struct repl_hello hello = {
		.feature_incompat = htobe32(REPL_FEATURE_INCOMPAT),
		.feature_compat = htobe32(REPL_FEATURE_COMPAT),
	};
	int err;

	memcpy(hello.uuid, uuid, sizeof(hello.uuid));
	randombytes_buf(hello.nonce, sizeof(hello.nonce));
	handshake_note(h, REPL_HELLO, &hello, sizeof(hello));
	err = frame_send(fd, REPL_HELLO, &hello, sizeof(hello), deadline_ns, h->cancel);
	if (err)
		return handshake_fail_io(h, err, "hello");
	err = handshake_recv(h, fd, REPL_CHALLENGE, buf, deadline_ns, "challenge", &f);
	if (err)
		return err;
	err = handshake_challenge_decode(buf, f.len, &challenge);
	if (err)
		return handshake_fail_io(h, err, "challenge");
	if (!handshake_check_proved(h, REPL_CHALLENGE, buf, f.len, LABEL_CHALLENGE))
		return handshake_fail(h, -EKEYREJECTED,
				      "the mirror does not hold this volume's key");
	h->proved = true;
	return 0;
}

int handshake_dial(struct handshake *h, int fd, const uint8_t uuid[16],
		   const struct handshake_join *join, uint64_t deadline_ns,
		   struct handshake_welcome *ret_welcome)
{
	uint8_t buf[REPL_SMALL_BYTES_MAX];
	struct frame f;
	struct repl_join wire;
	int err;

	if (sodium_init() < 0)
		return handshake_fail(h, -EIO, "libsodium cannot start");
	err = handshake_dial_challenge(h, fd, uuid, deadline_ns);
	if (err)
		return err;
	handshake_join_encode(join, &wire);
	err = handshake_send_proved(h, fd, REPL_JOIN, &wire, sizeof(wire), LABEL_JOIN, deadline_ns);
	if (err)
		return handshake_fail_io(h, err, "join");
	err = handshake_recv(h, fd, REPL_WELCOME, buf, deadline_ns, "welcome", &f);
	if (err)
		return err;
	if (f.len != sizeof(struct repl_welcome))
		return handshake_fail_io(h, -EBADMSG, "welcome");
	if (!handshake_check_proved(h, REPL_WELCOME, buf, f.len, LABEL_WELCOME))
		return handshake_fail(h, -EKEYREJECTED, "the mirror's welcome is not authentic");
	err = handshake_welcome_decode(buf, f.len, ret_welcome);
	return err ? handshake_fail_io(h, err, "welcome") : 0;
}

int handshake_answer_lost(struct handshake *h, int fd, int err, const char *what)
{
	if (err == -EPROTONOSUPPORT)
		handshake_refuse(h, fd, REPL_REFUSE_VERSION, "", clock_mono_ns());
	return handshake_fail_io(h, err, what);
}

int handshake_answer_hello(struct handshake *h, int fd, const uint8_t uuid[16],
			   const struct frame *f, const void *msg)
{
	struct repl_hello hello;
	struct repl_challenge challenge = {
		.feature_incompat = htobe32(REPL_FEATURE_INCOMPAT),
		.feature_compat = htobe32(REPL_FEATURE_COMPAT),
	};
	uint64_t now = clock_mono_ns();
	int err = f->type == REPL_HELLO ? handshake_hello_decode(msg, f->len, &hello) : -EBADMSG;

	if (err)
		return handshake_answer_lost(h, fd, err, "hello");
	if (sodium_init() < 0)
		return handshake_fail(h, -EIO, "libsodium cannot start");
	if (memcmp(hello.uuid, uuid, sizeof(hello.uuid)) != 0) {
		handshake_refuse(h, fd, REPL_REFUSE_OTHER_VOLUME, "", now);
		return handshake_fail(h, -EXDEV, "a primary of another volume called");
	}
	h->peer_compat = be32toh(hello.feature_compat);
	handshake_note(h, REPL_HELLO, msg, f->len);
	randombytes_buf(challenge.nonce, sizeof(challenge.nonce));
	err = handshake_send_proved(h, fd, REPL_CHALLENGE, &challenge, sizeof(challenge),
				    LABEL_CHALLENGE, now);
	return err ? handshake_fail_io(h, err, "challenge") : 0;
}

int handshake_answer_join(struct handshake *h, int fd, const struct frame *f,
			  const void *msg, struct handshake_join *ret_join)
{
	int err;

	if (f->type != REPL_JOIN || f->len != sizeof(struct repl_join))
		return handshake_fail_io(h, -EBADMSG, "join");
	if (!handshake_check_proved(h, REPL_JOIN, msg, f->len, LABEL_JOIN)) {
		handshake_refuse(h, fd, REPL_REFUSE_WRONG_KEY, "", clock_mono_ns());
		return handshake_fail(h, -EKEYREJECTED, "a primary with a wrong key called");
	}
	h->proved = true;
	err = handshake_join_decode(msg, f->len, ret_join);
	return err ? handshake_fail_io(h, err, "join") : 0;
}

int handshake_welcome(struct handshake *h, int fd, const struct handshake_welcome *w,
		      uint64_t deadline_ns)
{
	struct repl_welcome wire;
	int err;

	assert(h->proved);
	handshake_welcome_encode(w, &wire);
	err = handshake_send_proved(h, fd, REPL_WELCOME, &wire, sizeof(wire), LABEL_WELCOME,
				    deadline_ns);
	return err ? handshake_fail_io(h, err, "welcome") : 0;
}

int handshake_refuse(struct handshake *h, int fd, enum repl_refusal code, const char *text,
		     uint64_t deadline_ns)
{
	struct handshake_refusal r = { .code = code };
	struct repl_refuse wire;

	snprintf(r.text, sizeof(r.text), "%s", text);
	handshake_refuse_encode(&r, &wire);
	if (h->proved)
		return handshake_send_proved(h, fd, REPL_REFUSE, &wire, sizeof(wire), LABEL_REFUSE,
					     deadline_ns);
	return frame_send(fd, REPL_REFUSE, &wire, sizeof(wire), deadline_ns, h->cancel);
}
