/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_FRAME_H
#define KVFS_REPLICATION_FRAME_H
/*
 * Framed messages on the control connection: bounded length, checksum, a deadline for each. The
 * socket may be blocking or not; both functions wait in poll(2) in slices, so that *cancel (may be
 * NULL) ends the wait within 100 ms. One thread a connection.
 *
 * Errors of both: -ETIMEDOUT, -ECONNRESET (the peer has gone), -ECANCELED, -EIO.
 */
#include "replication/repl_format.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct frame {
	enum repl_frame_type type;
	uint32_t len;
};

/* Pure: the header of a frame. -EBADMSG: no frame, -EPROTONOSUPPORT: another version of the
 * protocol, -EMSGSIZE: longer than its type allows. */
int frame_decode(const void *header, struct frame *ret_frame);
/* Pure: checks the checksum over header and payload. */
bool frame_intact(const void *header, const void *payload, size_t len);

int frame_send(int fd, enum repl_frame_type type, const void *payload, size_t len,
	       uint64_t deadline_ns, const atomic_bool *cancel);

/* Reads one frame into buf. Besides the above: those of frame_decode, -EBADMSG (checksum),
 * -EMSGSIZE (more than cap). */
int frame_recv(int fd, void *buf, size_t cap, uint64_t deadline_ns, const atomic_bool *cancel,
	       struct frame *ret_frame);

/* A frame of at most REPL_SMALL_BYTES_MAX that comes bit by bit; zeroed before its first byte.
 * Never takes more than the frame's bytes from the socket. */
struct frame_reader {
	uint8_t bytes[sizeof(struct repl_frame) + REPL_SMALL_BYTES_MAX];
	uint32_t got;
};

static inline const void *frame_reader_payload(const struct frame_reader *r)
{
	return r->bytes + sizeof(struct repl_frame);
}

/* Takes what is there, never waits. 0: the frame is whole (payload: frame_reader_payload);
 * -EAGAIN: not yet; otherwise as frame_recv. */
int frame_read_some(int fd, struct frame_reader *r, struct frame *ret_frame);

/* Sets what a control connection needs: no delay, and keepalive that reports a dead host within
 * seconds. */
void frame_socket_tune(int fd);

#endif
