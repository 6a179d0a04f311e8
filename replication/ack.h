/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_ACK_H
#define KVFS_REPLICATION_ACK_H
/* The acknowledgement slots in the primary's window (repl_format.h). Pure; any thread. */
#include "replication/repl_format.h"

#include <stdbool.h>
#include <stddef.h>

struct ack {
	uint64_t sequence;
	uint64_t received_lsn, durable_lsn, applied_lsn;
	uint64_t ring_freed;
	uint64_t heartbeats;
};

void ack_encode(const struct ack *a, void *out); /* sizeof(struct repl_ack) bytes */

/* -EBADMSG: empty, torn, not one, or its positions contradict each other. */
int ack_decode(const void *in, size_t len, struct ack *ret_ack);

/* Offset in the primary's window of the slot of a sequence number. */
uint64_t ack_slot_offset(uint64_t sequence);

/* Finds the newest whole acknowledgement after sequence `after` in a window of
 * REPL_ACK_WINDOW_BYTES. Slots that are being written meanwhile are passed over: their notice is
 * still to come. */
bool ack_scan(const void *window, uint64_t after, struct ack *ret_ack);

#endif
