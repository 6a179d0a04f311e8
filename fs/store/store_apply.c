/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executes operation records: dispatch, attributes, INODE_FREE. Names are in store_apply_names.c,
 * bytes in store_apply_data.c. Each function first checks and allocates everything, then changes:
 * all or nothing. An object is shown to the image (image_*_touch) before it changes, so that a
 * running checkpoint can keep its old state. Under the store's lock.
 */
#include "fs/store/store_internal.h"

#include <errno.h>

void store_touch_change(struct store *st, struct inode *in, const struct record *r)
{
	image_inode_touch(st->image, in);
	in->ctime_ns = r->timestamp_ns;
	in->last_lsn = r->lsn;
}

void store_touch_modify(struct store *st, struct inode *in, const struct record *r)
{
	store_touch_change(st, in, r);
	in->mtime_ns = r->timestamp_ns;
}

static void set_times(struct inode *in, const struct record *r)
{
	uint32_t mask = r->u.setattr.valid_mask;

	if (mask & (RECORD_SET_ATIME | RECORD_SET_ATIME_ONLY))
		in->atime_ns = r->u.setattr.atime_ns;
	if (mask & RECORD_SET_MTIME)
		in->mtime_ns = r->u.setattr.mtime_ns;
	else if (mask & RECORD_SET_SIZE)
		in->mtime_ns = r->timestamp_ns;
	if (mask & RECORD_SET_CTIME)
		in->ctime_ns = r->u.setattr.ctime_ns;
	else if (!(mask & RECORD_SET_ATIME_ONLY))
		in->ctime_ns = r->timestamp_ns;
}

static int apply_setattr(struct store *st, const struct record *r)
{
	struct inode *in = store_inode_locked(st, r->ino);
	uint32_t mask = r->u.setattr.valid_mask;
	int err;

	if (!in)
		return -ENOENT;
	if (mask & ~(uint32_t)RECORD_SET_ALL)
		return -EINVAL;
	if (mask & RECORD_SET_SIZE) {
		err = store_need_regular(in);
		if (!err)
			err = store_truncate_locked(st, in, r->u.setattr.size);
		if (err)
			return err;
	}
	image_inode_touch(st->image, in);
	if (mask & RECORD_SET_MODE)
		in->mode = (in->mode & S_IFMT) | (r->u.setattr.mode & 07777);
	if (mask & RECORD_SET_UID)
		in->uid = r->u.setattr.uid;
	if (mask & RECORD_SET_GID)
		in->gid = r->u.setattr.gid;
	set_times(in, r);
	if (mask != RECORD_SET_ATIME_ONLY && mask != (RECORD_SET_ATIME_ONLY | RECORD_SET_ATIME))
		in->last_lsn = r->lsn;
	return 0;
}

static int apply_xattr(struct store *st, const struct record *r)
{
	struct inode *in = store_inode_locked(st, r->ino);

	if (!in)
		return -ENOENT;
	return r->opcode == RECORD_SETXATTR ? store_setxattr_locked(st, in, r) :
					      store_removexattr_locked(st, in, r);
}

static int apply_inode_free(struct store *st, const struct record *r)
{
	struct inode *in = store_inode_locked(st, r->ino);

	if (!in)
		return -ENOENT;
	if (in->nlink)
		return -EINVAL;
	store_inode_drop_locked(st, in);
	return 0;
}

static int dispatch(struct store *st, const struct record *r, struct value_stage *stage)
{
	switch (r->opcode) {
	case RECORD_NOOP:
		return 0;
	case RECORD_CREATE:
		return store_apply_create(st, r);
	case RECORD_WRITE:
		return store_apply_write(st, r, stage);
	case RECORD_SETATTR:
		return apply_setattr(st, r);
	case RECORD_LINK:
		return store_apply_link(st, r);
	case RECORD_UNLINK:
		return store_apply_unlink(st, r);
	case RECORD_RENAME:
		return store_apply_rename(st, r);
	case RECORD_FALLOCATE:
		return store_apply_fallocate(st, r);
	case RECORD_COPY:
		return store_apply_copy(st, r);
	case RECORD_SETXATTR:
	case RECORD_REMOVEXATTR:
		return apply_xattr(st, r);
	case RECORD_INODE_FREE:
		return apply_inode_free(st, r);
	case RECORD_GENERATION: /* of the log itself: has no LSN and changes nothing */
	case RECORD_OPCODE_END:
		break;
	}
	return -EINVAL;
}

int store_apply_locked(struct store *st, const struct record *r, struct value_stage *stage)
{
	int err = dispatch(st, r, stage);

	if (!err)
		st->lsn = r->lsn;
	return err;
}
