/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a checkpoint: freeze, tombstones, then batches of objects, each batch taken under the lock
 * in one short hold (heads encoded, slots referenced) and written outside it. The next hold settles
 * the batch: objects that have not changed meanwhile move to the list of the segment that got them.
 * After an error everything that this checkpoint took goes back to the dirty list, in slices too.
 */
#include "fs/store/image_internal.h"

#include "common/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_ITEMS 32
#define HOLD_NS (20 * NSEC_PER_USEC)

struct writer {
	struct image *im;
	struct ckpt_writer *w;
	const struct image_write_ops *ops;
	void *ctx;
	uint64_t lsn, next_ino;
	struct cds_list_head tombs;    /* of this checkpoint */
	bool tomb_lost;                /* it does without one, and so needs all of the image */
	uint32_t old_segs;             /* seg_count before it */
	uint64_t first_seg;            /* the first one it made */
	uint64_t total_bytes, done_bytes;
	unsigned count;                /* the batch */
	struct image_out out[BATCH_ITEMS];
	struct image_capture *capture[BATCH_ITEMS]; /* where out comes from one */
	uint64_t seg[BATCH_ITEMS];
	uint32_t bytes[BATCH_ITEMS];
	uint8_t heads[BATCH_ITEMS][IMAGE_HEAD_MAX];
};

static void freeze(struct writer *x)
{
	struct image *im = x->im;

	store_lock(im->st);
	assert(cds_list_empty(&im->pending) && cds_list_empty(&im->inflight) && !im->clean_upto);
	x->lsn = im->st->lsn;
	x->next_ino = im->st->next_ino;
	im->clean_upto = image_segs_choose(im);
	x->tomb_lost = im->tomb_lost;
	im->tomb_lost = false;
	im->capture_err = 0;
	x->total_bytes = im->dirty_bytes;
	for (uint32_t i = 0; i < im->seg_count && im->seg_base + i <= im->clean_upto; i++)
		x->total_bytes += im->segs[i]->live_bytes;
	cds_list_splice(&im->dirty, &im->pending);
	CDS_INIT_LIST_HEAD(&im->dirty);
	im->pending_bytes = im->dirty_bytes;
	im->dirty_bytes = 0;
	im->parity ^= 1;
	cds_list_splice(&im->tombs, &x->tombs);
	CDS_INIT_LIST_HEAD(&im->tombs);
	x->old_segs = im->seg_count;
	if (x->ops && x->ops->frozen)
		x->ops->frozen(x->ctx, x->lsn);
	store_unlock(im->st);
}

static void report_progress(struct writer *x)
{
	if (!x->ops || !x->ops->progress)
		return;
	x->ops->progress(x->ctx, x->done_bytes,
			 x->total_bytes > x->done_bytes ? x->total_bytes : x->done_bytes);
}

/* Accounts bytes that are garbage from the start (tombstones, changed objects) or not. */
static int account(struct image *im, uint64_t seg, uint32_t bytes)
{
	struct image_seg *s;
	int err = image_seg_get(im, seg, &s);

	if (!err)
		s->total_bytes += bytes;
	return err;
}

static size_t encode_tomb(const struct image_obj *obj, uint8_t *head, uint8_t *ret_type)
{
	struct image_item it = { 0 };

	if (obj->kind == IMAGE_INODE) {
		it.type = IMAGE_ITEM_INODE_GONE;
		it.ino = caa_container_of(obj, struct inode, img)->ino;
	} else if (obj->kind == IMAGE_NAME) {
		const struct name *n = caa_container_of(obj, struct name, img);

		it.type = IMAGE_ITEM_NAME_GONE;
		it.parent_ino = n->parent_ino;
		it.text = n->text;
		it.text_len = n->len;
	} else {
		const struct image_range *g = caa_container_of(obj, struct image_range, img);

		it.type = IMAGE_ITEM_CHUNKS_GONE;
		it.ino = g->ino;
		it.first = g->first;
		it.last = g->last;
	}
	*ret_type = (uint8_t)it.type;
	return image_item_encode_head(&it, head);
}

