/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target for the checkpoint decoders. The first byte chooses the decoder and whether the
 * checksum is put right first, which random bytes would never be. What decodes must keep the
 * decoders' promises. Corpus: tests/fuzz/corpus/ckpt.
 */
#include "common/byteorder.h"
#include "log/ckpt_codec.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t uuid[16] = "0123456789abcde";

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* Each checksum is the last field of a header: [0, at) seeds the sum of what follows it. */
static void checksum_fix(uint8_t *p, size_t at, size_t len)
{
	put_be64(p + at, XXH3_64bits_withSeed(p + at + 8, len - at - 8, XXH3_64bits(p, at)));
}

static void fuzz_manifest(uint8_t *p, size_t len, bool fix)
{
	const size_t at = offsetof(struct ckpt_manifest_header, checksum);
	struct ckpt_manifest m;
	uint64_t bytes = 0;
	uint8_t *again;
	size_t again_len;

	if (fix && len / 2 >= sizeof(struct ckpt_manifest_header)) {
		checksum_fix(p, at, len / 2);
		checksum_fix(p + len / 2, at, len / 2);
	}
	if (ckpt_manifest_decode(p, len, uuid, &m) != 0)
		return;
	for (uint32_t i = 0; i < m.seg_count; i++) {
		must(m.segs[i].seg == m.info.first_seg + i);
		bytes += m.segs[i].bytes;
	}
	must(bytes == m.info.bytes);
	must(m.info.last_seg + 1 == m.info.first_seg + m.seg_count);
	must(ckpt_manifest_encode(&m, uuid, &again, &again_len) == 0);
	must(again_len == len);
	must(memcmp(again, p, len / 2) == 0 || memcmp(again, p + len / 2, len / 2) == 0);
	free(again);
	ckpt_manifest_clear(&m);
}

static void fuzz_block(uint8_t *p, size_t len, bool fix)
{
	struct ckpt_block b;
	uint32_t off = 0, seen = 0, item_len;
	volatile uint8_t sink;
	const uint8_t *item;
	uint8_t type;
	int res;

	if (fix && len >= sizeof(struct ckpt_block_header)) {
		uint32_t payload = get_be32(p + offsetof(struct ckpt_block_header, payload_bytes));

		if (payload <= len - sizeof(struct ckpt_block_header))
			checksum_fix(p, offsetof(struct ckpt_block_header, checksum),
				     sizeof(struct ckpt_block_header) + payload);
	}
	if (ckpt_block_decode(p, len, 1, 0, &b) != 0)
		return;
	must(b.disk_bytes <= len);
	while ((res = ckpt_item_next(&b, &off, &seen, &type, &item, &item_len)) == 1) {
		must(type != 0 && item + item_len <= b.items + b.payload_bytes);
		for (uint32_t i = 0; i < item_len; i++)
			sink = item[i];
	}
	(void)sink;
	must(res != 0 || (seen == b.item_count && off == b.payload_bytes));
}

static void fuzz_seg_header(uint8_t *p, size_t len, bool fix)
{
	if (len < CKPT_PAGE_BYTES)
		return;
	if (fix)
		checksum_fix(p, offsetof(struct ckpt_seg_header, checksum),
			     sizeof(struct ckpt_seg_header));
	(void)ckpt_seg_header_decode(p, uuid, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy;

	if (size < 1)
		return 0;
	copy = malloc(size - 1 ? size - 1 : 1); /* exact, so that ASan sees each overrun */
	must(copy != NULL);
	memcpy(copy, data + 1, size - 1);
	switch (data[0] / 2 % 3) {
	case 0:
		fuzz_manifest(copy, size - 1, data[0] & 1);
		break;
	case 1:
		fuzz_block(copy, size - 1, data[0] & 1);
		break;
	default:
		fuzz_seg_header(copy, size - 1, data[0] & 1);
		break;
	}
	free(copy);
	return 0;
}
