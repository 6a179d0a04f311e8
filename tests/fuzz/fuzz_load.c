/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target for a mirror's load: the input, after its first byte, is what came. An odd first byte
 * puts the checksum right. Corpus: tests/fuzz/corpus/load.
 */
#include "common/byteorder.h"
#include "common/crc32c.h"
#include "replication/load.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t in[sizeof(struct repl_load)], again[sizeof(in)];
	uint8_t *sum = in + offsetof(struct repl_load, checksum);
	struct load l;

	if (size == 0)
		return 0;
	if (size - 1 != sizeof(in)) {
		must(load_decode(data + 1, size - 1, &l) != 0);
		return 0;
	}
	memcpy(in, data + 1, sizeof(in));
	if (data[0] % 2) {
		put_be32(sum, 0);
		put_be32(sum, crc32c(0, in, sizeof(in)));
	}
	if (load_decode(in, sizeof(in), &l) != 0)
		return 0;
	must(l.sequence > 0 && l.cpu_permille <= LOAD_PERMILLE_MAX && l.log_permille <= 1000 &&
	     l.ring_permille <= 1000 && l.period_ms > 0);
	load_encode(&l, again);
	must(memcmp(again, in, sizeof(in)) == 0);
	return 0;
}
