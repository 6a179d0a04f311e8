/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of an operation at the FUSE boundary: made by a handler, executed and queued under the
 * store's lock, answered by complete() when committed, freed by release() when no send needs its
 * bytes. See fuse_ops.h.
 */
#include "fs/fuse/fuse_ops.h"

#include "common/clock.h"
#include "common/crc32c.h"
#include "fs/fuse/fuse_ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t fs_zeros[VALUE_CHUNK_BYTES]; /* what holes read as */

struct store *fs_lock(struct fs *fs)
{
	struct store *st;

	if (fs->mirror)
		pthread_rwlock_rdlock(&fs->node->store_swap);
	st = fs->node->store;
	store_lock(st);
	return st;
}

void fs_unlock(struct fs *fs, struct store *st)
{
	store_unlock(st);
	if (fs->mirror)
		pthread_rwlock_unlock(&fs->node->store_swap);
}

static _Thread_local bool drive_held, drive_owed;

void fs_drive_hold(void)
{
	drive_held = true;
}

bool fs_drive_release(void)
{
	bool owed = drive_owed;

	drive_held = drive_owed = false;
	return owed;
}

void fs_drive(struct fs *fs)
{
	if (drive_held)
		drive_owed = true;
	else if (!fuse_ring_drives_later())
		commit_drive(fs->commit);
}

int fs_admit(struct fs *fs, uint32_t bytes, bool urgent, uint64_t deadline_ns)
{
	int err;

	if (commit_admit_now(fs->commit, bytes, urgent))
		return 0;
	if (fuse_ring_put_off()) /* it answers all of its processor's clients */
		return -EAGAIN;
	fs_worker_waits(fs);
	fuse_ring_may_block();
	commit_drive(fs->commit); /* a ring's thread would drive its group only after this wait */
	err = commit_admit(fs->commit, bytes, urgent, deadline_ns);
	fs_worker_goes_on(fs);
	return err;
}

void fs_fill_entry_locked(struct fs *fs, struct inode *in, struct fuse_entry_param *ret_e)
{
	memset(ret_e, 0, sizeof(*ret_e));
	ret_e->ino = in->ino;
	ret_e->generation = in->gen;
	ret_e->attr_timeout = fs->cache_seconds;
	ret_e->entry_timeout = fs->cache_seconds;
	store_stat_locked(in, &ret_e->attr);
	store_ref_locked(in);
}

/* Holes beyond fs_zeros can't be: a reference never spans chunks. */
int fs_reply_refs(struct fs *fs, fuse_req_t req, const struct value_ref *refs, unsigned n)
{
	struct iovec iov[OP_DATA_IOV_MAX];
	uint64_t bytes = 0;
	unsigned i;

	for (i = 0; i < n; i++) {
		const uint8_t *base = refs[i].slot ? refs[i].slot->data + refs[i].off : fs_zeros;

		iov[i].iov_base = (void *)(uintptr_t)base;
		iov[i].iov_len = refs[i].len;
		bytes += refs[i].len;
	}
	metric_add(fs->metrics.read_bytes, bytes);
	return fuse_reply_iov(req, iov, (int)n);
}

static int fs_op_answer(struct fs_op *o)
{
	struct fs *fs = o->fs;

	switch (o->reply) {
	case FS_REPLY_NONE:
		return 0;
	case FS_REPLY_OK:
		return fuse_reply_err(o->req, 0);
	case FS_REPLY_ATTR:
		return fuse_reply_attr(o->req, &o->u.attr, fs->cache_seconds);
	case FS_REPLY_ENTRY:
		return fuse_reply_entry(o->req, &o->u.entry);
	case FS_REPLY_COUNT:
		return fuse_reply_write(o->req, o->u.count);
	case FS_REPLY_BUF:
	case FS_REPLY_LIST:
		return fuse_reply_buf(o->req, (const char *)o->tail, o->u.count);
	case FS_REPLY_REFS:
		return fs_reply_refs(fs, o->req, o->refs, o->ref_count);
	case FS_REPLY_OFFSET:
		return fuse_reply_lseek(o->req, (off_t)o->u.count);
	case FS_REPLY_LENGTH:
		return fuse_reply_xattr(o->req, o->u.count);
	}
	return 0;
}

