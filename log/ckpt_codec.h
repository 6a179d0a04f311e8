/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_CKPT_CODEC_H
#define KVFS_LOG_CKPT_CODEC_H
/*
 * Checkpoint formats between bytes and structs: pure functions over buffers. The decoders trust
 * nothing in their input; the fuzz target drives them directly. Any thread.
 */
#include "log/ckpt.h"
#include "log/ckpt_format.h"

/* One segment as its manifest describes it. */
struct ckpt_seg {
	uint64_t seg, bytes, item_count, checksum;
	uint32_t block_count;
};

struct ckpt_manifest {
	struct ckpt_info info;
	struct ckpt_seg *segs; /* seg_count of them, numbers going up by one; owned */
	uint32_t seg_count;
};

void ckpt_manifest_clear(struct ckpt_manifest *m);

/* Whole file, both copies, in memory the caller frees. -ENOMEM. */
int ckpt_manifest_encode(const struct ckpt_manifest *m, const uint8_t uuid[16], uint8_t **ret_data,
			 size_t *ret_len);

/*
 * The first copy that is sound. -EBADMSG: neither is, or of another volume. -EPROTONOSUPPORT:
 * written by a newer kvfs. -ENOMEM. On success ckpt_manifest_clear the result.
 */
int ckpt_manifest_decode(const uint8_t *data, size_t len, const uint8_t uuid[16],
			 struct ckpt_manifest *ret_m);

/* A segment's header page. decode: -EBADMSG, -EPROTONOSUPPORT. */
void ckpt_seg_header_encode(uint8_t page[CKPT_PAGE_BYTES], const uint8_t uuid[16], uint64_t seg,
			    uint64_t number);
int ckpt_seg_header_decode(const uint8_t *page, const uint8_t uuid[16], uint64_t seg);

/* Checksum of a segment: begin with chain = seg, pass each block's checksum in order. */
uint64_t ckpt_seg_chain(uint64_t chain, uint64_t block_checksum);

struct ckpt_block {
	const uint8_t *items;  /* payload_bytes */
	uint32_t payload_bytes;
	uint32_t item_count;
	uint32_t disk_bytes;   /* with header and padding */
	uint64_t checksum;
};

/* Bytes that a block with this payload takes on media. */
static inline uint32_t ckpt_block_disk_bytes(uint32_t payload_bytes)
{
	return (uint32_t)((sizeof(struct ckpt_block_header) + payload_bytes + CKPT_PAGE_BYTES - 1) &
			  ~(CKPT_PAGE_BYTES - 1));
}

/*
 * Finishes the block at p: header before the payload_bytes that stand there already, zeros behind.
 * p has room for ckpt_block_disk_bytes. Returns the checksum.
 */
uint64_t ckpt_block_seal(uint8_t *p, uint64_t seg, uint32_t sequence, uint32_t payload_bytes,
			 uint32_t item_count);

/*
 * The block that begins at p, of which avail bytes are in memory. -ENODATA: sound so far, but more
 * bytes are needed. -EBADMSG: not block number sequence of segment seg, or damaged.
 */
int ckpt_block_decode(const uint8_t *p, size_t avail, uint64_t seg, uint32_t sequence,
		      struct ckpt_block *ret_block);

/* An item's header, in place. */
static inline void ckpt_item_header_put(uint8_t *p, uint8_t type, uint32_t len)
{
	p[0] = type;
	p[1] = (uint8_t)(len >> 16);
	p[2] = (uint8_t)(len >> 8);
	p[3] = (uint8_t)len;
}

/*
 * The item at *off of the block's payload; moves *off behind it. 1: an item; 0: the end, and
 * item_count items have been seen; -EBADMSG. Begin with *off = *seen = 0.
 */
int ckpt_item_next(const struct ckpt_block *b, uint32_t *off, uint32_t *seen, uint8_t *ret_type,
		   const uint8_t **ret_data, uint32_t *ret_len);

#endif
