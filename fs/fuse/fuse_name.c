/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of names: mknod (also what open(O_CREAT) becomes), mkdir, symlink, link, unlink, rmdir,
 * rename. The kernel has checked permissions and the sticky bit (default_permissions). See
 * fuse_ops.h.
 */
#include "fs/fuse/fuse_ops.h"

#include "common/clock.h"

#include <errno.h>
#include <string.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE 2
#endif

/* False: answered already. */
static bool fs_name_ok(fuse_req_t req, const char *name)
{
	if (strlen(name) <= RECORD_NAME_MAX)
		return true;
	fuse_reply_err(req, ENAMETOOLONG);
	return false;
}

static void fs_record_name(struct record *r, const char *name)
{
	r->name = name;
	r->name_len = (uint32_t)strlen(name);
}

/* The new inode's number, and what a setgid directory gives to what is made in it (inode(7)). */
static int fs_create_prepare(struct fs *fs, struct store *st, struct record *r, void *arg)
{
	struct inode *dir;
	int err = store_parent_locked(st, r->u.create.parent_ino, &dir);

	if (err)
		return err;
	r->ino = store_next_ino_locked(st);
	if (dir->mode & S_ISGID) {
		r->u.create.gid = dir->gid;
		if (S_ISDIR(r->u.create.mode))
			r->u.create.mode |= S_ISGID;
	}
	return 0;
}

static void fs_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev,
		      const char *target)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct record r = {
		.opcode = RECORD_CREATE, .timestamp_ns = clock_real_ns(),
		.u.create = { .parent_ino = parent, .mode = mode, .uid = ctx->uid, .gid = ctx->gid,
			      .rdev = (uint32_t)rdev },
	};

	if (!fs_name_ok(req, name))
		return;
	fs_record_name(&r, name);
	if (target) {
		r.name2 = target;
		r.name2_len = (uint32_t)strlen(target);
		if (r.name2_len == 0 || r.name2_len > RECORD_SYMLINK_MAX) {
			fuse_reply_err(req, r.name2_len ? ENAMETOOLONG : ENOENT);
			return;
		}
	}
	fs_submit(fs_of(req), req, FS_REPLY_ENTRY, &r, 0, fs_create_prepare, NULL);
}

void fs_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	bool device = S_ISCHR(mode) || S_ISBLK(mode);

	fs_create(req, parent, name, mode & S_IFMT ? mode : mode | S_IFREG, device ? rdev : 0,
		  NULL);
}

void fs_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	fs_create(req, parent, name, (mode & 07777) | S_IFDIR, 0, NULL);
}

void fs_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	fs_create(req, parent, name, S_IFLNK | 0777, 0, target);
}

static int fs_link_prepare(struct fs *fs, struct store *st, struct record *r, void *arg)
{
	struct inode *in = store_inode_locked(st, r->ino), *dir;

	if (!in || in->nlink == 0)
		return -ENOENT;
	if (S_ISDIR(in->mode))
		return -EPERM;
	return store_parent_locked(st, r->u.link.parent_ino, &dir);
}

void fs_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
	struct record r = {
		.opcode = RECORD_LINK,
		.ino = ino,
		.timestamp_ns = clock_real_ns(),
		.u.link.parent_ino = newparent,
	};

	if (!fs_name_ok(req, newname))
		return;
	fs_record_name(&r, newname);
	fs_submit(fs_of(req), req, FS_REPLY_ENTRY, &r, 0, fs_link_prepare, NULL);
}

static int fs_unlink_prepare(struct fs *fs, struct store *st, struct record *r, void *arg)
{
	struct inode *dir, *in;
	int err = store_parent_locked(st, r->u.unlink.parent_ino, &dir);

	if (err)
		return err;
	in = store_lookup_locked(st, dir, r->name, r->name_len);
	if (!in)
		return -ENOENT;
	r->ino = in->ino;
	return 0;
}

static void fs_remove(fuse_req_t req, fuse_ino_t parent, const char *name, bool is_dir)
{
	struct record r = {
		.opcode = RECORD_UNLINK, .timestamp_ns = clock_real_ns(),
		.u.unlink = { .parent_ino = parent, .is_dir = is_dir },
	};

	if (!fs_name_ok(req, name))
		return;
	fs_record_name(&r, name);
	fs_submit(fs_of(req), req, FS_REPLY_OK, &r, FS_URGENT, fs_unlink_prepare, NULL);
}

void fs_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	fs_remove(req, parent, name, false);
}

void fs_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	fs_remove(req, parent, name, true);
}

static int fs_rename_prepare(struct fs *fs, struct store *st, struct record *r, void *arg)
{
	unsigned flags = *(const unsigned *)arg;
	struct inode *from, *to, *in, *target;
	int err = store_parent_locked(st, r->u.rename.old_parent_ino, &from);

	if (!err)
		err = store_parent_locked(st, r->u.rename.new_parent_ino, &to);
	if (err)
		return err;
	in = store_lookup_locked(st, from, r->name, r->name_len);
	target = store_lookup_locked(st, to, r->name2, r->name2_len);
	if (!in || (!target && (flags & RENAME_EXCHANGE)))
		return -ENOENT;
	if (target && (flags & RENAME_NOREPLACE))
		return -EEXIST;
	r->ino = in->ino;
	r->u.rename.target_ino = target ? target->ino : 0;
	r->u.rename.flags = flags & RENAME_EXCHANGE;
	return 0;
}

void fs_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	       const char *newname, unsigned flags)
{
	struct record r = {
		.opcode = RECORD_RENAME, .timestamp_ns = clock_real_ns(),
		.u.rename = { .old_parent_ino = parent, .new_parent_ino = newparent },
	};

	if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE)) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	if (!fs_name_ok(req, name) || !fs_name_ok(req, newname))
		return;
	fs_record_name(&r, name);
	r.name2 = newname;
	r.name2_len = (uint32_t)strlen(newname);
	fs_submit(fs_of(req), req, FS_REPLY_OK, &r, 0, fs_rename_prepare, &flags);
}
