/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which objects a checkpoint must write, and their state when it began: marks, captures,
 * tombstones. The states are in image_internal.h. Everything here runs under the store's lock, in
 * the store's changes.
 */
#include "fs/store/image_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_DEFAULT_BYTES (64ULL << 20)
#define ITEM_OVERHEAD_BYTES 16 /* about what the segment's framing adds to an item */
#define ESTIMATE_MAX ((1U << 24) - 1)

struct image *image_create(struct store *st)
{
	struct image *im = calloc(1, sizeof(*im));

	if (!im)
		return NULL;
	im->st = st;
	CDS_INIT_LIST_HEAD(&im->dirty);
	CDS_INIT_LIST_HEAD(&im->pending);
	CDS_INIT_LIST_HEAD(&im->inflight);
	CDS_INIT_LIST_HEAD(&im->captures);
	CDS_INIT_LIST_HEAD(&im->tombs);
	im->slack_bytes = im->budget_bytes = LIMIT_DEFAULT_BYTES;
	return im;
}

void image_tomb_free(struct image_obj *obj)
{
	switch ((enum image_kind)obj->kind) {
	case IMAGE_INODE:
		free(caa_container_of(obj, struct inode, img));
		return;
	case IMAGE_NAME:
		free(caa_container_of(obj, struct name, img));
		return;
	case IMAGE_RANGE:
		free(caa_container_of(obj, struct image_range, img));
		return;
	case IMAGE_CHUNK:
		break; /* its value frees it */
	}
	assert(!"tombstone kind");
}

void image_destroy(struct image *im)
{
	struct image_obj *obj, *next;

	if (!im)
		return;
	assert(cds_list_empty(&im->captures));
	cds_list_for_each_entry_safe(obj, next, &im->tombs, node)
		image_tomb_free(obj);
	image_segs_free(im);
	free(im);
}

static uint32_t min_u32(uint64_t a, uint32_t b)
{
	return a < b ? (uint32_t)a : b;
}

static void fill_inode(const struct inode *in, uint64_t value_size, struct image_item *it,
		       struct image_out *out)
{
	it->type = IMAGE_ITEM_INODE;
	it->ino = in->ino;
	it->last_lsn = in->last_lsn;
	it->atime_ns = in->atime_ns;
	it->mtime_ns = in->mtime_ns;
	it->ctime_ns = in->ctime_ns;
	it->mode = in->mode;
	it->uid = in->uid;
	it->gid = in->gid;
	it->rdev = in->rdev;
	it->nlink = in->nlink;
	it->gen = in->gen;
	if (in->xattrs) {
		out->xattrs = in->xattrs;
		/* relaxed: the lock orders it; the last put is acquire-release */
		atomic_fetch_add_explicit(&in->xattrs->refs, 1, memory_order_relaxed);
		it->xattr_len = in->xattrs->len;
	}
	if (S_ISDIR(in->mode)) {
		it->parent_ino = in->u.parent_ino;
		it->cookie = in->u.dir->next_cookie;
	} else if (S_ISLNK(in->mode)) {
		it->text = in->u.target;
		it->text_len = (uint32_t)strlen(in->u.target);
	} else if (S_ISREG(in->mode)) {
		it->size = value_size;
		it->chunked = in->u.value.height > 0;
		out->slot = it->chunked ? NULL : in->u.value.u.slot;
		if (out->slot) {
			it->cap = out->slot->cap;
			it->bytes_len = min_u32(value_size, it->cap);
		}
	}
}

static void fill_name(const struct name *n, struct image_item *it)
{
	it->type = IMAGE_ITEM_NAME;
	it->parent_ino = n->parent_ino;
	it->cookie = n->cookie;
	it->ino = n->ino;
	it->text = n->text;
	it->text_len = n->len;
}

static void fill_chunk(const struct value_chunk *c, uint64_t value_size, struct image_item *it,
		       struct image_out *out)
{
	uint64_t start = c->idx * VALUE_CHUNK_BYTES;

	it->type = IMAGE_ITEM_CHUNK;
	it->ino = c->ino;
	it->first = c->idx;
	it->cap = c->slot->cap;
	it->bytes_len = value_size > start ? min_u32(value_size - start, it->cap) : 0;
	out->slot = c->slot;
}

void image_out_fill(struct image *im, const struct image_obj *obj, uint64_t value_size,
		    struct image_out *out)
{
	struct image_item it = { 0 };

