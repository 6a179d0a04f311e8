/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_IMAGE_H
#define KVFS_FS_IMAGE_H
/*
 * The store's side of checkpoints: an exact image at one LSN, written while changes go on, and its
 * loading.
 *
 * Every object (inode with its value when that is a single slot; name; chunk of a larger value) is
 * on one list: dirty, or that of the segment holding its newest copy. A checkpoint takes over the
 * dirty list (and the lists of the oldest segments when garbage is over half) in O(1) under the
 * store's lock; these objects are pending. A change to a pending object first captures its old
 * state (metadata copied, slots referenced, so the writer copies): never a pause. Removing a
 * persisted object leaves a tombstone for the next checkpoint.
 *
 * Threads: image_write in the checkpoint thread, without the store's lock (it takes it in short
 * slices); the hooks under it.
 */
#include "fs/store/store.h"
#include "log/ckpt.h"

struct image;
struct name;

/* called by store_create; one per store. NULL: no memory */
struct image *image_create(struct store *st);
void image_destroy(struct image *im);         /* before the objects are freed; NULL is fine */
struct image *store_image(struct store *st);  /* fs/store/store.c */

/*
 * Marks, under the store's lock. touch: before each change of an object (attributes, inline value,
 * what a name refers to), and once when it is new. gone: before it is taken apart; true: the image
 * keeps the struct itself (as a tombstone) and frees it later, else the caller frees it. An inode
 * takes its chunks along.
 */
void image_inode_touch(struct image *im, struct inode *in);
bool image_inode_gone(struct image *im, struct inode *in);
void image_name_touch(struct image *im, struct name *n);
bool image_name_gone(struct image *im, struct name *n);
/* The inode's value may have changed its size: renews the estimate of what the next checkpoint
 * writes. */
void image_inode_resized(struct image *im, struct inode *in);

/* The hook through which in's value tells of its chunks; lives on the caller's stack for one
 * operation. */
struct image_value_hook {
	struct value_hook hook;
	struct image *im;
	struct inode *in;
	uint64_t size; /* before the operation */
};
void image_value_hook_init(struct image_value_hook *h, struct image *im, struct inode *in);

/*
 * Writes a checkpoint of the state at the LSN that is current when it begins. Before the image is
 * frozen it calls freeze under the store's lock with that LSN (the caller may note it). Before
 * commit it calls may_commit without locks: it returns 0 once everything up to the LSN is durable
 * in the log (or an error). progress is called without locks after each batch of some thirty
 * objects. ops, and each member, may be NULL. Errors of ckpt_*; the objects go back to the dirty
 * list and nothing is lost.
 */
struct image_write_ops {
	void (*frozen)(void *ctx, uint64_t lsn);
	int (*may_commit)(void *ctx, uint64_t lsn);
	void (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes);
};
int image_write(struct image *im, struct ckpt *c, uint64_t epoch, const struct image_write_ops *ops,
		void *ctx, struct ckpt_info *ret_info);

/* Loads a checkpoint into an empty store. progress is called after each block, and what it returns
 * but 0 ends the load; NULL: none. -EBADMSG (with a static text), -ENOSPC, -ENOMEM, ckpt errors,
 * progress's. After an error the store holds part of it, and can only be destroyed. */
int image_load(struct image *im, struct ckpt *c, const struct ckpt_info *info,
	       int (*progress)(void *ctx, uint64_t done, uint64_t total), void *ctx,
	       const char **ret_why);

/* Bytes the next checkpoint would write at least (dirty objects). Takes the store's lock. */
uint64_t image_dirty_bytes(struct image *im);

/*
 * When to clean: segments hold more than twice the live bytes and slack_bytes; at most about
 * budget_bytes (or as much as is dirty, if that is more) of old live objects are written again per
 * checkpoint. Default 64 MiB each.
 */
void image_set_limits(struct image *im, uint64_t slack_bytes, uint64_t budget_bytes);

#endif