/* The kernel did not get (or want) an answer that gives it a reference. */
static void fs_op_take_back(struct fs_op *o)
{
	if (o->reply == FS_REPLY_ENTRY && o->u.entry.ino)
		fs_unref(o->fs, o->u.entry.ino, 1);
	else if (o->reply == FS_REPLY_LIST)
		fs_list_unref(o);
}

static void fs_op_complete(struct op *op, int err)
{
	struct fs_op *o = (struct fs_op *)op;

	if (o->reply == FS_REPLY_NONE)
		return;
	if (err) {
		if (o->op.head_len)
			doubt_note(o->fs->doubt, op);
		fuse_reply_err(o->req, -err);
		fs_op_take_back(o);
	} else if (fs_op_answer(o) != 0) {
		fs_op_take_back(o); /* interrupted, or the answer did not get through */
	}
	fs_metrics_answered(&o->fs->metrics, &o->timing, op, err);
}

static void fs_op_release(struct op *op)
{
	fs_op_free((struct fs_op *)op);
}

static const struct op_ops fs_op_ops = {
	.complete = fs_op_complete,
	.release = fs_op_release,
};

struct fs_op *fs_op_new(struct fs *fs, fuse_req_t req, enum fs_reply reply, size_t tail_bytes)
{
	struct fs_op *o = malloc(sizeof(*o) + tail_bytes);

	if (!o)
		return NULL;
	o->op.ops = &fs_op_ops;
	o->timing = fs_metrics_timing(req != NULL);
	o->op.deadline_ns = (req ? o->timing.due_from_ns : o->timing.queued_ns) + fs->timeout_ns;
	o->op.data_iovcnt = 0;
	o->op.data_len = 0;
	o->op.head_len = 0;
	o->op.early = false;
	o->op.admitted_bytes = 0;
	o->op.head = o->tail;
	o->fs = fs;
	o->req = req;
	o->reply = reply;
	o->ref_count = 0;
	return o;
}

void fs_op_free(struct fs_op *o)
{
	unsigned i;

	for (i = 0; i < o->ref_count; i++)
		value_ref_put(o->fs->node->slab, &o->refs[i]);
	free(o);
}

void fs_reply_after(struct fs *fs, struct fs_op *o, uint64_t lsn)
{
	o->op.lsn = lsn;
	fs_metrics_defer();
	if (fs->commit) {
		commit_wait(fs->commit, &o->op);
	} else {
		fs_op_complete(&o->op, 0);
		fs_op_free(o);
	}
}

/* The record's bytes as the log and the wire will read them: the slots, kept until release. */
static void fs_op_attach_data_locked(struct fs_op *o, const struct inode *in,
				     const struct record *r)
{
	uint64_t got = 0;
	int n = value_refs(&in->u.value, r->u.write.offset, r->data_len, o->refs, OP_DATA_IOV_MAX,
			   &got);
	int i;

	o->ref_count = (unsigned)n;
	for (i = 0; i < n; i++) {
		o->op.data[i].iov_base = o->refs[i].slot->data + o->refs[i].off;
		o->op.data[i].iov_len = o->refs[i].len;
	}
	o->op.data_iovcnt = (uint16_t)n;
	o->op.data_len = r->data_len;
}

int fs_op_execute_locked(struct fs *fs, struct store *st, struct record *r,
			 struct value_stage *stage, uint32_t data_crc, struct fs_op *o)
{
	struct inode *in = NULL;
	int err;

	r->lsn = commit_next_lsn(fs->commit);
	r->epoch = commit_epoch(fs->commit);
	err = store_apply_locked(st, r, stage);
	if (err)
		return err;
	if (o->reply == FS_REPLY_ENTRY || o->reply == FS_REPLY_ATTR || r->opcode == RECORD_WRITE)
		in = store_inode_locked(st, r->ino);
	if (o->reply == FS_REPLY_ENTRY)
		fs_fill_entry_locked(fs, in, &o->u.entry);
	else if (o->reply == FS_REPLY_ATTR)
		store_stat_locked(in, &o->u.attr);
	if (r->opcode == RECORD_WRITE)
		fs_op_attach_data_locked(o, in, r);
	o->op.lsn = r->lsn;
	o->op.head_len = (uint32_t)record_head_bytes(r);
	record_encode_head(r, o->op.head);
	record_seal(o->op.head, o->op.head_len, r->lsn, r->epoch, data_crc, r->data_len);
	if (o->req)
		fs_metrics_defer();
	commit_enqueue(fs->commit, &o->op);
	return 0;
}

