/* SPDX-License-Identifier: Apache-2.0 */
/* Segment headers, blocks and items between bytes and structs. Pure; layout in ckpt_format.h. */
#include "log/ckpt_codec.h"

#include "common/byteorder.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

static bool is_zero(const uint8_t *p, size_t len)
{
	/* Equal to itself shifted by one, and its first byte is zero. */
	return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

static uint64_t seg_header_checksum(const struct ckpt_seg_header *h)
{
	uint64_t seed = XXH3_64bits(h, offsetof(struct ckpt_seg_header, checksum));

	return XXH3_64bits_withSeed(h, 0, seed);
}

void ckpt_seg_header_encode(uint8_t page[CKPT_PAGE_BYTES], const uint8_t uuid[16], uint64_t seg,
			    uint64_t number)
{
	struct ckpt_seg_header *h = (void *)page;

	memset(page, 0, CKPT_PAGE_BYTES);
	put_be64(&h->magic, CKPT_SEG_MAGIC);
	put_be32(&h->version, CKPT_FORMAT_VERSION);
	memcpy(h->uuid, uuid, sizeof(h->uuid));
	put_be64(&h->seg, seg);
	put_be64(&h->number, number);
	put_be64(&h->checksum, seg_header_checksum(h));
}

int ckpt_seg_header_decode(const uint8_t *page, const uint8_t uuid[16], uint64_t seg)
{
	const struct ckpt_seg_header *h = (const void *)page;

	if (get_be64(&h->magic) != CKPT_SEG_MAGIC ||
	    get_be64(&h->checksum) != seg_header_checksum(h))
		return -EBADMSG;
	if (get_be32(&h->version) != CKPT_FORMAT_VERSION || get_be32(&h->feature_incompat) != 0)
		return -EPROTONOSUPPORT;
	if (memcmp(h->uuid, uuid, sizeof(h->uuid)) != 0 || get_be64(&h->seg) != seg ||
	    !is_zero(page + sizeof(*h), CKPT_PAGE_BYTES - sizeof(*h)))
		return -EBADMSG;
	return 0;
}

uint64_t ckpt_seg_chain(uint64_t chain, uint64_t block_checksum)
{
	uint8_t be[8];

	put_be64(be, block_checksum);
	return XXH3_64bits_withSeed(be, sizeof(be), chain);
}

static uint64_t block_checksum(const uint8_t *p, uint32_t payload_bytes)
{
	const size_t at = offsetof(struct ckpt_block_header, checksum);
	uint64_t seed = XXH3_64bits(p, at);

	return XXH3_64bits_withSeed(p + sizeof(struct ckpt_block_header), payload_bytes, seed);
}

uint64_t ckpt_block_seal(uint8_t *p, uint64_t seg, uint32_t sequence, uint32_t payload_bytes,
			 uint32_t item_count)
{
	struct ckpt_block_header *h = (void *)p;
	size_t used = sizeof(*h) + payload_bytes;
	uint64_t checksum;

	put_be32(&h->magic, CKPT_BLOCK_MAGIC);
	put_be32(&h->payload_bytes, payload_bytes);
	put_be32(&h->item_count, item_count);
	put_be32(&h->sequence, sequence);
	put_be64(&h->seg, seg);
	checksum = block_checksum(p, payload_bytes);
	put_be64(&h->checksum, checksum);
	memset(p + used, 0, ckpt_block_disk_bytes(payload_bytes) - used);
	return checksum;
}

int ckpt_block_decode(const uint8_t *p, size_t avail, uint64_t seg, uint32_t sequence,
		      struct ckpt_block *ret_block)
{
	const struct ckpt_block_header *h = (const void *)p;
	struct ckpt_block b;
	size_t used;

	if (avail < sizeof(*h))
		return -ENODATA;
	if (get_be32(&h->magic) != CKPT_BLOCK_MAGIC || get_be64(&h->seg) != seg ||
	    get_be32(&h->sequence) != sequence)
		return -EBADMSG;
	b.payload_bytes = get_be32(&h->payload_bytes);
	b.item_count = get_be32(&h->item_count);
	if (b.payload_bytes > CKPT_BLOCK_BYTES_MAX - sizeof(*h) || b.item_count == 0 ||
	    b.item_count > b.payload_bytes / CKPT_ITEM_HEADER_BYTES)
		return -EBADMSG;
	used = sizeof(*h) + b.payload_bytes;
	b.disk_bytes = ckpt_block_disk_bytes(b.payload_bytes);
	if (avail < b.disk_bytes)
		return -ENODATA;
	b.items = p + sizeof(*h);
	b.checksum = get_be64(&h->checksum);
	if (b.checksum != block_checksum(p, b.payload_bytes) ||
	    !is_zero(p + used, b.disk_bytes - used))
		return -EBADMSG;
	*ret_block = b;
	return 0;
}

int ckpt_item_next(const struct ckpt_block *b, uint32_t *off, uint32_t *seen, uint8_t *ret_type,
		   const uint8_t **ret_data, uint32_t *ret_len)
{
	const uint8_t *p = b->items + *off;
	uint32_t left = b->payload_bytes - *off;
	uint32_t len;

	if (left == 0)
		return *seen == b->item_count ? 0 : -EBADMSG;
	if (left < CKPT_ITEM_HEADER_BYTES)
		return -EBADMSG;
	len = (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
	if (p[0] == 0 || len > CKPT_ITEM_BYTES_MAX || len > left - CKPT_ITEM_HEADER_BYTES ||
	    *seen == b->item_count)
		return -EBADMSG;
	*off += CKPT_ITEM_HEADER_BYTES + len;
	*seen += 1;
	*ret_type = p[0];
	*ret_data = p + CKPT_ITEM_HEADER_BYTES;
	*ret_len = len;
	return 1;
}
