/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target for the file of the tuner's model and the samples in it: the input, after its first
 * byte, is the file. An odd first byte puts version, schema, kind, length and checksum right.
 * Corpus: tests/fuzz/corpus/model.
 */
#include "common/byteorder.h"
#include "common/crc32c.h"
#include "tuner/model_file.h"
#include "tuner/samples.h"
#include "tuner/window_features.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
	if (!holds)
		abort();
}

static void put_right(uint8_t *file, size_t len, struct model_file_kind kind)
{
	memcpy(file, "KVFSTUNE", 8);
	put_be32(file + 8, MODEL_FILE_VERSION);
	put_be32(file + 12, TUNER_SCHEMA);
	put_be32(file + 16, kind.columns);
	put_be32(file + 20, (uint32_t)(len - MODEL_FILE_HEADER_BYTES));
	put_be32(file + 28, kind.conditions);
	put_be32(file + 24, crc32c(crc32c(0, file, 24), file + 28, len - 28));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t again[SAMPLES_BYTES_MAX];
	static struct samples s;
	const struct model_file_kind kind = { .columns = 7, .conditions = 9 };
	const uint8_t *payload;
	const char *why = NULL;
	uint8_t *file;
	size_t len;

	if (size < 2)
		return 0;
	file = malloc(size - 1); /* its own, so that a read beyond it shows */
	must(file != NULL);
	memcpy(file, data + 1, size - 1);
	if (data[0] % 2 && size - 1 >= MODEL_FILE_HEADER_BYTES)
		put_right(file, size - 1, kind);
	if (model_file_decode(file, size - 1, kind, &payload, &len, &why) != 0) {
		must(why != NULL);
	} else if (samples_decode(&s, payload, len) == 0) {
		must(s.n <= SAMPLES_MAX);
		must(samples_encode(&s, again) == len);
	}
	free(file);
	return 0;
}
