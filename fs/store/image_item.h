/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_IMAGE_ITEM_H
#define KVFS_FS_IMAGE_ITEM_H
/* Checkpoint items in host form: encode and decode. Pure functions; any thread. */
#include "log/image_format.h"

#include <stdbool.h>
#include <stddef.h>

/* An item; pointers lead into what was decoded, or to what will be encoded. */
struct image_item {
	enum image_item_type type;
	uint64_t ino;                 /* not of NAME_GONE */
	uint64_t parent_ino;          /* inodes, names */
	uint64_t cookie;              /* NAME; INODE of a directory: its next cookie */
	uint64_t last_lsn, atime_ns, mtime_ns, ctime_ns, size;
	uint32_t mode, uid, gid, rdev, nlink, gen;
	bool chunked;
	uint64_t first, last;         /* CHUNK: idx in first; CHUNKS_GONE: both */
	uint32_t cap;                 /* of the inline slot or the chunk's */
	const void *text;             /* symlink target or name */
	uint32_t text_len;
	const void *xattrs;
	uint32_t xattr_len;
	const void *bytes;            /* inline value or chunk */
	uint32_t bytes_len;
};

/* Everything but xattrs and bytes, which follow it in this order. */
#define IMAGE_HEAD_MAX (sizeof(struct image_inode_item) + 4095)
size_t image_item_encode_head(const struct image_item *it, uint8_t out[IMAGE_HEAD_MAX]);

/* Checks and decodes an item. -EBADMSG: anything about it is invalid. */
int image_item_decode(uint8_t type, const void *data, size_t len, struct image_item *ret_item);

#endif