/* Small data that lies in the request (xattr values): copied behind the head, for the log
 * and the wire. */
static void fs_op_attach_copy(struct fs_op *o, const struct record *r, size_t head_bytes)
{
	memcpy(o->tail + head_bytes, r->data, r->data_len);
	o->op.data[0].iov_base = o->tail + head_bytes;
	o->op.data[0].iov_len = r->data_len;
	o->op.data_iovcnt = 1;
	o->op.data_len = r->data_len;
}

static int fs_submit_op(struct fs *fs, struct fs_op *o, struct record *r, uint32_t crc,
			int (*prepare)(struct fs *fs, struct store *st, struct record *r,
				       void *arg),
			void *arg)
{
	struct store *st = fs_lock(fs);
	int err = prepare ? prepare(fs, st, r, arg) : 0;

	if (!err)
		err = fs_op_execute_locked(fs, st, r, NULL, crc, o);
	fs_unlock(fs, st);
	return err;
}

void fs_submit(struct fs *fs, fuse_req_t req, enum fs_reply reply, struct record *r, unsigned how,
	       int (*prepare)(struct fs *fs, struct store *st, struct record *r, void *arg),
	       void *arg)
{
	size_t head_bytes = record_head_bytes(r);
	uint32_t bytes = (uint32_t)(head_bytes + r->data_len), crc = 0;
	struct fs_op *o;
	int err = -EROFS;

	if (fs->read_only)
		goto refuse;
	err = -ENOMEM;
	o = fs_op_new(fs, req, reply, bytes);
	if (!o)
		goto refuse;
	if (req)
		err = fs_admit(fs, bytes, how & FS_URGENT, o->op.deadline_ns);
	else /* nobody waits for it, and the caller may be answering others: never wait */
		err = commit_admit_now(fs->commit, bytes, how & FS_URGENT) ? 0 : -EAGAIN;
	if (err)
		goto free_op;
	o->op.admitted_bytes = bytes;
	o->op.early = how & FS_EARLY;
	if (r->data_len) {
		fs_op_attach_copy(o, r, head_bytes);
		crc = crc32c(0, r->data, r->data_len);
	}
	err = fs_submit_op(fs, o, r, crc, prepare, arg);
	if (!err) {
		if (req)
			fs_drive(fs);
		return;
	}
	commit_unadmit(fs->commit, bytes);
free_op:
	fs_op_free(o);
refuse:
	if (r->opcode == RECORD_INODE_FREE && (err == -EAGAIN || err == -ENOMEM))
		atomic_store_explicit(&fs->orphans_left, true, memory_order_relaxed);
	if (req)
		fuse_reply_err(req, -err);
}

static int fs_orphan_prepare(struct fs *fs, struct store *st, struct record *r, void *arg)
{
	const struct inode *in = store_inode_locked(st, r->ino);

	return in && in->nlink == 0 && in->lookups == 0 ? 0 : -ENOENT;
}

void fs_free_inodes(struct fs *fs, const uint64_t *inos, unsigned n)
{
	unsigned i;

	for (i = 0; i < n && !fs->read_only; i++) {
		struct record r = {
			.opcode = RECORD_INODE_FREE,
			.ino = inos[i],
			.timestamp_ns = clock_real_ns(),
		};

		fs_submit(fs, NULL, FS_REPLY_NONE, &r, FS_URGENT, fs_orphan_prepare, NULL);
	}
	if (i > 0)
		fs_drive(fs);
}

void fs_unref(struct fs *fs, uint64_t ino, uint64_t n)
{
	struct store *st = fs_lock(fs);
	struct inode *in = store_inode_locked(st, ino);
	bool orphan = false;

	/* a resync may have given a mirror another inode of that number: never below zero */
	if (in && ino != STORE_ROOT_INO)
		orphan = store_forget_locked(st, in, n < in->lookups ? n : in->lookups);
	fs_unlock(fs, st);
	if (orphan && !fs->mirror)
		fs_free_inodes(fs, &ino, 1);
}
