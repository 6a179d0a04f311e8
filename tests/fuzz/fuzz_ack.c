/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target for the acknowledgement slots: the input is written over the primary's window as a
 * peer could, then searched from several sequence numbers. An odd first byte puts the checksum of
 * each slot right.
 * Corpus: tests/fuzz/corpus/ack.
 */
#include "common/byteorder.h"
#include "common/crc32c.h"
#include "replication/ack.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
	if (!holds)
		abort();
}

static void checksum_fix(uint8_t *slot)
{
	put_be32(slot + offsetof(struct repl_ack, checksum), 0);
	put_be32(slot + offsetof(struct repl_ack, checksum),
		 crc32c(0, slot, sizeof(struct repl_ack)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t window[REPL_ACK_WINDOW_BYTES];
	static const uint64_t starts[] = { 0, 1, 31, 32, 1000, UINT64_MAX - 40, UINT64_MAX };
	struct ack a;

	if (size == 0)
		return 0;
	memset(window, 0, sizeof(window));
	memcpy(window, data + 1, size - 1 < sizeof(window) ? size - 1 : sizeof(window));
	for (unsigned i = 0; data[0] % 2 && i < REPL_ACK_SLOTS; i++)
		checksum_fix(window + i * REPL_ACK_SLOT_BYTES);
	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
		if (!ack_scan(window, starts[i], &a))
			continue;
		must(a.sequence != 0 && a.durable_lsn <= a.received_lsn &&
		     a.applied_lsn <= a.durable_lsn);
		must(starts[i] > UINT64_MAX - 64 || a.sequence > starts[i]);
	}
	if (ack_decode(window, size - 1 < sizeof(window) ? size - 1 : sizeof(window), &a) == 0) {
		uint8_t again[sizeof(struct repl_ack)];

		ack_encode(&a, again);
		must(memcmp(again, window, sizeof(again)) == 0);
	}
	return 0;
}
