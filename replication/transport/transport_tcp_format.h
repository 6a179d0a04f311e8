/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_TRANSPORT_TCP_FORMAT_H
#define KVFS_REPLICATION_TRANSPORT_TCP_FORMAT_H
/*
 * What the tcp transport sends: set-up messages on the control connection, one hello a lane, then
 * frames, each a header and len bytes for the receiver's window. Network byte order. The receiver
 * trusts none of it.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define TCP_FORMAT_VERSION 2
#define TCP_TOKEN_BYTES 16

#define TCP_MAGIC_OFFER 0x6B764F46U  /* "kvOF" */
#define TCP_MAGIC_ANSWER 0x6B76414EU /* "kvAN" */
#define TCP_MAGIC_STATUS 0x6B765354U /* "kvST" */
#define TCP_MAGIC_LANE 0x6B764C4EU   /* "kvLN" */
#define TCP_MAGIC_FRAME 0x6B764652U  /* "kvFR" */

/* Primary → mirror on the control connection. */
struct tcp_offer {
	uint8_t magic[4];
	uint8_t version[2];
	uint8_t lanes[2];
	uint8_t window_bytes[8];
};
static_assert(sizeof(struct tcp_offer) == 16, "wire");

/* Mirror → primary: where to dial, and the token that lets a connection in. */
struct tcp_answer {
	uint8_t magic[4];
	uint8_t version[2];
	uint8_t lanes[2];
	uint8_t window_bytes[8];
	uint8_t port[2];
	uint8_t zero[6];
	uint8_t token[TCP_TOKEN_BYTES];
};
static_assert(sizeof(struct tcp_answer) == 40, "wire");

/* Either way on the control connection, last: 0, or the errno for which set-up was given up. */
struct tcp_status {
	uint8_t magic[4];
	uint8_t err[4];
};
static_assert(sizeof(struct tcp_status) == 8, "wire");

/* First on each lane, primary → mirror. */
struct tcp_lane_hello {
	uint8_t magic[4];
	uint8_t lane[4];
	uint8_t generation[4]; /* 0; of a lane made anew (transport_relane): that */
	uint8_t token[TCP_TOKEN_BYTES];
};
static_assert(sizeof(struct tcp_lane_hello) == 28, "wire");

enum tcp_frame_kind {
	TCP_FRAME_NOTICE = 1,
	TCP_FRAME_CREDIT = 2, /* len, imm, off are 0 */
};

struct tcp_frame {
	uint8_t magic[4];
	uint8_t kind[2];
	uint8_t lane[2];
	uint8_t len[4];
	uint8_t imm[4];
	uint8_t off[8];
	uint8_t seq[4];      /* notices sent before this frame on this lane, modulo 2^32 */
	uint8_t consumed[4]; /* notices of the other direction taken by poll, modulo 2^32 */
};
static_assert(sizeof(struct tcp_frame) == 32, "wire");
static_assert(offsetof(struct tcp_frame, off) == 16, "wire");
static_assert(offsetof(struct tcp_frame, consumed) == 28, "wire");

#endif
