/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_IMAGE_FORMAT_H
#define KVFS_LOG_IMAGE_FORMAT_H
/*
 * Items of a checkpoint, as the store writes them into segments (log/ckpt.h frames and checksums
 * them). All integers are big-endian, nothing is padded implicitly. A newer item replaces an older
 * one of the same identity: inode (ino), name (parent, text), chunk (ino, idx). A *_GONE item
 * removes what older items said.
 */
#include <assert.h>
#include <stdint.h>

enum image_item_type {
	IMAGE_ITEM_INODE = 1,
	IMAGE_ITEM_NAME = 2,
	IMAGE_ITEM_CHUNK = 3,
	IMAGE_ITEM_INODE_GONE = 4,  /* with its chunks */
	IMAGE_ITEM_NAME_GONE = 5,
	IMAGE_ITEM_CHUNKS_GONE = 6,
	IMAGE_ITEM_TYPE_END
};

/* Then: symlink target, extended attributes (store_internal.h), the inline value's bytes. */
struct image_inode_item {
	uint64_t ino;
	uint64_t parent_ino;   /* directories */
	uint64_t last_lsn;
	uint64_t atime_ns;
	uint64_t mtime_ns;
	uint64_t ctime_ns;
	uint64_t size;         /* regular files: bytes; directories: next cookie */
	uint32_t mode;
	uint32_t uid;
	uint32_t gid;
	uint32_t rdev;
	uint32_t nlink;
	uint32_t gen;
	uint32_t xattr_len;
	uint32_t inline_cap;   /* of the value's only slot; 0: none */
	uint32_t inline_len;   /* its bytes in this item, at most inline_cap */
	uint16_t target_len;
	uint8_t chunked;       /* 1: the value's bytes are in chunk items */
	uint8_t zero;
} __attribute__((packed));
static_assert(sizeof(struct image_inode_item) == 96, "inode item");

/* Then: the name. */
struct image_name_item {
	uint64_t parent_ino;
	uint64_t cookie;       /* NAME_GONE: 0 */
	uint64_t ino;          /* NAME_GONE: 0 */
	uint8_t len;
} __attribute__((packed));
static_assert(sizeof(struct image_name_item) == 25, "name item");

/* Then: the bytes that count under the value's size; the slot's rest is zero. */
struct image_chunk_item {
	uint64_t ino;
	uint64_t idx;
	uint32_t cap;          /* of the slot */
	uint32_t len;
} __attribute__((packed));
static_assert(sizeof(struct image_chunk_item) == 24, "chunk item");

struct image_inode_gone_item {
	uint64_t ino;
} __attribute__((packed));
static_assert(sizeof(struct image_inode_gone_item) == 8, "inode tombstone");

struct image_chunks_gone_item {
	uint64_t ino;
	uint64_t first;
	uint64_t last;         /* inclusive */
} __attribute__((packed));
static_assert(sizeof(struct image_chunks_gone_item) == 24, "chunks tombstone");

#endif
