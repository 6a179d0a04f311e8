/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that change nothing (but kernel references and access times): lookup, forget, getattr,
 * readlink, read, lseek, statfs, fsync. Each takes its snapshot under the store's lock and answers
 * at once when all of it is committed, else when the commit point gets there.
 */
#include "fs/fuse/fuse_ops.h"

#include "common/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define FS_BLOCK_BYTES 4096
#define FS_ATIME_MAX_AGE_NS (24LL * 3600 * (int64_t)NSEC_PER_SEC)

static void fs_lookup_wait(struct fs *fs, fuse_req_t req, const struct fuse_entry_param *e,
			   uint64_t lsn)
{
	struct fs_op *o = fs_op_new(fs, req, FS_REPLY_ENTRY, 0);

	if (!o) {
		fuse_reply_err(req, ENOMEM);
		if (e->ino)
			fs_unref(fs, e->ino, 1);
		return;
	}
	o->u.entry = *e;
	fs_reply_after(fs, o, lsn);
}

void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *fs = fs_of(req);
	struct fuse_entry_param e = { .entry_timeout = fs->cache_seconds };
	size_t len = strlen(name);
	struct inode *dir, *in = NULL;
	struct store *st;
	uint64_t lsn = 0;
	int err = 0;

	if (len > RECORD_NAME_MAX) {
		fuse_reply_err(req, ENAMETOOLONG);
		return;
	}
	st = fs_lock(fs);
	dir = store_inode_locked(st, parent);
	if (!dir) {
		err = ENOENT;
	} else if (!S_ISDIR(dir->mode)) {
		err = ENOTDIR;
	} else {
		in = store_lookup_locked(st, dir, name, len);
		/* a name that is there is as new as its inode (link and rename touch it); one that
		 * is not, as its directory */
		lsn = in ? in->last_lsn : dir->last_lsn;
		if (in)
			fs_fill_entry_locked(fs, in, &e);
	}
	fs_unlock(fs, st);
	if (err) {
		fuse_reply_err(req, err);
	} else if (!fs_committed(fs, lsn)) {
		fs_lookup_wait(fs, req, &e, lsn);
	} else if (!in && fs->mirror) {
		fuse_reply_err(req, ENOENT);
	} else if (fuse_reply_entry(req, &e) != 0 && e.ino) {
		fs_unref(fs, e.ino, 1); /* whatever the error: the kernel did not get it */
	}
}

void fs_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	struct fs *fs = fs_of(req);

	fuse_reply_none(req);
	fs_unref(fs, ino, nlookup);
}

/* The orphans among some forgotten inodes, at most FORGET_BATCH. */
#define FORGET_BATCH 64

static unsigned fs_forget_some(struct fs *fs, const struct fuse_forget_data *forgets, size_t count,
			       uint64_t orphans[FORGET_BATCH])
{
	struct store *st = fs_lock(fs);
	unsigned n = 0;
	size_t i;

	for (i = 0; i < count; i++) {
		struct inode *in = store_inode_locked(st, forgets[i].ino);
		uint64_t refs = forgets[i].nlookup;

		if (!in || in->ino == STORE_ROOT_INO)
			continue;
		if (refs > in->lookups)
			refs = in->lookups;
		if (store_forget_locked(st, in, refs))
			orphans[n++] = in->ino;
	}
	fs_unlock(fs, st);
	return n;
}

void fs_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	struct fs *fs = fs_of(req);
	uint64_t orphans[FORGET_BATCH];
	size_t at, step;

	for (at = 0; at < count; at += step) {
		unsigned n;

		step = count - at < FORGET_BATCH ? count - at : FORGET_BATCH;
		n = fs_forget_some(fs, forgets + at, step, orphans);
		if (!fs->mirror)
			fs_free_inodes(fs, orphans, n);
	}
	fuse_reply_none(req);
}

void fs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct store *st = fs_lock(fs);
	struct inode *in = store_inode_locked(st, ino);
	struct stat attr;
	uint64_t lsn = 0;
	struct fs_op *o;

	if (in) {
		store_stat_locked(in, &attr);
		lsn = in->last_lsn;
	}
	fs_unlock(fs, st);
	if (!in) {
		fuse_reply_err(req, ENOENT);
	} else if (fs_committed(fs, lsn)) {
		fuse_reply_attr(req, &attr, fs->cache_seconds);
	} else if (!(o = fs_op_new(fs, req, FS_REPLY_ATTR, 0))) {
		fuse_reply_err(req, ENOMEM);
	} else {
		o->u.attr = attr;
		fs_reply_after(fs, o, lsn);
	}
}

void fs_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct fs *fs = fs_of(req);
	char target[RECORD_SYMLINK_MAX + 1];
	struct inode *in;
	struct store *st;
	bool atime = false;
	int err = 0;

	st = fs_lock(fs);
	in = store_inode_locked(st, ino);
	if (!in) {
		err = ENOENT;
	} else if (!S_ISLNK(in->mode)) {
		err = EINVAL;
	} else {
		memcpy(target, in->u.target, strlen(in->u.target) + 1);
		atime = fs_atime_is_due_locked(fs, in);
	}
	fs_unlock(fs, st);
	if (atime)
		fs_touch_atime(fs, ino);
	/* a target never changes, and whoever asks has looked the link up: it is committed */
	if (err)
		fuse_reply_err(req, err);
	else
		fuse_reply_readlink(req, target);
	if (atime)
		fs_drive(fs);
}

