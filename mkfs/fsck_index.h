/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_MKFS_FSCK_INDEX_H
#define KVFS_MKFS_FSCK_INDEX_H
/*
 * The index a checkpoint holds: inodes, names, and which inodes have chunks. Items are collected as
 * they come (fsck_items.c); at the end the last of each identity counts, and all are checked
 * against each other (fsck_index.c). Memory: about 64 bytes an inode and 72 a name. One thread.
 */
#include "mkfs/fsck_internal.h"

#include <stddef.h>

struct index_inode {
	uint64_t ino, order;
	uint64_t parent_ino;  /* directories */
	uint64_t next_cookie; /* directories */
	uint64_t seg;
	uint32_t mode, nlink;
	uint32_t names, subdirs; /* counted */
	bool gone;
};

struct index_name {
	uint64_t parent_ino, hash_high, hash_low, order;
	uint64_t ino, cookie, seg;
	bool gone;
};

struct index_chunks { /* some chunks of the inode, the last of them at order */
	uint64_t ino, order, seg;
};

struct index_list {
	void *items;
	size_t count, cap, item_bytes;
};

struct fsck_index {
	struct index_list inodes, names, chunks;
	uint64_t order;    /* items so far */
	const char *why;   /* an item was not valid */
	uint64_t why_seg;
};

void fsck_index_init(struct fsck_index *x);
void fsck_index_clear(struct fsck_index *x);

/* Adds one item. -EBADMSG with why set; -ENOMEM. */
int fsck_index_add(struct fsck_index *x, uint64_t seg, uint8_t type, const uint8_t *data,
		   size_t len);

/* Checks all; each fault is a detail of the checkpoint's. Returns the number of faults. */
unsigned fsck_index_check(struct fsck *f, struct fsck_index *x, const struct ckpt_info *info);

#endif