	out->xattrs = NULL;
	out->slot = NULL;
	if (obj->kind == IMAGE_INODE)
		fill_inode(caa_container_of(obj, struct inode, img), value_size, &it, out);
	else if (obj->kind == IMAGE_NAME)
		fill_name(caa_container_of(obj, struct name, img), &it);
	else
		fill_chunk(caa_container_of(obj, struct value_chunk, img), value_size, &it, out);
	if (out->slot)
		slot_get(out->slot);
	out->type = it.type;
	out->slot_len = it.bytes_len;
	out->head_len = (uint32_t)image_item_encode_head(&it, out->head);
}

void image_out_put(struct image *im, struct image_out *out)
{
	slot_put(im->st->slab, out->slot);
	store_xattrs_put(out->xattrs);
}

static bool is_frozen(const struct image *im, const struct image_obj *obj)
{
	if (!image_obj_is_listed(obj))
		return false;
	if (obj->seg == 0)
		return obj->parity != im->parity;
	return obj->seg <= im->clean_upto;
}

/* Keeps the object's state for the running checkpoint. value_size: of the inode,
 * before the change. */
static void capture(struct image *im, struct image_obj *obj, uint64_t value_size)
{
	uint8_t head[IMAGE_HEAD_MAX];
	struct image_out out = { .head = head };
	struct image_capture *cap;

	image_out_fill(im, obj, value_size, &out);
	cap = malloc(sizeof(*cap) + out.head_len);
	if (!cap) {
		image_out_put(im, &out);
		im->capture_err = -ENOMEM;
		return;
	}
	memcpy(cap->head, head, out.head_len);
	cap->out = out;
	cap->out.head = cap->head;
	cds_list_add_tail(&cap->node, &im->captures);
	obj->persisted = 1;
}

void image_obj_detach(struct image *im, struct image_obj *obj)
{
	if (!image_obj_is_listed(obj))
		return;
	cds_list_del(&obj->node);
	obj->node.next = NULL;
	if (obj->seg == IMAGE_SEG_INFLIGHT)
		return;
	if (obj->seg)
		image_seg_of(im, obj->seg)->live_bytes -= obj->bytes;
	else if (obj->parity == im->parity)
		im->dirty_bytes -= obj->bytes;
	else
		im->pending_bytes -= obj->bytes;
}

static uint32_t estimate_bytes(const struct image_obj *obj)
{
	uint64_t bytes = ITEM_OVERHEAD_BYTES;

	if (obj->kind == IMAGE_INODE) {
		const struct inode *in = caa_container_of(obj, struct inode, img);

		bytes += sizeof(struct image_inode_item) + (in->xattrs ? in->xattrs->len : 0);
		if (S_ISREG(in->mode) && in->u.value.height == 0 && in->u.value.u.slot)
			bytes += min_u32(in->u.value.size, in->u.value.u.slot->cap);
	} else if (obj->kind == IMAGE_NAME) {
		bytes += sizeof(struct image_name_item) +
			 caa_container_of(obj, struct name, img)->len;
	} else {
		bytes += sizeof(struct image_chunk_item) +
			 caa_container_of(obj, struct value_chunk, img)->slot->cap;
	}
	return min_u32(bytes, ESTIMATE_MAX);
}

void image_obj_make_dirty(struct image *im, struct image_obj *obj)
{
	obj->seg = 0;
	obj->parity = im->parity & 1;
	obj->bytes = estimate_bytes(obj);
	im->dirty_bytes += obj->bytes;
	cds_list_add_tail(&obj->node, &im->dirty);
}

static void touch(struct image *im, struct image_obj *obj, enum image_kind kind,
		  uint64_t value_size)
{
	if (image_obj_is_listed(obj) && obj->seg == 0 && obj->parity == im->parity)
		return; /* dirty already */
	obj->kind = kind & 7;
	if (is_frozen(im, obj))
		capture(im, obj, value_size);
	image_obj_detach(im, obj);
	image_obj_make_dirty(im, obj);
}

/* Off the image. True: removal needs a tombstone. */
static bool leave(struct image *im, struct image_obj *obj, uint64_t value_size)
{
	if (is_frozen(im, obj))
		capture(im, obj, value_size);
	image_obj_detach(im, obj);
	return obj->persisted;
}

static uint64_t value_size_of(const struct inode *in)
{
	return S_ISREG(in->mode) ? in->u.value.size : 0;
}

