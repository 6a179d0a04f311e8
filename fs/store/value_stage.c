/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a write that needs no lock: copying the caller's bytes into slots,
 * with their checksum. */
#include "fs/store/value_edit.h"

#include "common/crc32c.h"
#include "log/record_format.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static_assert(VALUE_STAGE_SLOTS == RECORD_DATA_MAX / VALUE_CHUNK_BYTES + 1,
	      "every chunk of a WRITE has a place");

/* Copied, then checksummed, so that the second reading hits the cache. */
#define STAGE_PIECE_BYTES 8192U

static uint32_t copy_crc(uint32_t crc, uint8_t *dst, const uint8_t *src, size_t len)
{
	while (len > 0) {
		size_t piece = len < STAGE_PIECE_BYTES ? len : STAGE_PIECE_BYTES;

		memcpy(dst, src, piece);
		crc = crc32c(crc, src, piece);
		dst += piece;
		src += piece;
		len -= piece;
	}
	return crc;
}

void value_stage_free(struct slab *s, struct value_stage *stage)
{
	if (!stage)
		return;
	for (unsigned i = 0; i < VALUE_STAGE_SLOTS; i++)
		slot_put(s, stage->slot[i]);
	free(stage);
}

int value_stage(struct slab *s, uint64_t off, const void *src, size_t len, uint64_t old_size,
		struct value_stage **ret_stage, uint32_t *ret_crc)
{
	uint64_t new_size = off + len > old_size ? off + len : old_size;
	const uint8_t *p = src;
	struct value_stage *stage;
	uint32_t crc = 0;

	if (len == 0 || len > RECORD_DATA_MAX)
		return -EINVAL;
	if (off > VALUE_SIZE_MAX || len > VALUE_SIZE_MAX - off)
		return -EFBIG;
	stage = calloc(1, sizeof(*stage));
	if (!stage)
		return -ENOMEM;
	stage->off = off;
	stage->len = len;
	for (uint64_t pos = off; pos < off + len;) {
		uint64_t idx = pos / VALUE_CHUNK_BYTES;
		uint32_t from = (uint32_t)(pos % VALUE_CHUNK_BYTES);
		size_t n = VALUE_CHUNK_BYTES - from;
		struct slot *slot = NULL;

		if (n > off + len - pos)
			n = off + len - pos;
		if (from == 0 && n >= value_valid_bytes(new_size, idx))
			(void)slab_alloc(s, n, &slot); /* without it value_write works in place */
		crc = slot ? copy_crc(crc, slot->data, p, n) : crc32c(crc, p, n);
		stage->slot[idx - off / VALUE_CHUNK_BYTES] = slot;
		p += n;
		pos += n;
	}
	*ret_stage = stage;
	*ret_crc = crc;
	return 0;
}