/* The tombstones are the writer's alone: no lock but for the account. */
static int write_tombs(struct writer *x)
{
	struct image_obj *obj;

	cds_list_for_each_entry(obj, &x->tombs, node) {
		struct iovec iov = { .iov_base = x->heads[0] };
		uint32_t bytes;
		uint64_t seg;
		uint8_t type;
		int err;

		iov.iov_len = encode_tomb(obj, x->heads[0], &type);
		err = ckpt_writer_add(x->w, type, &iov, 1, &seg, &bytes);
		if (err)
			return err;
		store_lock(x->im->st);
		err = account(x->im, seg, bytes);
		store_unlock(x->im->st);
		if (err)
			return err;
		x->done_bytes += bytes;
	}
	return 0;
}

/* The written batch's objects that are still as they were now live in the segments
 * that got them. */
static int settle_locked(struct writer *x)
{
	struct image *im = x->im;
	struct image_obj *obj, *next;

	for (unsigned i = 0; i < x->count; i++) {
		int err = account(im, x->seg[i], x->bytes[i]);

		if (err)
			return err;
		x->done_bytes += x->bytes[i];
	}
	cds_list_for_each_entry_safe(obj, next, &im->inflight, node) {
		unsigned i = obj->bytes;

		image_obj_detach(im, obj);
		image_seg_add_obj(im, (uint32_t)x->seg[i], obj, x->bytes[i]);
	}
	return 0;
}

static void take_capture(struct writer *x, struct image_capture *cap)
{
	cds_list_del(&cap->node);
	x->capture[x->count] = cap;
	x->out[x->count++] = cap->out;
}

static void take_obj(struct writer *x, struct image_obj *obj)
{
	struct image *im = x->im;
	struct image_out *out = &x->out[x->count];
	uint64_t size = 0;

	if (obj->kind == IMAGE_CHUNK) {
		uint64_t ino = caa_container_of(obj, struct value_chunk, img)->ino;

		size = store_inode_locked(im->st, ino)->u.value.size;
	} else if (obj->kind == IMAGE_INODE) {
		const struct inode *in = caa_container_of(obj, struct inode, img);

		size = S_ISREG(in->mode) ? in->u.value.size : 0;
	}
	out->head = x->heads[x->count];
	image_out_fill(im, obj, size, out);
	image_obj_detach(im, obj);
	obj->seg = IMAGE_SEG_INFLIGHT;
	obj->bytes = x->count;
	obj->persisted = 1;
	cds_list_add_tail(&obj->node, &im->inflight);
	x->capture[x->count++] = NULL;
}

/* An object that is frozen and not yet taken; NULL: none. */
static struct image_obj *next_frozen(struct image *im)
{
	if (!cds_list_empty(&im->pending))
		return cds_list_first_entry(&im->pending, struct image_obj, node);
	for (uint32_t i = 0; i < im->seg_count && im->seg_base + i <= im->clean_upto; i++)
		if (!cds_list_empty(&im->segs[i]->objs))
			return cds_list_first_entry(&im->segs[i]->objs, struct image_obj, node);
	return NULL;
}

/* Settles the batch written before and takes the next; its count is 0 when all is written. */
static int next_batch(struct writer *x)
{
	struct image *im = x->im;
	uint64_t start_ns = clock_mono_ns();
	int err;

	store_lock(im->st);
	err = settle_locked(x);
	x->count = 0;
	if (!err)
		err = im->capture_err;
	while (!err && x->count < BATCH_ITEMS) {
		struct image_obj *obj;

		if (!cds_list_empty(&im->captures)) {
			take_capture(x, cds_list_first_entry(&im->captures, struct image_capture,
							     node));
			continue;
		}
		obj = next_frozen(im);
		if (!obj)
			break;
		take_obj(x, obj);
		if (x->count % 8 == 0 && clock_mono_ns() - start_ns > HOLD_NS)
			break;
	}
	store_unlock(im->st);
	return err;
}

static int write_one(struct writer *x, unsigned i)
{
	const struct image_out *out = &x->out[i];
	struct iovec iov[3] = { { out->head, out->head_len } };
	int n = 1;

	if (out->xattrs)
		iov[n++] = (struct iovec){ out->xattrs->data, out->xattrs->len };
	if (out->slot && out->slot_len)
		iov[n++] = (struct iovec){ out->slot->data, out->slot_len };
	return ckpt_writer_add(x->w, out->type, iov, n, &x->seg[i], &x->bytes[i]);
}

