/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_IMAGE_INTERNAL_H
#define KVFS_FS_IMAGE_INTERNAL_H
/*
 * What image.c (marks, captures, tombstones), image_segs.c (segments and their live bytes),
 * image_write.c, image_load.c and image_link.c share. Under the store's lock, except what the
 * writer took over for itself.
 *
 * Where an object is, from its struct image_obj:
 *   not listed                    unknown (new)
 *   seg 0, parity of the image    dirty: next checkpoint
 *   seg 0, the other parity       pending: frozen for the running checkpoint, not yet written
 *   seg IMAGE_SEG_INFLIGHT        its frozen state is with the writer; bytes: index in the batch
 *   other seg                     as that segment got it; frozen too while seg <= clean_upto
 */
#include "fs/store/image_item.h"
#include "fs/store/store_internal.h"

#define IMAGE_SEG_INFLIGHT UINT32_MAX

enum image_kind { IMAGE_INODE = 1, IMAGE_NAME, IMAGE_CHUNK, IMAGE_RANGE };

/* Chunks that are gone, as a tombstone. Inodes and names serve as their own. */
struct image_range {
	struct image_obj img;
	uint64_t ino, first, last;
};

struct image_seg {
	struct cds_list_head objs;
	uint64_t live_bytes;  /* of objs */
	uint64_t total_bytes; /* of all items ever, and what its file takes at least */
};

/* An item on its way to the writer: the head encoded, the rest referenced. */
struct image_out {
	uint8_t type;
	uint32_t head_len;
	uint8_t *head;
	struct store_xattrs *xattrs;
	struct slot *slot;
	uint32_t slot_len;
};

/* The frozen state of an object that has changed since. */
struct image_capture {
	struct cds_list_head node;
	struct image_out out;
	uint8_t head[];
};

struct image {
	struct store *st;
	struct cds_list_head dirty, pending, inflight;
	struct cds_list_head captures;
	struct cds_list_head tombs;       /* for the next checkpoint */
	uint64_t dirty_bytes;             /* sum of the dirty objects' estimates */
	uint64_t pending_bytes;
	unsigned parity;                  /* of dirty objects now */
	/* segments up to here are written again by the running checkpoint */
	uint32_t clean_upto;
	int capture_err;                  /* a capture failed: the running checkpoint must fail */
	bool tomb_lost;                   /* no memory for one: the next checkpoint must be whole */
	struct image_seg **segs;          /* numbers seg_base, seg_base + 1, ... */
	uint32_t seg_base, seg_count, seg_cap;
	uint64_t slack_bytes, budget_bytes;
};

/* image.c */
void image_out_fill(struct image *im, const struct image_obj *obj, uint64_t value_size,
		    struct image_out *out);
void image_out_put(struct image *im, struct image_out *out); /* the references; any lock state */
void image_tomb_free(struct image_obj *obj);
void image_obj_detach(struct image *im, struct image_obj *obj);     /* off its list and accounts */
void image_obj_make_dirty(struct image *im, struct image_obj *obj); /* detached before */
/* with its chunks; no tombstone, no capture */
void image_inode_forget(struct image *im, struct inode *in);
static inline bool image_obj_is_listed(const struct image_obj *obj)
{
	return obj->node.next && obj->node.next != &obj->node;
}

/* image_link.c: the end of loading. -EBADMSG with *ret_why, -ENOMEM. */
int image_link_locked(struct image *im, const struct ckpt_info *info, const char **ret_why);

/* image_segs.c */
/* makes it; -ENOMEM, -EBADMSG */
int image_seg_get(struct image *im, uint64_t number, struct image_seg **ret_seg);
struct image_seg *image_seg_of(struct image *im, uint32_t number); /* exists */
/* The object's newest copy is there now. It is detached. */
void image_seg_add_obj(struct image *im, uint32_t number, struct image_obj *obj, uint32_t bytes);
void image_segs_drop_head(struct image *im, uint32_t upto); /* empty ones, up to this number */
/* leaves count; the others are empty */
void image_segs_drop_tail(struct image *im, uint32_t count);
void image_segs_free(struct image *im);
/* Which segments to clean now (a number to clean up to, 0: none). */
uint32_t image_segs_choose(struct image *im);

#endif