void image_inode_touch(struct image *im, struct inode *in)
{
	touch(im, &in->img, IMAGE_INODE, value_size_of(in));
}

void image_inode_resized(struct image *im, struct inode *in)
{
	uint32_t bytes = estimate_bytes(&in->img);

	/* touched by the same operation */
	assert(image_obj_is_listed(&in->img) && in->img.seg == 0);
	im->dirty_bytes += bytes;
	im->dirty_bytes -= in->img.bytes;
	in->img.bytes = bytes & ESTIMATE_MAX;
}

struct leave_ctx {
	struct image *im;
	uint64_t value_size;
};

static int leave_chunk(void *ctx, struct value_chunk *c)
{
	struct leave_ctx *x = ctx;

	leave(x->im, &c->img, x->value_size); /* the inode's tombstone covers it */
	return 0;
}

bool image_inode_gone(struct image *im, struct inode *in)
{
	struct leave_ctx x = { im, value_size_of(in) };

	if (S_ISREG(in->mode) && in->u.value.height)
		value_each_chunk(&in->u.value, leave_chunk, &x);
	if (!leave(im, &in->img, x.value_size))
		return false;
	cds_list_add_tail(&in->img.node, &im->tombs);
	return true;
}

static int forget_chunk(void *ctx, struct value_chunk *c)
{
	image_obj_detach(ctx, &c->img);
	return 0;
}

void image_inode_forget(struct image *im, struct inode *in)
{
	if (S_ISREG(in->mode) && in->u.value.height)
		value_each_chunk(&in->u.value, forget_chunk, im);
	image_obj_detach(im, &in->img);
}

void image_name_touch(struct image *im, struct name *n)
{
	touch(im, &n->img, IMAGE_NAME, 0);
}

bool image_name_gone(struct image *im, struct name *n)
{
	if (!leave(im, &n->img, 0))
		return false;
	cds_list_add_tail(&n->img.node, &im->tombs);
	return true;
}

static void hook_before(void *ctx, struct value_chunk *c)
{
	struct image_value_hook *h = ctx;

	if (c)
		touch(h->im, &c->img, IMAGE_CHUNK, h->size);
	/* else the inode holds the slot: it was touched before the operation began */
}

static void hook_after(void *ctx, struct value_chunk *c)
{
	struct image_value_hook *h = ctx;

	if (!c)
		return;
	c->ino = h->in->ino;
	touch(h->im, &c->img, IMAGE_CHUNK, h->size);
}

/* Chunks leave in runs: the newest tombstone is extended where it can be. */
static void add_range(struct image *im, uint64_t ino, uint64_t idx)
{
	struct image_range *g;

	if (!cds_list_empty(&im->tombs)) {
		struct image_obj *last = cds_list_entry(im->tombs.prev, struct image_obj, node);

		g = caa_container_of(last, struct image_range, img);
		if (last->kind == IMAGE_RANGE && g->ino == ino) {
			if (idx + 1 == g->first)
				g->first = idx;
			else if (idx == g->last + 1)
				g->last = idx;
			if (idx >= g->first && idx <= g->last)
				return;
		}
	}
	g = calloc(1, sizeof(*g));
	if (!g) {
		im->tomb_lost = true;
		return;
	}
	g->img.kind = IMAGE_RANGE;
	g->ino = ino;
	g->first = g->last = idx;
	cds_list_add_tail(&g->img.node, &im->tombs);
}

static void hook_gone(void *ctx, struct value_chunk *c)
{
	struct image_value_hook *h = ctx;

	if (c && leave(h->im, &c->img, h->size))
		add_range(h->im, h->in->ino, c->idx);
}

void image_value_hook_init(struct image_value_hook *h, struct image *im, struct inode *in)
{
	h->hook = (struct value_hook){ hook_before, hook_after, hook_gone, h };
	h->im = im;
	h->in = in;
	h->size = in->u.value.size;
}

uint64_t image_dirty_bytes(struct image *im)
{
	uint64_t bytes;

	store_lock(im->st);
	bytes = im->dirty_bytes;
	store_unlock(im->st);
	return bytes;
}

void image_set_limits(struct image *im, uint64_t slack_bytes, uint64_t budget_bytes)
{
	store_lock(im->st);
	im->slack_bytes = slack_bytes;
	im->budget_bytes = budget_bytes;
	store_unlock(im->st);
}
