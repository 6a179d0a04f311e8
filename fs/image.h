/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_IMAGE_H
#define KVFS_FS_IMAGE_H
/*
 * The store's side of checkpoints: an exact image at one LSN, written while changes go on, and its loading.
 *
 * Every object (inode with its value when that is a single slot; name; chunk of a larger value) is on one
 * list: dirty, or that of the segment holding its newest copy. A checkpoint takes over the dirty list (and
 * the lists of the oldest segments when garbage is over half) in O(1) under the store's lock; these objects
 * are pending. A change to a pending object first captures its old state (metadata copied, slots
 * referenced, so the writer copies): never a pause. Removing a persisted object leaves a tombstone for the
 * next checkpoint.
 *
 * Threads: image_write in the checkpoint thread, without the store's lock (it takes it in short slices);
 * the hooks under it.
 */
#include "fs/store.h"
#include "log/ckpt.h"

struct image;

struct image *image_create(struct store *st); /* called by store_create; one per store */
void image_destroy(struct image *im);

/* Marks and captures; used by the store's primitives. New objects: image_dirty alone. */
void image_inode_before(struct image *im, struct inode *in);
void image_inode_dirty(struct image *im, struct inode *in);
void image_inode_gone(struct image *im, struct inode *in);
/* (and the same for names and chunks: see image.c) */

/*
 * Writes a checkpoint of the state at the LSN that is current when it begins. Before the image is frozen it
 * calls freeze under the store's lock with that LSN (the caller may note it). Before commit it calls
 * may_commit without locks: it returns 0 once everything up to the LSN is durable in the log (or an error).
 * Errors of ckpt_*; the objects go back to the dirty list and nothing is lost.
 */
struct image_write_ops {
	void (*frozen)(void *ctx, uint64_t lsn);
	int (*may_commit)(void *ctx, uint64_t lsn);
	void (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes);
};
int image_write(struct image *im, struct ckpt *c, uint64_t epoch, const struct image_write_ops *ops,
		void *ctx, struct ckpt_info *ret_info);

/* Loads a checkpoint into an empty store. -EBADMSG (with a static text), -ENOSPC, -ENOMEM, ckpt errors. */
int image_load(struct image *im, struct ckpt *c, const struct ckpt_info *info,
	       void (*progress)(void *ctx, uint64_t done, uint64_t total), void *ctx, const char **ret_why);

/* Bytes the next checkpoint would write at least (dirty objects). */
uint64_t image_dirty_bytes(struct image *im);

#endif