bool fs_atime_is_due_locked(const struct fs *fs, const struct inode *in)
{
	int64_t atime = (int64_t)in->atime_ns;

	return !fs->noatime && !fs->read_only && !(fs->nodiratime && S_ISDIR(in->mode)) &&
	       (atime <= (int64_t)in->mtime_ns || atime <= (int64_t)in->ctime_ns ||
		atime < (int64_t)clock_real_ns() - FS_ATIME_MAX_AGE_NS);
}

static void fs_read_wait(struct fs *fs, fuse_req_t req, const struct value_ref *refs, unsigned n,
			 uint64_t lsn)
{
	struct fs_op *o = fs_op_new(fs, req, FS_REPLY_REFS, 0);
	unsigned i;

	if (!o) {
		fuse_reply_err(req, ENOMEM);
		for (i = 0; i < n; i++)
			value_ref_put(fs->node->slab, &refs[i]);
		return;
	}
	memcpy(o->refs, refs, n * sizeof(*refs));
	o->ref_count = n;
	fs_reply_after(fs, o, lsn);
}

void fs_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct value_ref refs[OP_DATA_IOV_MAX];
	uint64_t lsn = 0, got = 0;
	struct store *st = fs_lock(fs);
	struct inode *in = store_inode_locked(st, ino);
	bool atime = false;
	int n = 0, err = 0, i;

	if (!in) {
		err = ENOENT;
	} else if (!S_ISREG(in->mode)) {
		err = S_ISDIR(in->mode) ? EISDIR : EINVAL;
	} else {
		n = value_refs(&in->u.value, (uint64_t)off, size, refs, OP_DATA_IOV_MAX, &got);
		lsn = in->last_lsn;
		atime = !(fi->flags & O_NOATIME) && fs_atime_is_due_locked(fs, in);
	}
	fs_unlock(fs, st);
	if (err) {
		fuse_reply_err(req, err);
		return;
	}
	if (atime)
		fs_touch_atime(fs, ino);
	if (!fs_committed(fs, lsn)) {
		fs_read_wait(fs, req, refs, (unsigned)n, lsn);
	} else {
		fs_reply_refs(fs, req, refs, (unsigned)n);
		for (i = 0; i < n; i++)
			value_ref_put(fs->node->slab, &refs[i]);
	}
	if (atime)
		fs_drive(fs);
}

void fs_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	uint64_t at = 0, lsn = 0;
	struct fs_op *o;
	struct store *st = fs_lock(fs);
	struct inode *in = store_inode_locked(st, ino);
	int err = 0;

	if (!in)
		err = -ENOENT;
	else if (!S_ISREG(in->mode) || off < 0 || (whence != SEEK_HOLE && whence != SEEK_DATA))
		err = off < 0 ? -ENXIO : -EINVAL;
	else
		err = value_seek(&in->u.value, (uint64_t)off, whence == SEEK_HOLE, &at);
	if (in)
		lsn = in->last_lsn;
	fs_unlock(fs, st);
	if (err) {
		fuse_reply_err(req, -err);
	} else if (fs_committed(fs, lsn)) {
		fuse_reply_lseek(req, (off_t)at);
	} else if (!(o = fs_op_new(fs, req, FS_REPLY_OFFSET, 0))) {
		fuse_reply_err(req, ENOMEM);
	} else {
		o->u.count = at;
		fs_reply_after(fs, o, lsn);
	}
}

void fs_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct fs *fs = fs_of(req);
	struct statvfs sv = { .f_bsize = FS_BLOCK_BYTES,
			      .f_frsize = FS_BLOCK_BYTES,
			      .f_namemax = RECORD_NAME_MAX };
	struct store_stats stats;
	struct store *st = fs_lock(fs);

	store_stats_locked(st, &stats);
	fs_unlock(fs, st);
	sv.f_blocks = fs->node->arena_bytes / FS_BLOCK_BYTES;
	sv.f_bavail = slab_available_bytes(fs->node->slab) / FS_BLOCK_BYTES;
	sv.f_bfree = slab_free_bytes(fs->node->slab) / FS_BLOCK_BYTES;
	if (sv.f_bfree > sv.f_blocks)
		sv.f_bfree = sv.f_blocks; /* the pool is a little larger than the arena */
	if (sv.f_bavail > sv.f_bfree)
		sv.f_bavail = sv.f_bfree; /* something was freed between the two */
	sv.f_files = fs->node->inodes_max;
	sv.f_ffree = stats.inodes < sv.f_files ? sv.f_files - stats.inodes : 0;
	sv.f_favail = sv.f_ffree;
	fuse_reply_statfs(req, &sv);
}

/* Everything acknowledged is durable already: what is left to wait for is what is
 * not acknowledged yet. */
void fs_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct store *st = fs_lock(fs);
	struct inode *in = store_inode_locked(st, ino);
	uint64_t lsn = in ? in->last_lsn : 0;
	struct fs_op *o;

	fs_unlock(fs, st);
	if (fs->node->failed)
		fuse_reply_err(req, EIO);
	else if (fs_committed(fs, lsn))
		fuse_reply_err(req, 0);
	else if (!(o = fs_op_new(fs, req, FS_REPLY_OK, 0)))
		fuse_reply_err(req, ENOMEM);
	else
		fs_reply_after(fs, o, lsn);
}
