/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_CKPT_FORMAT_H
#define KVFS_LOG_CKPT_FORMAT_H
/*
 * Checkpoint files on media. All integers are big-endian, nothing is padded implicitly.
 *
 *   seg-%016llx:       header page (4096) | block | block | ...
 *   block:             header (32) | items | zeros up to a multiple of 4096
 *   item:              type (1, not 0) | length (3) | payload
 *   manifest-%016llx:  copy | the same copy again; copy: header (112) | one entry (40) per segment
 *
 * A segment says what it is but not where it ends: the manifest that names it holds its length,
 * number of blocks and a checksum chained over its blocks, so a stale or foreign file never passes
 * for it. The manifest is doubled because the log is rewound once it stands: one bad sector in it
 * must not cost the checkpoint.
 *
 * Checksums are XXH3-64. Each is the last field of its header; it sums what follows, seeded with
 * the sum of what is before it.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define CKPT_FORMAT_VERSION 1
#define CKPT_PAGE_BYTES 4096U
/* Room for the segment's header page, a block header and the largest item. */
#define CKPT_BLOCK_BYTES_MAX ((1U << 20) + (64U << 10))
#define CKPT_ITEM_HEADER_BYTES 4
#define CKPT_SEGS_MAX (1U << 20) /* of one manifest */

#define CKPT_SEG_MAGIC 0x4b5646535345474dULL      /* "KVFSSEGM" */
#define CKPT_MANIFEST_MAGIC 0x4b5646534d414e49ULL /* "KVFSMANI" */
#define CKPT_BLOCK_MAGIC 0x4b56424bU              /* "KVBK" */

struct ckpt_seg_header {
	uint64_t magic;
	uint32_t version;
	uint32_t feature_incompat; /* an unknown bit refuses the file; none defined yet */
	uint8_t uuid[16];          /* volume */
	uint64_t seg;
	uint64_t number;           /* of the checkpoint that wrote it */
	uint64_t checksum;         /* of this header */
} __attribute__((packed));
static_assert(sizeof(struct ckpt_seg_header) == 56, "segment header");
static_assert(offsetof(struct ckpt_seg_header, checksum) == 48, "segment header checksum");

struct ckpt_block_header {
	uint32_t magic;
	/* items with their headers; the block is padded to whole pages */
	uint32_t payload_bytes;
	uint32_t item_count;
	uint32_t sequence;         /* in its segment, from 0 */
	uint64_t seg;
	uint64_t checksum;         /* of header and items */
} __attribute__((packed));
static_assert(sizeof(struct ckpt_block_header) == 32, "block header");
static_assert(offsetof(struct ckpt_block_header, checksum) == 24, "block header checksum");

struct ckpt_manifest_header {
	uint64_t magic;
	uint32_t version;
	uint32_t feature_incompat;
	uint8_t uuid[16];
	uint64_t number;
	uint64_t lsn;
	uint64_t epoch;
	uint64_t first_seg;
	uint64_t last_seg;
	uint64_t bytes;            /* of all segments */
	uint64_t time_ns;
	uint64_t next_ino;
	uint32_t seg_count;
	uint32_t zero;
	uint64_t checksum;         /* of the whole copy */
} __attribute__((packed));
static_assert(sizeof(struct ckpt_manifest_header) == 112, "manifest header");
static_assert(offsetof(struct ckpt_manifest_header, checksum) == 104, "manifest header checksum");

struct ckpt_manifest_entry {
	uint64_t seg;
	uint64_t bytes;            /* the file's exact length */
	uint64_t item_count;
	uint64_t checksum;         /* see ckpt_seg_chain */
	uint32_t block_count;
	uint32_t zero;
} __attribute__((packed));
static_assert(sizeof(struct ckpt_manifest_entry) == 40, "manifest entry");

static_assert(CKPT_BLOCK_BYTES_MAX % CKPT_PAGE_BYTES == 0, "blocks are whole pages");

#endif
