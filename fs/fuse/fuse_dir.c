/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readdir and readdirplus. Offsets are the names' cookies, so a listing goes on correctly while the
 * directory changes. A plus entry gives the kernel a reference to its inode ("." and ".." do not):
 * the inode numbers are kept behind the answer's bytes so that they can be taken back when the
 * answer can't be sent.
 */
#include "fs/fuse/fuse_ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct fs_listing {
	struct fs_op *o;
	size_t size;       /* capacity for the answer's bytes */
	size_t used;
	bool plus;
	bool atime;        /* the directory's is to move */
	uint64_t lsn;      /* newest change of what is listed */
	uint64_t *inos;    /* plus: references given */
	unsigned ino_count;
};

/* A plus entry takes at least this many bytes, so that many references at most. */
#define FS_PLUS_ENTRY_BYTES 152

static size_t fs_listing_room(size_t size, bool plus)
{
	size_t aligned = (size + 7) & ~(size_t)7;

	return aligned + (plus ? (size / FS_PLUS_ENTRY_BYTES + 1) * sizeof(uint64_t) : 0);
}

/* False: no room left. */
static bool fs_listing_add_locked(struct fs *fs, struct store *st, struct fs_listing *l,
				  const struct store_dirent *e)
{
	char name[RECORD_NAME_MAX + 1];
	struct fuse_entry_param entry = { .ino = 0 };
	struct inode *in = NULL;
	size_t need, left = l->size - l->used;
	char *at = (char *)l->o->tail + l->used;

	memcpy(name, e->name, e->name_len);
	name[e->name_len] = '\0';
	entry.attr.st_ino = e->ino;
	entry.attr.st_mode = e->mode;
	if (!l->plus) {
		need = fuse_add_direntry(l->o->req, at, left, name, &entry.attr, (off_t)e->cookie);
		l->used += need <= left ? need : 0;
		return need <= left;
	}
	if (fuse_add_direntry_plus(l->o->req, NULL, 0, name, NULL, 0) > left)
		return false;
	if (e->cookie > 2) {
		in = store_inode_locked(st, e->ino);
		fs_fill_entry_locked(fs, in, &entry);
		l->inos[l->ino_count++] = e->ino;
		if (in->last_lsn > l->lsn)
			l->lsn = in->last_lsn;
	}
	l->used += fuse_add_direntry_plus(l->o->req, at, left, name, &entry, (off_t)e->cookie);
	return true;
}

static int fs_listing_fill(struct fs *fs, fuse_ino_t ino, uint64_t after, struct fs_listing *l)
{
	struct store *st = fs_lock(fs);
	struct inode *dir = store_inode_locked(st, ino);
	struct store_dirent e;
	int err = 0;

	if (!dir || !S_ISDIR(dir->mode)) {
		err = dir ? -ENOTDIR : -ENOENT;
	} else {
		l->lsn = dir->last_lsn;
		l->atime = fs_atime_is_due_locked(fs, dir);
		while (store_readdir_locked(st, dir, after, &e) &&
		       fs_listing_add_locked(fs, st, l, &e))
			after = e.cookie;
	}
	fs_unlock(fs, st);
	return err;
}

static void fs_list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus)
{
	struct fs *fs = fs_of(req);
	struct fs_listing l = { .size = size, .plus = plus };
	int err;

	l.o = fs_op_new(fs, req, plus ? FS_REPLY_LIST : FS_REPLY_BUF, fs_listing_room(size, plus));
	if (!l.o) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	l.inos = (uint64_t *)(void *)(l.o->tail + ((size + 7) & ~(size_t)7));
	err = fs_listing_fill(fs, ino, (uint64_t)off, &l);
	if (err) {
		fuse_reply_err(req, -err);
		fs_op_free(l.o);
		return;
	}
	if (l.atime)
		fs_touch_atime(fs, ino);
	l.o->u.count = l.used;
	l.o->op.head = (uint8_t *)l.inos;
	l.o->op.data_len = l.ino_count;
	fs_reply_after(fs, l.o, l.lsn);
	if (l.atime)
		fs_drive(fs);
}

void fs_list_unref(struct fs_op *o)
{
	const uint64_t *inos = (const uint64_t *)(const void *)o->op.head;
	uint32_t i;

	for (i = 0; i < o->op.data_len; i++)
		fs_unref(o->fs, inos[i], 1);
}

void fs_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	fs_list(req, ino, size, off, false);
}

void fs_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	fs_list(req, ino, size, off, true);
}
