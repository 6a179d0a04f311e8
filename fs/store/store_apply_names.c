/* SPDX-License-Identifier: Apache-2.0 */
/* CREATE, LINK, UNLINK and RENAME: see store_apply.c for the rules they share. */
#include "fs/store/store_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NLINK_MAX UINT32_MAX
#define RENAME_FLAG_EXCHANGE 2U

static int check_new_name(struct store *st, const struct inode *dir, const void *name, uint32_t len)
{
	if (len == 0)
		return -EINVAL;
	if (len > RECORD_NAME_MAX)
		return -ENAMETOOLONG;
	return store_name_find_locked(st, dir->ino, name, len) ? -EEXIST : 0;
}

/* A name for dir with room for it there, not yet visible. */
static int prepare_name(struct inode *dir, const void *text, uint32_t len, struct name **ret_name)
{
	struct name *n;

	if (store_dir_reserve(dir->u.dir))
		return -ENOMEM;
	n = store_name_alloc(dir->ino, text, len);
	if (!n)
		return -ENOMEM;
	*ret_name = n;
	return 0;
}

/* The directory's inode was touched by the caller. */
static void add_name(struct store *st, struct inode *dir, struct name *n, uint64_t ino)
{
	n->ino = ino;
	n->cookie = dir->u.dir->next_cookie++;
	store_name_add_locked(st, n);
	store_dir_append(dir->u.dir, n);
	image_name_touch(st->image, n);
}

static void remove_name(struct store *st, struct inode *dir, struct name *n)
{
	bool kept = image_name_gone(st->image, n);

	store_dir_remove(dir->u.dir, n);
	store_name_remove_locked(st, n);
	if (!kept)
		free(n);
}

/* One name less refers to in; a directory is empty then and has none left. */
static void drop_link(struct store *st, struct inode *parent, struct inode *in)
{
	if (S_ISDIR(in->mode)) {
		in->nlink = 0;
		parent->nlink--;
	} else {
		in->nlink--;
	}
	if (in->nlink == 0)
		st->orphans++;
}

static int check_create(struct store *st, const struct record *r, struct inode **ret_dir)
{
	uint32_t mode = r->u.create.mode;
	struct inode *dir = NULL;
	int err = store_parent_locked(st, r->u.create.parent_ino, &dir);

	if (!err)
		err = check_new_name(st, dir, r->name, r->name_len);
	if (err)
		return err;
	if (!S_ISREG(mode) && !S_ISDIR(mode) && !S_ISLNK(mode) && !S_ISFIFO(mode) &&
	    !S_ISSOCK(mode) && !S_ISCHR(mode) && !S_ISBLK(mode))
		return -EINVAL;
	if (S_ISLNK(mode) ? r->name2_len == 0 || memchr(r->name2, 0, r->name2_len) :
			    r->name2_len != 0)
		return -EINVAL;
	if (r->name2_len > RECORD_SYMLINK_MAX)
		return -ENAMETOOLONG;
	if (S_ISDIR(mode) && dir->nlink == NLINK_MAX)
		return -EMLINK;
	if (r->ino != st->next_ino)
		return -ENXIO;
	if (st->inodes.count >= st->cfg.inodes_max)
		return -ENOSPC;
	*ret_dir = dir;
	return 0;
}

static void fill_created(struct inode *in, const struct record *r)
{
	in->gen = (uint32_t)r->gen;
	in->uid = r->u.create.uid;
	in->gid = r->u.create.gid;
	in->rdev = r->u.create.rdev;
	in->nlink = S_ISDIR(in->mode) ? 2 : 1;
	in->atime_ns = in->mtime_ns = in->ctime_ns = r->timestamp_ns;
	in->last_lsn = r->lsn;
}

int store_apply_create(struct store *st, const struct record *r)
{
	char *target = NULL;
	struct inode *dir, *in;
	struct name *n;
	int err = check_create(st, r, &dir);

	if (err)
		return err;
	in = store_inode_alloc(r->ino, r->u.create.mode);
	if (!in)
		return -ENOMEM;
	if (S_ISLNK(in->mode)) {
		target = strndup(r->name2, r->name2_len);
		in->u.target = target;
	}
	if ((S_ISLNK(in->mode) && !target) || prepare_name(dir, r->name, r->name_len, &n)) {
		free(target);
		if (S_ISDIR(in->mode))
			store_dir_free(in->u.dir);
		free(in);
		return -ENOMEM;
	}
	fill_created(in, r);
	st->next_ino++;
	store_inode_add_locked(st, in);
	image_inode_touch(st->image, in);
	store_touch_modify(st, dir, r);
	add_name(st, dir, n, in->ino);
	if (S_ISDIR(in->mode)) {
		in->u.parent_ino = dir->ino;
		dir->nlink++;
	}
	return 0;
}

int store_apply_link(struct store *st, const struct record *r)
{
	struct inode *in = store_inode_locked(st, r->ino);
	struct inode *dir;
	struct name *n;
	int err;

	if (!in || in->nlink == 0)
		return -ENOENT;
	if (S_ISDIR(in->mode))
		return -EPERM;
	err = store_parent_locked(st, r->u.link.parent_ino, &dir);
	if (!err)
		err = check_new_name(st, dir, r->name, r->name_len);
	if (!err && in->nlink == NLINK_MAX)
		err = -EMLINK;
	if (!err)
		err = prepare_name(dir, r->name, r->name_len, &n);
	if (err)
		return err;
	store_touch_change(st, in, r);
	in->nlink++;
	store_touch_modify(st, dir, r);
	add_name(st, dir, n, in->ino);
	return 0;
}