/* Writes what it can and lets go of all references. */
static int write_batch(struct writer *x)
{
	int err = 0;

	for (unsigned i = 0; i < x->count; i++) {
		if (!err)
			err = write_one(x, i);
		image_out_put(x->im, &x->out[i]);
		free(x->capture[i]);
	}
	return err;
}

static int write_objects(struct writer *x)
{
	for (;;) {
		int err = next_batch(x);

		if (err || x->count == 0)
			return err;
		err = write_batch(x);
		if (err)
			return err;
		report_progress(x);
	}
}

/* Moves up to a batch of objects of the list to the dirty list. True: the list is empty. */
static bool redirty_slice(struct image *im, struct cds_list_head *list)
{
	for (unsigned i = 0; i < BATCH_ITEMS && !cds_list_empty(list); i++) {
		struct image_obj *obj = cds_list_first_entry(list, struct image_obj, node);

		image_obj_detach(im, obj);
		image_obj_make_dirty(im, obj);
	}
	return cds_list_empty(list);
}

static bool undo_slice_locked(struct writer *x)
{
	struct image *im = x->im;

	while (!cds_list_empty(&im->captures)) {
		struct image_capture *cap =
			cds_list_first_entry(&im->captures, struct image_capture, node);

		cds_list_del(&cap->node);
		image_out_put(im, &cap->out);
		free(cap);
	}
	if (!redirty_slice(im, &im->inflight) || !redirty_slice(im, &im->pending))
		return false;
	for (uint32_t i = x->old_segs; i < im->seg_count; i++)
		if (!redirty_slice(im, &im->segs[i]->objs))
			return false;
	image_segs_drop_tail(im, x->old_segs);
	cds_list_splice(&x->tombs, &im->tombs); /* older ones first */
	return true;
}

/* Everything this checkpoint took goes back to the next one. */
static void undo(struct writer *x)
{
	struct image *im = x->im;
	bool done;

	store_lock(im->st);
	im->clean_upto = 0; /* no captures from old segments any more */
	im->tomb_lost = im->tomb_lost || x->tomb_lost;
	store_unlock(im->st);
	do {
		store_lock(im->st);
		done = undo_slice_locked(x);
		store_unlock(im->st);
	} while (!done);
}

static void finish(struct writer *x)
{
	struct image *im = x->im;
	struct image_obj *obj, *next;

	store_lock(im->st);
	image_segs_drop_head(im, im->clean_upto);
	im->clean_upto = 0;
	store_unlock(im->st);
	cds_list_for_each_entry_safe(obj, next, &x->tombs, node)
		image_tomb_free(obj);
	report_progress(x);
}

/* The first segment that still holds something: past those cleaned now. */
static uint64_t first_kept(struct writer *x)
{
	uint64_t first;

	store_lock(x->im->st);
	if (x->old_segs == 0)
		first = x->first_seg;
	else
		first = x->im->clean_upto ? x->im->clean_upto + 1ULL : x->im->seg_base;
	store_unlock(x->im->st);
	return first;
}

static int write_all(struct writer *x, struct ckpt *c, uint64_t epoch, struct ckpt_info *ret_info)
{
	int err = ckpt_begin(c, x->lsn, epoch, &x->w);

	if (err)
		return err;
	x->first_seg = ckpt_writer_seg(x->w);
	err = write_tombs(x);
	if (!err)
		err = write_objects(x);
	if (!err && x->ops && x->ops->may_commit)
		err = x->ops->may_commit(x->ctx, x->lsn);
	if (err) {
		ckpt_abort(x->w);
		return err;
	}
	return ckpt_commit(x->w, first_kept(x), x->next_ino, ret_info);
}

int image_write(struct image *im, struct ckpt *c, uint64_t epoch, const struct image_write_ops *ops,
		void *ctx, struct ckpt_info *ret_info)
{
	struct writer *x = malloc(sizeof(*x));
	int err;

	if (!x)
		return -ENOMEM;
	memset(x, 0, offsetof(struct writer, out));
	x->im = im;
	x->ops = ops;
	x->ctx = ctx;
	CDS_INIT_LIST_HEAD(&x->tombs);
	freeze(x);
	err = write_all(x, c, epoch, ret_info);
	if (err)
		undo(x);
	else
		finish(x);
	free(x);
	return err;
}
