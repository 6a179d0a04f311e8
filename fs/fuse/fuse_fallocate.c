/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fallocate(2). To reserve is to zero 64 KiB a chunk, seconds for some gigabytes: it goes piece by
 * piece, a record each, so that the store's lock is free in between and a mirror, which does the
 * same, is heard of. A piece waits for the commit of the last but one, or the answer would wait for
 * all that a slower mirror has before it. The last piece is the answer's, and alone moves the size.
 * What pieces have reserved stays reserved if a later one fails, or after a crash.
 *
 * To zero a range is to punch it and to reserve it again: a later write there finds room.
 */
#include "fs/fuse/fuse_fallocate.h"

#include "common/clock.h"
#include "fs/fuse/fuse_ops.h"

#include <errno.h>
#include <linux/falloc.h>

static int fs_regular_prepare(struct fs *fs, struct store *st, struct record *r, void *arg)
{
	struct inode *in = store_inode_locked(st, r->ino);

	if (!in)
		return -ENOENT;
	if (!S_ISREG(in->mode))
		return S_ISDIR(in->mode) ? -EISDIR : -ENODEV;
	return 0;
}

bool fs_fallocate_is_long(uint32_t mode, uint64_t length)
{
	return (mode & FALLOC_FL_ZERO_RANGE) ||
	       ((mode & ~FALLOC_FL_KEEP_SIZE) == 0 && length > FS_RESERVE_BYTES);
}

/* Certain to fail: better before the arena is taken to find out. */
static int fs_reserve_check_locked(struct fs *fs, struct store *st, const struct record *whole)
{
	uint64_t off = whole->u.fallocate.offset, end = off + whole->u.fallocate.length;
	uint64_t chunks = (end - 1) / VALUE_CHUNK_BYTES - off / VALUE_CHUNK_BYTES;
	int err = fs_regular_prepare(fs, st, (struct record *)(uintptr_t)whole, NULL);
	uint64_t have;

	if (err)
		return err;
	have = store_inode_locked(st, whole->ino)->u.value.chunks;
	if (chunks > have &&
	    (chunks - have) * VALUE_CHUNK_BYTES > slab_available_bytes(fs->node->slab))
		return -ENOSPC;
	return 0;
}

/* One piece that nobody is told of. */
static int fs_fallocate_piece(struct fs *fs, struct record *r, uint64_t *ret_lsn)
{
	uint32_t bytes = (uint32_t)record_head_bytes(r);
	struct fs_op *o = fs_op_new(fs, NULL, FS_REPLY_NONE, bytes);
	struct store *st;
	int err;

	if (!o)
		return -ENOMEM;
	err = fs_admit(fs, bytes, false, o->op.deadline_ns);
	if (err) {
		fs_op_free(o);
		return err;
	}
	o->op.admitted_bytes = bytes;
	st = fs_lock(fs);
	err = fs_regular_prepare(fs, st, r, NULL);
	if (!err)
		err = fs_op_execute_locked(fs, st, r, NULL, 0, o);
	fs_unlock(fs, st);
	if (!err) {
		*ret_lsn = r->lsn;
		fs_drive(fs);
		return 0;
	}
	commit_unadmit(fs->commit, bytes);
	fs_op_free(o);
	return err;
}

/* All pieces but the last, which is left in r. */
static int fs_reserve_pieces(struct fs *fs, struct record *r)
{
	uint64_t end = r->u.fallocate.offset + r->u.fallocate.length;
	uint64_t lsn = 0, before_lsn = 0;
	struct record piece = *r;
	struct store *st = fs_lock(fs);
	int err = fs_reserve_check_locked(fs, st, r);

	fs_unlock(fs, st);
	if (!err && (r->u.fallocate.mode & FALLOC_FL_ZERO_RANGE)) {
		piece.u.fallocate.mode = FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
		err = fs_fallocate_piece(fs, &piece, &before_lsn);
		r->u.fallocate.mode &= FALLOC_FL_KEEP_SIZE;
	}
	piece.u.fallocate.mode = FALLOC_FL_KEEP_SIZE;
	while (!err && end - r->u.fallocate.offset > FS_RESERVE_BYTES) {
		uint64_t off = r->u.fallocate.offset;

		piece.u.fallocate.offset = off;
		piece.u.fallocate.length = FS_RESERVE_BYTES - off % FS_RESERVE_BYTES;
		r->u.fallocate.offset += piece.u.fallocate.length;
		err = fs->stopping ? -EINTR : fs_fallocate_piece(fs, &piece, &lsn);
		if (!err && commit_wait_committed(fs->commit, before_lsn, fs->timeout_ns) != 0)
			err = -EIO;
		before_lsn = lsn;
	}
	r->u.fallocate.length = end - r->u.fallocate.offset;
	return err;
}

static int fs_fallocate_check(int mode, off_t offset, off_t length)
{
	int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

	if (mode != 0 && mode != FALLOC_FL_KEEP_SIZE && mode != punch &&
	    (mode & ~FALLOC_FL_KEEP_SIZE) != FALLOC_FL_ZERO_RANGE)
		return -EOPNOTSUPP;
	if (offset < 0 || length <= 0)
		return -EINVAL;
	return (uint64_t)offset + (uint64_t)length > VALUE_SIZE_MAX ? -EFBIG : 0;
}

void fs_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		  struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct record r = { .opcode = RECORD_FALLOCATE,
			    .ino = ino,
			    .timestamp_ns = clock_real_ns(),
			    .u.fallocate = { .offset = (uint64_t)offset,
					     .length = (uint64_t)length,
					     .mode = (uint32_t)mode } };
	int err = fs_fallocate_check(mode, offset, length);

	if (!err && fs_fallocate_is_long((uint32_t)mode, (uint64_t)length)) {
		err = fs->read_only ? -EROFS : 0;
		fs_worker_waits(fs); /* others answer the other requests */
		if (!err)
			err = fs_reserve_pieces(fs, &r);
		fs_worker_goes_on(fs);
		fs_metrics_progress();
	}
	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	fs_submit(fs, req, FS_REPLY_OK, &r, mode & FALLOC_FL_PUNCH_HOLE ? FS_URGENT : 0,
		  fs_regular_prepare, NULL);
}
