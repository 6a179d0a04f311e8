/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target for what primary and mirror say when lanes are made anew. The first byte chooses
 * which, the second how many lanes the session has; an odd third puts an acknowledgement's checksum
 * right. Corpus: tests/fuzz/corpus/lanes.
 */
#include "common/byteorder.h"
#include "common/crc32c.h"
#include "replication/lanes.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
	if (!holds)
		abort();
}

static void check(uint64_t dead, uint32_t generation, unsigned lanes)
{
	must(dead != 0 && (dead & ~lanes_all(lanes)) == 0 && generation != 0);
}

static void lost(const uint8_t *p, size_t len, unsigned lanes)
{
	struct repl_lanes_lost again;
	struct lanes_lost l;

	if (lanes_lost_decode(p, len, lanes, &l) != 0)
		return;
	must(len == sizeof(again));
	check(l.lanes, l.generation, lanes);
	lanes_lost_encode(&l, &again);
	must(memcmp(&again, p, len) == 0);
}

static void ready(uint8_t *p, size_t len, unsigned lanes, bool sum)
{
	uint8_t *ack = p + offsetof(struct repl_lanes_ready, ack);
	uint8_t *at = ack + offsetof(struct repl_ack, checksum);
	struct repl_lanes_ready again;
	struct lanes_ready r;

	if (len == sizeof(again) && sum) {
		put_be32(at, 0);
		put_be32(at, crc32c(0, ack, sizeof(struct repl_ack)));
	}
	if (lanes_ready_decode(p, len, lanes, &r) != 0)
		return;
	must(len == sizeof(again));
	check(r.lanes, r.generation, lanes);
	must(r.ring_pos >= r.ack.ring_freed && r.ack.durable_lsn <= r.ack.received_lsn &&
	     r.ack.applied_lsn <= r.ack.durable_lsn && r.ack.sequence > 0);
	lanes_ready_encode(&r, &again);
	must(memcmp(&again, p, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned lanes;
	uint8_t *p;

	if (size < 3)
		return 0;
	lanes = 1 + data[1] % REPL_LANES_MAX;
	/* memory of just its size: what is read beyond is seen */
	p = malloc(size - 3 ? size - 3 : 1);
	must(p != NULL);
	memcpy(p, data + 3, size - 3);
	if (data[0] % 2)
		ready(p, size - 3, lanes, data[2] % 2);
	else
		lost(p, size - 3, lanes);
	free(p);
	return 0;
}
