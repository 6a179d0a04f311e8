/* SPDX-License-Identifier: Apache-2.0 */
/* WRITE, FALLOCATE, COPY and truncation: see store_apply.c for the rules they share. */
#include "fs/store/store_internal.h"

#include <errno.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>

int store_need_regular(const struct inode *in)
{
	if (S_ISDIR(in->mode))
		return -EISDIR;
	return S_ISREG(in->mode) ? 0 : -EINVAL;
}

static int find_regular(struct store *st, uint64_t ino, struct inode **ret_in)
{
	struct inode *in = store_inode_locked(st, ino);
	int err;

	if (!in)
		return -ENOENT;
	err = store_need_regular(in);
	if (!err)
		*ret_in = in;
	return err;
}

int store_truncate_locked(struct store *st, struct inode *in, uint64_t size)
{
	struct image_value_hook h;
	uint64_t old = in->u.value.size;
	int err;

	image_inode_touch(st->image, in);
	image_value_hook_init(&h, st->image, in);
	err = value_truncate(st->slab, &in->u.value, &h.hook, size);
	if (!err)
		st->value_bytes += size - old;
	image_inode_resized(st->image, in);
	return err;
}

/* Writes data (already staged or not) and leaves the times to the caller. */
static int write_bytes(struct store *st, struct inode *in, uint64_t off, const void *data,
		       uint32_t len, struct value_stage *stage)
{
	struct value_stage *own = NULL;
	struct image_value_hook h;
	uint64_t old = in->u.value.size;
	uint32_t crc;
	int err;

	if (!stage) {
		err = value_stage(st->slab, off, data, len, old, &own, &crc);
		if (err)
			return err;
		stage = own;
	}
	image_inode_touch(st->image, in);
	image_value_hook_init(&h, st->image, in);
	err = value_write(st->slab, &in->u.value, &h.hook, stage, data);
	value_stage_free(st->slab, err ? own : stage);
	if (err)
		return err;
	st->value_bytes += in->u.value.size - old;
	image_inode_resized(st->image, in);
	return 0;
}

int store_apply_write(struct store *st, const struct record *r, struct value_stage *stage)
{
	struct inode *in;
	int err = find_regular(st, r->ino, &in);

	if (err)
		return err;
	if (r->data_len == 0 || r->data_len > RECORD_DATA_MAX)
		return -EINVAL;
	if (r->u.write.offset > VALUE_SIZE_MAX || r->u.write.offset + r->data_len > VALUE_SIZE_MAX)
		return -EFBIG;
	err = write_bytes(st, in, r->u.write.offset, r->data, r->data_len, stage);
	if (err)
		return err;
	store_touch_modify(st, in, r);
	if (r->u.write.clear_suid) {
		in->mode &= ~(uint32_t)S_ISUID;
		if (in->mode & S_IXGRP)
			in->mode &= ~(uint32_t)S_ISGID;
	}
	return 0;
}

/* Zeroes the range and, unless the size is kept, extends to its end; a failure
 * undoes the extension. */
static int zero_range(struct store *st, struct inode *in, const struct value_hook *h,
		      const struct record *r)
{
	uint64_t off = r->u.fallocate.offset, len = r->u.fallocate.length;
	uint64_t old = in->u.value.size;
	int err = 0;

	if (!(r->u.fallocate.mode & FALLOC_FL_KEEP_SIZE) && off + len > old)
		err = value_truncate(st->slab, &in->u.value, h, off + len);
	if (err)
		return err;
	err = value_punch(st->slab, &in->u.value, h, off, len);
	if (err && in->u.value.size != old)
		value_truncate(st->slab, &in->u.value, h, old); /* shrinking does not fail */
	return err;
}

int store_apply_fallocate(struct store *st, const struct record *r)
{
	uint64_t off = r->u.fallocate.offset, len = r->u.fallocate.length, old;
	uint32_t mode = r->u.fallocate.mode;
	struct image_value_hook h;
	struct inode *in;
	int err = find_regular(st, r->ino, &in);

	if (err)
		return err;
	if (len == 0)
		return -EINVAL;
	if (off > VALUE_SIZE_MAX || len > VALUE_SIZE_MAX - off)
		return -EFBIG;
	old = in->u.value.size;
	image_inode_touch(st->image, in);
	image_value_hook_init(&h, st->image, in);
	if (mode == 0 || mode == FALLOC_FL_KEEP_SIZE)
		err = value_reserve(st->slab, &in->u.value, &h.hook, off, len, mode != 0);
	else if (mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE))
		err = value_punch(st->slab, &in->u.value, &h.hook, off, len);
	else if (mode == FALLOC_FL_ZERO_RANGE ||
		 mode == (FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE))
		err = zero_range(st, in, &h.hook, r);
	else
		err = -EOPNOTSUPP;
	st->value_bytes += in->u.value.size - old;
	image_inode_resized(st->image, in);
	if (err)
		return err;
	store_touch_modify(st, in, r);
	return 0;
}

/* Copies [off, off+len), which lies within the value, to buf. */
static void read_bytes(struct store *st, const struct value *v, uint64_t off, uint64_t len,
		       uint8_t *buf)
{
	while (len) {
		struct value_ref refs[8];
		uint64_t covered = 0;
		int n = value_refs(v, off, len, refs, 8, &covered);
		uint8_t *p = buf;

		for (int i = 0; i < n; i++) {
			if (refs[i].slot)
				memcpy(p, refs[i].slot->data + refs[i].off, refs[i].len);
			else
				memset(p, 0, refs[i].len);
			p += refs[i].len;
			value_ref_put(st->slab, &refs[i]);
		}
		if (covered == 0)
			return;
		buf += covered;
		off += covered;
		len -= covered;
	}
}

int store_apply_copy(struct store *st, const struct record *r)
{
	uint64_t from = r->u.copy.src_offset, to = r->u.copy.dst_offset, len = r->u.copy.length;
	struct inode *src, *dst;
	uint8_t *buf;
	int err = find_regular(st, r->u.copy.src_ino, &src);

	if (!err)
		err = find_regular(st, r->ino, &dst);
	if (err)
		return err;
	if (len == 0 || len > RECORD_DATA_MAX || from > src->u.value.size ||
	    len > src->u.value.size - from)
		return -EINVAL;
	if (to > VALUE_SIZE_MAX - len)
		return -EFBIG;
	buf = malloc(len);
	if (!buf)
		return -ENOMEM;
	read_bytes(st, &src->u.value, from, len, buf);
	err = write_bytes(st, dst, to, buf, (uint32_t)len, NULL);
	free(buf);
	if (!err)
		store_touch_modify(st, dst, r);
	return err;
}
