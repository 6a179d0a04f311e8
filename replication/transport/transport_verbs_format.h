/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_TRANSPORT_VERBS_FORMAT_H
#define KVFS_REPLICATION_TRANSPORT_VERBS_FORMAT_H
/*
 * What the verbs transport sends while it is set up: messages on the control connection, and the
 * private data of each lane's connection request and its acceptance; and on lane 0, into the memory
 * behind the window, what a way for datagrams needs. Network byte order; nothing is trusted.
 *
 *   primary → mirror: offer      mirror → primary: answer (where its device is, a random token)
 *   a lane: connect with hello   ← accept with accept
 *   primary → mirror: status (all lanes are connected)           mirror → primary: status
 *   a lane made anew: answer, hello and acceptance, both statuses, all as above
 *   who wants datagrams: line 0, an offer → line 1, its answer, of the same generation
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define VERBS_FORMAT_VERSION 4
#define VERBS_FORMAT_MUTE 3 /* the last whose status does not tell its version */
#define VERBS_TOKEN_BYTES 16

#define VERBS_MAGIC_OFFER 0x6B76564FU  /* "kvVO" */
#define VERBS_MAGIC_ANSWER 0x6B765641U /* "kvVA" */
#define VERBS_MAGIC_STATUS 0x6B765653U /* "kvVS" */
#define VERBS_MAGIC_LANE 0x6B76564CU   /* "kvVL" */
#define VERBS_MAGIC_DATAGRAM 0x6B765644U /* "kvVD" */

struct verbs_offer {
	uint8_t magic[4];
	uint8_t version[2];
	uint8_t lanes[2];
	uint8_t window_bytes[8];
};
static_assert(sizeof(struct verbs_offer) == 16, "wire");

struct verbs_answer {
	uint8_t magic[4];
	uint8_t version[2];
	uint8_t lanes[2];
	uint8_t window_bytes[8];
	uint8_t address[16]; /* of the mirror's device: IPv6, or IPv4 mapped into it */
	uint8_t scope[4];    /* 0; a link-local address takes the dialling interface */
	uint8_t port[2];
	uint8_t zero[2];
	uint8_t token[VERBS_TOKEN_BYTES];
};
static_assert(sizeof(struct verbs_answer) == 56, "wire");

/* Either way, last: 0, or the errno for which set-up was given up, EPROTONOSUPPORT where the
 * formats differ. */
struct verbs_status {
	uint8_t magic[4];
	uint8_t version[2]; /* the sender's; 0: VERBS_FORMAT_MUTE or older */
	uint8_t err[2];
};
static_assert(sizeof(struct verbs_status) == 8, "wire");

/* Where the sender's window is: its bytes, then one credit word a lane. */
struct verbs_target {
	uint8_t address[8];
	uint8_t rkey[4];
	/* that the sender's port takes; 0: it does not matter, or the sender does not tell yet */
	uint8_t mtu_bytes[4];
};

/* Private data of a lane's request: 56 bytes is all that an RDMA_PS_TCP port has. */
struct verbs_lane_hello {
	uint8_t magic[4];
	uint8_t version[2];
	uint8_t lane[2];
	uint8_t token[VERBS_TOKEN_BYTES];
	struct verbs_target target;
	uint8_t generation[4]; /* 0; of a lane made anew (transport_relane): that */
	uint8_t attempt[4];    /* from 0; the next once the one before was given up */
};
static_assert(sizeof(struct verbs_lane_hello) == 48, "wire");

struct verbs_lane_accept {
	uint8_t magic[4];
	uint8_t version[2];
	uint8_t lane[2];
	struct verbs_target target;
};
static_assert(sizeof(struct verbs_lane_accept) == 24, "wire");

struct verbs_datagram_line {
	uint8_t magic[4];
	uint8_t version[2];
	uint8_t zero[2];
	uint8_t generation[4]; /* from 1; each offer has the next, its answer the same */
	uint8_t qpn[4];        /* of the sender's queue pair; 0: it can't make one */
	uint8_t psn[4];        /* an answer's: of the first datagram */
	uint8_t checksum[4];   /* CRC32C with this field zero */
};
static_assert(sizeof(struct verbs_datagram_line) == 24, "wire");
static_assert(offsetof(struct verbs_datagram_line, checksum) == 20, "wire");

struct verbs_datagram {
	uint32_t generation, qpn, psn;
};

/* All: -EPROTO. answer_check: an answer to an offer of so many lanes. Offer, answer and status:
 * -EPROTONOSUPPORT, they are of another version; *ret_version of a status says which.
 * status_decode: -ECONNABORTED, the sender gave up. */
int verbs_status_decode(const struct verbs_status *s, unsigned *ret_version);
int verbs_offer_decode(const struct verbs_offer *o, unsigned *ret_lanes,
		       uint64_t *ret_window_bytes);
int verbs_answer_check(const struct verbs_answer *a, unsigned lanes_max);
int verbs_hello_decode(const void *data, size_t len, struct verbs_lane_hello *ret_h);
int verbs_accept_decode(const void *data, size_t len, unsigned lane,
			struct verbs_lane_accept *ret_a);
void verbs_datagram_encode(const struct verbs_datagram *d, struct verbs_datagram_line *ret_w);
/* line: sizeof(struct verbs_datagram_line) bytes. */
int verbs_datagram_decode(const void *line, struct verbs_datagram *ret_d);

#endif
