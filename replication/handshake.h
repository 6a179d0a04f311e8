/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_HANDSHAKE_H
#define KVFS_REPLICATION_HANDSHAKE_H
/*
 * The mutual proof of the volume key over a fresh control connection, and what both sides tell each
 * other once it is proved (order of messages: repl_format.h).
 *
 * handshake_*_encode and _decode are pure; handshake_dial, _answer, _welcome and _refuse talk on a
 * socket, each with a deadline, on the thread that calls them. The key is only read.
 */
#include "replication/repl_format.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define HANDSHAKE_WHY_BYTES 200
#define HANDSHAKE_KEY_BYTES 32

/* The messages in host form. Proofs and nonces stay in the wire structs. */
struct handshake_join {
	uint64_t epoch, arena_bytes, last_lsn;
	uint32_t node_id, timeout_ms, link, life;
	unsigned lanes;
	enum repl_transport transport;
	unsigned protocol; /* enum commit_protocol */
};

struct handshake_welcome {
	uint64_t last_lsn, last_epoch, promised_epoch, ring_bytes, arena_bytes;
	uint32_t node_id, window_records, last_node, last_life;
	unsigned lanes;
};

struct handshake_refusal {
	enum repl_refusal code;
	char text[REPL_TEXT_BYTES]; /* NUL-terminated */
};

void handshake_join_encode(const struct handshake_join *j, struct repl_join *ret_wire);
void handshake_welcome_encode(const struct handshake_welcome *w, struct repl_welcome *ret_wire);
void handshake_refuse_encode(const struct handshake_refusal *r, struct repl_refuse *ret_wire);

/* -EBADMSG: wrong length or a field out of range. hello and challenge also -EPROTONOSUPPORT: a
 * feature this build does not know. */
int handshake_hello_decode(const void *in, size_t len, struct repl_hello *ret_hello);
int handshake_challenge_decode(const void *in, size_t len, struct repl_challenge *ret_challenge);
int handshake_join_decode(const void *in, size_t len, struct handshake_join *ret_join);
int handshake_welcome_decode(const void *in, size_t len, struct handshake_welcome *ret_welcome);
int handshake_refuse_decode(const void *in, size_t len, struct handshake_refusal *ret_refusal);

/* The errno a refusal turns into on the primary: -EPROTONOSUPPORT, -EXDEV, -EKEYREJECTED, -ESTALE,
 * -ENOSPC, -EBUSY, -ENOTSUP, -ENOTUNIQ, -EIO. */
int handshake_refusal_errno(enum repl_refusal code);

/* One exchange. Zeroed by its owner before use; no pointers to memory of others except key. */
struct handshake {
	const uint8_t *key;          /* HANDSHAKE_KEY_BYTES */
	const atomic_bool *cancel;   /* may be NULL */
	uint8_t transcript[512];     /* every message so far, without proofs */
	size_t transcript_len;
	bool proved;                 /* the peer has proved the key */
	uint32_t peer_compat;        /* its feature_compat; of the mirror's side */
	char why[HANDSHAKE_WHY_BYTES]; /* after an error: a sentence for people */
};

/*
 * Primary: HELLO to WELCOME. Errors: those of frame_recv; -EKEYREJECTED (the peer does not hold
 * this key, or says so of us), and the refusals' (handshake_refusal_errno). why is filled.
 */
int handshake_dial(struct handshake *h, int fd, const uint8_t uuid[16],
		   const struct handshake_join *join, uint64_t deadline_ns,
		   struct handshake_welcome *ret_welcome);

/* Mirror: HELLO to JOIN, in two steps that never wait: f and msg are what came. They send the
 * refusal themselves where one is due. Answers go out as far as the socket takes them at once: all
 * of it, on a new connection. -EXDEV, -EKEYREJECTED, -EPROTONOSUPPORT, -EBADMSG, and those of
 * frame_send. why is filled. */
struct frame;
int handshake_answer_hello(struct handshake *h, int fd, const uint8_t uuid[16],
			   const struct frame *f, const void *msg);
int handshake_answer_join(struct handshake *h, int fd, const struct frame *f,
			  const void *msg, struct handshake_join *ret_join);
/* The frame could not be had: the sentence for err in why. */
int handshake_answer_lost(struct handshake *h, int fd, int err, const char *what);
/* Mirror, after handshake_answer_join: either of the two ends the exchange. */
int handshake_welcome(struct handshake *h, int fd, const struct handshake_welcome *w,
		      uint64_t deadline_ns);
int handshake_refuse(struct handshake *h, int fd, enum repl_refusal code, const char *text,
		     uint64_t deadline_ns);

#endif
