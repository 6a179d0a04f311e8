/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of values and attributes: write, setattr, copy_file_range, relatime. See fuse_ops.h. */
#include "fs/fuse/fuse_ops.h"

#include "common/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FS_COPY_BYTES_MAX RECORD_DATA_MAX /* of one request: the caller asks again for the rest */

/* The size that value_stage() is told: only a hint, so a moment old is fine. -ENOENT, -EINVAL. */
static int fs_write_hint(struct fs *fs, uint64_t ino, uint64_t *ret_size)
{
	struct store *st = fs_lock(fs);
	struct inode *in = store_inode_locked(st, ino);
	int err = 0;

	if (!in || !S_ISREG(in->mode))
		err = in ? -EINVAL : -ENOENT;
	else
		*ret_size = in->u.value.size;
	fs_unlock(fs, st);
	return err;
}

static int fs_write_execute(struct fs *fs, struct record *r, struct value_stage *stage,
			    uint32_t crc, struct fs_op *o)
{
	struct store *st = fs_lock(fs);
	int err = fs_op_execute_locked(fs, st, r, stage, crc, o);

	fs_unlock(fs, st);
	return err;
}

void fs_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	      struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct record r = {
		.opcode = RECORD_WRITE, .ino = ino, .timestamp_ns = clock_real_ns(),
		.data = buf, .data_len = (uint32_t)size, .u.write.offset = (uint64_t)off,
	};
	struct value_stage *stage = NULL;
	size_t head_bytes = record_head_bytes(&r);
	uint32_t crc = 0, bytes = (uint32_t)(head_bytes + size);
	uint64_t old_size = 0;
	struct fs_op *o = NULL;
	int err = fs->read_only ? -EROFS : fs_write_hint(fs, ino, &old_size);

	if (!err && size == 0) {
		fuse_reply_write(req, 0);
		return;
	}
	if (!err)
		err = value_stage(fs->node->slab, (uint64_t)off, buf, size, old_size, &stage, &crc);
	if (!err && !(o = fs_op_new(fs, req, FS_REPLY_COUNT, head_bytes)))
		err = -ENOMEM;
	if (!err)
		err = fs_admit(fs, bytes, false, o->op.deadline_ns);
	if (!err) {
		o->op.admitted_bytes = bytes;
		o->u.count = size;
		err = fs_write_execute(fs, &r, stage, crc, o);
		if (!err) {
			fs_drive(fs);
			return;
		}
		commit_unadmit(fs->commit, bytes);
	}
	value_stage_free(fs->node->slab, stage);
	if (o)
		fs_op_free(o);
	fuse_reply_err(req, -err);
}

/* Signed nanoseconds since 1970, as the record's 64 bits; what they can't hold (years before 1678,
 * after
 * 2262) becomes the nearest they can. */
static uint64_t fs_timespec_ns(const struct timespec *ts)
{
	int64_t ns;

	if (__builtin_mul_overflow((int64_t)ts->tv_sec, (int64_t)NSEC_PER_SEC, &ns) ||
	    __builtin_add_overflow(ns, (int64_t)ts->tv_nsec, &ns))
		ns = ts->tv_sec < 0 ? INT64_MIN : INT64_MAX;
	return (uint64_t)ns;
}

static void fs_setattr_times(struct record *r, const struct stat *attr, int to_set)
{
	if (to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW)) {
		r->u.setattr.valid_mask |= RECORD_SET_ATIME;
		r->u.setattr.atime_ns = to_set & FUSE_SET_ATTR_ATIME_NOW ? r->timestamp_ns :
								fs_timespec_ns(&attr->st_atim);
	}
	if (to_set & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW)) {
		r->u.setattr.valid_mask |= RECORD_SET_MTIME;
		r->u.setattr.mtime_ns = to_set & FUSE_SET_ATTR_MTIME_NOW ? r->timestamp_ns :
								fs_timespec_ns(&attr->st_mtim);
	} else if (to_set & FUSE_SET_ATTR_SIZE) {
		/* truncate(2), open(2) with O_TRUNC: the kernel leaves this to us */
		r->u.setattr.valid_mask |= RECORD_SET_MTIME;
		r->u.setattr.mtime_ns = r->timestamp_ns;
	}
}

static int fs_setattr_prepare(struct fs *fs, struct store *st, struct record *r, void *arg)
{
	struct inode *in = store_inode_locked(st, r->ino);

	if (!in)
		return -ENOENT;
	if ((r->u.setattr.valid_mask & RECORD_SET_SIZE) && !S_ISREG(in->mode))
		return S_ISDIR(in->mode) ? -EISDIR : -EINVAL;
	return 0;
}