int store_apply_unlink(struct store *st, const struct record *r)
{
	struct inode *dir, *in;
	struct name *n;
	int err = store_parent_locked(st, r->u.unlink.parent_ino, &dir);

	if (err)
		return err;
	n = store_name_find_locked(st, dir->ino, r->name, r->name_len);
	if (!n)
		return -ENOENT;
	if (n->ino != r->ino)
		return -EINVAL;
	in = store_inode_locked(st, n->ino);
	if (r->u.unlink.is_dir && !S_ISDIR(in->mode))
		return -ENOTDIR;
	if (!r->u.unlink.is_dir && S_ISDIR(in->mode))
		return -EISDIR;
	if (S_ISDIR(in->mode) && in->u.dir->live)
		return -ENOTEMPTY;
	store_touch_change(st, in, r);
	store_touch_modify(st, dir, r);
	remove_name(st, dir, n);
	drop_link(st, dir, in);
	return 0;
}

/* Everything a RENAME refers to. */
struct rename_ctx {
	struct inode *old_dir, *new_dir, *in;
	struct inode *target;  /* NULL: the new name is free */
	struct name *old_name, *new_name;
	bool exchange;
};

/* dir is in, or lies below it. */
static bool is_below(struct store *st, const struct inode *dir, const struct inode *in)
{
	while (dir->ino != in->ino && dir->ino != STORE_ROOT_INO) {
		dir = store_inode_locked(st, dir->u.parent_ino);
		if (!dir)
			return false;
	}
	return dir->ino == in->ino;
}

static int find_rename(struct store *st, const struct record *r, struct rename_ctx *x)
{
	int err = store_parent_locked(st, r->u.rename.old_parent_ino, &x->old_dir);

	if (!err)
		err = store_parent_locked(st, r->u.rename.new_parent_ino, &x->new_dir);
	if (err)
		return err;
	if (r->u.rename.flags & ~RENAME_FLAG_EXCHANGE)
		return -EINVAL;
	x->exchange = r->u.rename.flags & RENAME_FLAG_EXCHANGE;
	x->old_name = store_name_find_locked(st, x->old_dir->ino, r->name, r->name_len);
	if (!x->old_name)
		return -ENOENT;
	if (x->old_name->ino != r->ino)
		return -EINVAL;
	x->in = store_inode_locked(st, r->ino);
	x->new_name = store_name_find_locked(st, x->new_dir->ino, r->name2, r->name2_len);
	if (x->new_name)
		x->target = store_inode_locked(st, x->new_name->ino);
	if ((x->new_name ? x->new_name->ino : 0) != r->u.rename.target_ino)
		return -EINVAL;
	if (x->exchange && !x->new_name)
		return -ENOENT;
	if (!x->new_name)
		err = check_new_name(st, x->new_dir, r->name2, r->name2_len);
	return err;
}

static int check_rename(struct store *st, const struct rename_ctx *x)
{
	bool moves_dir = S_ISDIR(x->in->mode);
	bool target_is_dir = x->target && S_ISDIR(x->target->mode);

	if (moves_dir && is_below(st, x->new_dir, x->in))
		return -EINVAL;
	if (x->exchange && target_is_dir && is_below(st, x->old_dir, x->target))
		return -EINVAL;
	if (x->old_dir != x->new_dir) {
		if (moves_dir && !target_is_dir && x->new_dir->nlink == NLINK_MAX)
			return -EMLINK;
		if (x->exchange && target_is_dir && !moves_dir && x->old_dir->nlink == NLINK_MAX)
			return -EMLINK;
	}
	if (x->exchange || !x->target)
		return 0;
	if (target_is_dir && !moves_dir)
		return -EISDIR;
	if (moves_dir && !target_is_dir)
		return -ENOTDIR;
	if (target_is_dir && x->target->u.dir->live)
		return -ENOTEMPTY;
	return 0;
}

/* The directory in, touched already, moves from one parent to another (touched too). */
static void reparent(struct inode *in, struct inode *from, struct inode *to)
{
	if (!S_ISDIR(in->mode))
		return;
	from->nlink--;
	to->nlink++;
	in->u.parent_ino = to->ino;
}

static void do_exchange(struct store *st, struct rename_ctx *x)
{
	image_name_touch(st->image, x->old_name);
	image_name_touch(st->image, x->new_name);
	x->old_name->ino = x->target->ino;
	x->new_name->ino = x->in->ino;
	reparent(x->in, x->old_dir, x->new_dir);
	reparent(x->target, x->new_dir, x->old_dir);
}

int store_apply_rename(struct store *st, const struct record *r)
{
	struct rename_ctx x = { 0 };
	struct name *fresh = NULL;
	int err = find_rename(st, r, &x);

	if (err)
		return err;
	if (x.target == x.in)
		return 0; /* two names of one file: rename(2) does nothing */
	err = check_rename(st, &x);
	if (!err && !x.new_name)
		err = prepare_name(x.new_dir, r->name2, r->name2_len, &fresh);
	if (err)
		return err;
	store_touch_change(st, x.in, r);
	if (x.target)
		store_touch_change(st, x.target, r);
	store_touch_modify(st, x.old_dir, r);
	store_touch_modify(st, x.new_dir, r);
	if (x.exchange) {
		do_exchange(st, &x);
		return 0;
	}
	remove_name(st, x.old_dir, x.old_name);
	if (x.target) {
		drop_link(st, x.new_dir, x.target);
		image_name_touch(st->image, x.new_name); /* keeps its cookie, and so its place */
		x.new_name->ino = x.in->ino;
	} else {
		add_name(st, x.new_dir, fresh, x.in->ino);
	}
	reparent(x.in, x.old_dir, x.new_dir);
	return 0;
}
