/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding, decoding and choosing of acknowledgements: see ack.h. */
#include "replication/ack.h"

#include "common/byteorder.h"
#include "common/crc32c.h"

#include <errno.h>
#include <string.h>

#define ACK_MAGIC 0x4B56414BU /* "KVAK" */

void ack_encode(const struct ack *a, void *out)
{
	struct repl_ack w = {
		.magic = htobe32(ACK_MAGIC),
		.version = htobe16(REPL_VERSION),
		.sequence = htobe64(a->sequence),
		.received_lsn = htobe64(a->received_lsn),
		.durable_lsn = htobe64(a->durable_lsn),
		.applied_lsn = htobe64(a->applied_lsn),
		.ring_freed = htobe64(a->ring_freed),
		.heartbeats = htobe64(a->heartbeats),
	};

	w.checksum = htobe32(crc32c(0, &w, sizeof(w)));
	memcpy(out, &w, sizeof(w));
}

int ack_decode(const void *in, size_t len, struct ack *ret_ack)
{
	struct repl_ack w;
	struct ack a;
	uint32_t sum;

	if (len < sizeof(w))
		return -EBADMSG;
	memcpy(&w, in, sizeof(w));
	if (be32toh(w.magic) != ACK_MAGIC || be16toh(w.version) != REPL_VERSION)
		return -EBADMSG;
	sum = be32toh(w.checksum);
	w.checksum = 0;
	if (crc32c(0, &w, sizeof(w)) != sum || w.zero != 0 || w.zero2 != 0)
		return -EBADMSG;
	a.sequence = be64toh(w.sequence);
	a.received_lsn = be64toh(w.received_lsn);
	a.durable_lsn = be64toh(w.durable_lsn);
	a.applied_lsn = be64toh(w.applied_lsn);
	a.ring_freed = be64toh(w.ring_freed);
	a.heartbeats = be64toh(w.heartbeats);
	if (a.sequence == 0 || a.durable_lsn > a.received_lsn || a.applied_lsn > a.durable_lsn)
		return -EBADMSG;
	*ret_ack = a;
	return 0;
}

uint64_t ack_slot_offset(uint64_t sequence)
{
	return sequence % REPL_ACK_SLOTS * REPL_ACK_SLOT_BYTES;
}

bool ack_scan(const void *window, uint64_t after, struct ack *ret_ack)
{
	const uint8_t *slots = window;
	uint64_t seq = after;
	struct ack a, best;
	bool found = false;

	for (unsigned i = 0; i < REPL_ACK_SLOTS; i++) {
		seq++;
		if (ack_decode(slots + ack_slot_offset(seq), REPL_ACK_SLOT_BYTES, &a) < 0)
			continue;
		/* An old lap: the writer has not come here yet, nor to any later slot. */
		if (a.sequence < seq)
			break;
		if (a.sequence % REPL_ACK_SLOTS != seq % REPL_ACK_SLOTS)
			continue;
		if (!found || a.sequence > best.sequence)
			best = a;
		found = true;
	}
	if (found)
		*ret_ack = best;
	return found;
}
