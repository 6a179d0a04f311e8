/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads a checkpoint: items in write order into the tables, newer over older, tombstones applied as
 * they come; then names are linked into their directories and everything is checked against
 * everything. A chunk may come before its inode's item: an inode without a type (mode 0) stands in
 * until then. While loading, an inode's lookups counts its names. Loaded objects are on their
 * segment's list, so the next checkpoint is incremental.
 *
 * Threads: one, on a store nobody else uses yet; the lock is taken per item all the same.
 */
#include "fs/store/image_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct loader {
	struct image *im;
	struct store *st;
	const char *why;
	int (*progress)(void *ctx, uint64_t done, uint64_t total);
	void *ctx;
	int stop; /* what progress said */
};

static int bad(struct loader *x, const char *why)
{
	x->why = why;
	return -EBADMSG;
}

/* The object's newest copy is the item in seg. */
static void place(struct loader *x, struct image_obj *obj, enum image_kind kind, uint32_t seg,
		  uint32_t bytes)
{
	image_obj_detach(x->im, obj);
	obj->kind = kind & 7;
	image_seg_add_obj(x->im, seg, obj, bytes);
}

static int forget_chunk(void *ctx, struct value_chunk *c)
{
	image_obj_detach(ctx, &c->img);
	return 0;
}

/* Drops the bytes older items gave the inode, its chunks too. */
static void clear_value(struct loader *x, struct inode *in)
{
	if (in->u.value.height)
		value_each_chunk(&in->u.value, forget_chunk, x->im);
	value_clear(x->st->slab, &in->u.value);
}

static int get_inode(struct loader *x, uint64_t ino, struct inode **ret_in)
{
	struct inode *in = store_inode_locked(x->st, ino);

	if (!in) {
		in = store_inode_alloc(ino, 0);
		if (!in)
			return -ENOMEM;
		store_inode_add_locked(x->st, in);
	}
	*ret_in = in;
	return 0;
}

static int load_slot(struct loader *x, const struct image_item *it, struct slot **ret_slot)
{
	struct slot *slot;
	int err = slab_alloc(x->st->slab, it->cap, &slot);

	if (err)
		return err;
	memcpy(slot->data, it->bytes, it->bytes_len);
	memset(slot->data + it->bytes_len, 0, slot->cap - it->bytes_len);
	*ret_slot = slot;
	return 0;
}

static int load_regular(struct loader *x, struct inode *in, const struct image_item *it)
{
	struct value_chunk *c;
	struct slot *slot;
	int err;

	if (!it->chunked || in->u.value.height == 0)
		clear_value(x, in);
	in->u.value.size = it->size;
	if (it->chunked && in->u.value.height == 0)
		in->u.value.height = 1; /* an empty tree; its chunks may follow */
	if (!it->cap)
		return 0;
	err = load_slot(x, it, &slot);
	if (err)
		return err;
	err = value_load_chunk(x->st->slab, &in->u.value, 0, slot, true, &c);
	if (err)
		slot_put(x->st->slab, slot);
	return err;
}

/* What depends on the file's type. */
static int load_contents(struct loader *x, struct inode *in, const struct image_item *it)
{
	if (S_ISREG(it->mode))
		return load_regular(x, in, it);
	if (in->mode == 0 && in->u.value.height)
		return bad(x, "chunk of an inode that is not a regular file");
	if (S_ISDIR(it->mode)) {
		if (!in->u.dir)
			in->u.dir = store_dir_alloc();
		if (!in->u.dir)
			return -ENOMEM;
		in->u.dir->next_cookie = it->cookie;
		in->u.parent_ino = it->parent_ino;
	} else if (S_ISLNK(it->mode)) {
		char *target = strndup(it->text, it->text_len);

		if (!target)
			return -ENOMEM;
		free(in->u.target);
		in->u.target = target;
	}
	return 0;
}

static int load_xattrs(struct inode *in, const struct image_item *it)
{
	struct store_xattrs *xattrs = NULL;

	if (it->xattr_len) {
		xattrs = store_xattrs_from(it->xattrs, it->xattr_len);
		if (!xattrs)
			return -ENOMEM;
	}
	store_xattrs_put(in->xattrs);
	in->xattrs = xattrs;
	return 0;
}

static int load_inode(struct loader *x, const struct image_item *it, uint32_t seg, uint32_t bytes)
{
	struct inode *in;
	int err = get_inode(x, it->ino, &in);

	if (err)
		return err;
	if (in->mode && (in->mode & S_IFMT) != (it->mode & S_IFMT))
		return bad(x, "an inode changes its type");
	err = load_contents(x, in, it);
	if (!err)
		err = load_xattrs(in, it);
	if (err)
		return err;
	in->mode = it->mode;
	in->last_lsn = it->last_lsn;
	in->atime_ns = it->atime_ns;
	in->mtime_ns = it->mtime_ns;
	in->ctime_ns = it->ctime_ns;
	in->uid = it->uid;
	in->gid = it->gid;
	in->rdev = it->rdev;
	in->nlink = it->nlink;
	in->gen = it->gen;
	place(x, &in->img, IMAGE_INODE, seg, bytes);
	return 0;
}

static int load_name(struct loader *x, const struct image_item *it, uint32_t seg, uint32_t bytes)
{
	struct name *n = store_name_find_locked(x->st, it->parent_ino, it->text, it->text_len);

	if (!n) {
		n = store_name_alloc(it->parent_ino, it->text, it->text_len);
		if (!n)
			return -ENOMEM;
		store_name_add_locked(x->st, n);
	}
	n->cookie = it->cookie;
	n->ino = it->ino;
	place(x, &n->img, IMAGE_NAME, seg, bytes);
	return 0;
}