void fs_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		struct fuse_file_info *fi)
{
	struct record r = { .opcode = RECORD_SETATTR, .ino = ino, .timestamp_ns = clock_real_ns() };
	unsigned how = 0;

	if (to_set & FUSE_SET_ATTR_MODE) {
		r.u.setattr.valid_mask |= RECORD_SET_MODE;
		r.u.setattr.mode = attr->st_mode & 07777;
	}
	if (to_set & FUSE_SET_ATTR_UID) {
		r.u.setattr.valid_mask |= RECORD_SET_UID;
		r.u.setattr.uid = attr->st_uid;
	}
	if (to_set & FUSE_SET_ATTR_GID) {
		r.u.setattr.valid_mask |= RECORD_SET_GID;
		r.u.setattr.gid = attr->st_gid;
	}
	if (to_set & FUSE_SET_ATTR_SIZE) {
		r.u.setattr.valid_mask |= RECORD_SET_SIZE;
		r.u.setattr.size = (uint64_t)attr->st_size;
	}
	fs_setattr_times(&r, attr, to_set);
	if (to_set & FUSE_SET_ATTR_SIZE)
		how = FS_URGENT;
	/* open(2) with O_TRUNC, told like truncate(2); ftruncate(2) has a handle */
	if (how && attr->st_size == 0 && !fi)
		how |= FS_EARLY;
	fs_submit(fs_of(req), req, FS_REPLY_ATTR, &r, how, fs_setattr_prepare, NULL);
}

void fs_touch_atime(struct fs *fs, uint64_t ino)
{
	struct record r = { .opcode = RECORD_SETATTR, .ino = ino, .timestamp_ns = clock_real_ns() };

	r.u.setattr.valid_mask = RECORD_SET_ATIME | RECORD_SET_ATIME_ONLY;
	r.u.setattr.atime_ns = r.timestamp_ns;
	fs_submit(fs, NULL, FS_REPLY_NONE, &r, 0, fs_setattr_prepare, NULL);
}

/* The answer of a copy is known under the lock only (the source's size): it goes
 * through the operation. */
static int fs_copy_clip_locked(struct store *st, struct record *r)
{
	struct inode *src = store_inode_locked(st, r->u.copy.src_ino);
	struct inode *dst = store_inode_locked(st, r->ino);
	uint64_t src_off = r->u.copy.src_offset, dst_off = r->u.copy.dst_offset;
	uint64_t len = r->u.copy.length,
		 apart = src_off > dst_off ? src_off - dst_off : dst_off - src_off;

	if (!src || !dst)
		return -ENOENT;
	if (!S_ISREG(src->mode) || !S_ISREG(dst->mode))
		return -EINVAL;
	if (src == dst && apart < len)
		return -EINVAL;
	if (src_off >= src->u.value.size)
		len = 0;
	else if (len > src->u.value.size - src_off)
		len = src->u.value.size - src_off;
	if (dst_off + len > VALUE_SIZE_MAX)
		return -EFBIG;
	r->u.copy.length = len;
	return 0;
}

static int fs_copy_execute(struct fs *fs, struct record *r, struct fs_op *o)
{
	struct store *st = fs_lock(fs);
	int err = fs_copy_clip_locked(st, r);

	o->u.count = r->u.copy.length;
	if (!err && r->u.copy.length)
		err = fs_op_execute_locked(fs, st, r, NULL, 0, o);
	fs_unlock(fs, st);
	return err;
}

void fs_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
			struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t off_out,
			struct fuse_file_info *fi_out, size_t len, int flags)
{
	struct fs *fs = fs_of(req);
	struct record r = {
		.opcode = RECORD_COPY,
		.ino = ino_out,
		.timestamp_ns = clock_real_ns(),
		.u.copy = { .src_ino = ino_in,
			    .src_offset = (uint64_t)off_in,
			    .dst_offset = (uint64_t)off_out,
			    .length = len < FS_COPY_BYTES_MAX ? len : FS_COPY_BYTES_MAX },
	};
	uint32_t bytes = (uint32_t)record_head_bytes(&r);
	struct fs_op *o = NULL;
	int err = fs->read_only ? -EROFS : flags ? -EINVAL : 0;

	if (!err && !(o = fs_op_new(fs, req, FS_REPLY_COUNT, bytes)))
		err = -ENOMEM;
	if (!err)
		err = fs_admit(fs, bytes, false, o->op.deadline_ns);
	if (!err) {
		o->op.admitted_bytes = bytes;
		err = fs_copy_execute(fs, &r, o);
		if (!err && r.u.copy.length) {
			fs_drive(fs);
			return;
		}
		commit_unadmit(fs->commit, bytes);
	}
	if (o)
		fs_op_free(o);
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_write(req, 0); /* at the source's end */
}