static int load_chunk(struct loader *x, const struct image_item *it, uint32_t seg, uint32_t bytes)
{
	struct value_chunk *c;
	struct inode *in;
	struct slot *slot;
	int err = get_inode(x, it->ino, &in);

	if (err)
		return err;
	if (in->mode && !S_ISREG(in->mode))
		return bad(x, "chunk of an inode that is not a regular file");
	if (in->u.value.height == 0) { /* what an older item held inline is void */
		uint64_t size = in->u.value.size;

		value_clear(x->st->slab, &in->u.value);
		in->u.value.size = size;
	}
	err = load_slot(x, it, &slot);
	if (err)
		return err;
	c = value_find_chunk(&in->u.value, it->first);
	if (c)
		image_obj_detach(x->im, &c->img);
	err = value_load_chunk(x->st->slab, &in->u.value, it->first, slot, false, &c);
	if (err) {
		slot_put(x->st->slab, slot);
		return err;
	}
	c->ino = it->ino;
	place(x, &c->img, IMAGE_CHUNK, seg, bytes);
	return 0;
}

static void load_inode_gone(struct loader *x, uint64_t ino)
{
	struct inode *in = store_inode_locked(x->st, ino);

	if (!in)
		return;
	image_inode_forget(x->im, in);
	if (in->mode == 0)
		clear_value(x, in);
	htable_del(&x->st->inodes, &in->hash);
	store_inode_clear_locked(x->st, in);
	free(in);
}

static void load_name_gone(struct loader *x, const struct image_item *it)
{
	struct name *n = store_name_find_locked(x->st, it->parent_ino, it->text, it->text_len);

	if (!n)
		return;
	image_obj_detach(x->im, &n->img);
	store_name_remove_locked(x->st, n);
	free(n);
}

struct range_ctx {
	struct image *im;
	uint64_t first, last;
};

static int forget_range(void *ctx, struct value_chunk *c)
{
	struct range_ctx *g = ctx;

	if (c->idx >= g->first && c->idx <= g->last)
		image_obj_detach(g->im, &c->img);
	return c->idx > g->last;
}

static void load_chunks_gone(struct loader *x, const struct image_item *it)
{
	struct inode *in = store_inode_locked(x->st, it->ino);
	struct range_ctx g = { x->im, it->first, it->last };

	if (!in || (in->mode && !S_ISREG(in->mode)) || in->u.value.height == 0)
		return;
	value_each_chunk(&in->u.value, forget_range, &g);
	value_unload_chunks(x->st->slab, &in->u.value, it->first, it->last);
}

static int load_item(struct loader *x, uint64_t seg, uint8_t type, const void *data, size_t len)
{
	uint32_t bytes = (uint32_t)len + 16; /* about what it takes there */
	struct image_seg *s;
	struct image_item it;
	int err = image_item_decode(type, data, len, &it);

	if (err)
		return bad(x, "invalid item");
	err = image_seg_get(x->im, seg, &s);
	if (err)
		return err;
	s->total_bytes += bytes;
	switch (it.type) {
	case IMAGE_ITEM_INODE:
		return load_inode(x, &it, (uint32_t)seg, bytes);
	case IMAGE_ITEM_NAME:
		return load_name(x, &it, (uint32_t)seg, bytes);
	case IMAGE_ITEM_CHUNK:
		return load_chunk(x, &it, (uint32_t)seg, bytes);
	case IMAGE_ITEM_INODE_GONE:
		load_inode_gone(x, it.ino);
		return 0;
	case IMAGE_ITEM_NAME_GONE:
		load_name_gone(x, &it);
		return 0;
	case IMAGE_ITEM_CHUNKS_GONE:
		load_chunks_gone(x, &it);
		return 0;
	case IMAGE_ITEM_TYPE_END:
		break;
	}
	return bad(x, "invalid item");
}

static int on_item(void *ctx, uint64_t seg, uint8_t type, const void *data, size_t len)
{
	struct loader *x = ctx;
	int err;

	if (x->stop)
		return x->stop;
	store_lock(x->st);
	err = load_item(x, seg, type, data, len);
	store_unlock(x->st);
	return err;
}

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
	struct loader *x = ctx;

	if (x->progress && !x->stop)
		x->stop = x->progress(x->ctx, done, total);
}

/* Room in the tables, so that they need not grow step by step: a key's items take some 180
 * bytes at least. */
static void reserve(struct store *st, const struct ckpt_info *info)
{
	uint64_t keys = info->bytes / 180;

	if (keys > info->next_ino)
		keys = info->next_ino;
	store_lock(st);
	htable_reserve(&st->names, keys);
	store_unlock(st);
}

int image_load(struct image *im, struct ckpt *c, const struct ckpt_info *info,
	       int (*progress)(void *ctx, uint64_t done, uint64_t total), void *ctx,
	       const char **ret_why)
{
	const struct ckpt_read_ops ops = { on_item, on_progress };
	struct loader x = { .im = im, .st = im->st, .progress = progress, .ctx = ctx };
	uint64_t bad_seg = 0;
	int err = 0;

	reserve(x.st, info);
	if (info->last_seg >= info->first_seg)
		err = ckpt_read(c, info, &ops, &x, &bad_seg);
	if (!err)
		err = x.stop;
	if (err == -EBADMSG && !x.why)
		x.why = "a segment is missing or damaged";
	store_lock(im->st);
	if (!err)
		err = image_link_locked(im, info, &x.why);
	if (!err)
		im->st->lsn = info->lsn;
	store_unlock(im->st);
	if (err)
		*ret_why = x.why ? x.why : strerrordesc_np(-err);
	return err;
}
