/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of loading a checkpoint: puts names into their directories in cookie order and checks
 * that all that was loaded fits together. Counts nothing into the state that the items did not say.
 * Under the store's lock.
 */
#include "fs/store/image_internal.h"

#include <errno.h>
#include <stdlib.h>

struct linker {
	struct image *im;
	struct store *st;
	const char *why;
	struct inode *dir;    /* of the name before: the next one is often in it too */
	size_t inodes, names; /* walked */
};

static int bad(struct linker *x, const char *why)
{
	x->why = why;
	return -EBADMSG;
}

/* A name: to its directory (unsorted), and one more for the inode it refers to. */
static int link_name(struct linker *x, struct name *n)
{
	struct inode *dir = x->dir && x->dir->ino == n->parent_ino ?
				    x->dir :
				    store_inode_locked(x->st, n->parent_ino);
	struct inode *in = store_inode_locked(x->st, n->ino);

	if (!dir || !S_ISDIR(dir->mode) || dir->nlink == 0)
		return bad(x, "a name is in no directory");
	x->dir = dir;
	if (!in || in->mode == 0)
		return bad(x, "a name refers to no inode");
	if (n->cookie >= dir->u.dir->next_cookie)
		return bad(x, "a name's cookie is above its directory's next");
	if (S_ISDIR(in->mode)) {
		if (in->u.parent_ino != dir->ino || in->ino == STORE_ROOT_INO)
			return bad(x, "a directory is named outside its parent");
		dir->lookups++;
	}
	in->lookups++;
	if (store_dir_reserve(dir->u.dir))
		return -ENOMEM;
	store_dir_append(dir->u.dir, n);
	return 0;
}

/* Links of in as its names and subdirectories, counted in lookups, say. */
static bool links_match(const struct inode *in)
{
	if (!S_ISDIR(in->mode))
		return in->lookups == in->nlink;
	if (in->nlink == 0)
		return in->lookups == 0 && in->u.dir->live == 0;
	/* subdirectories, and its own name, which the root has not; "." and the name make two */
	return in->lookups + (in->ino == STORE_ROOT_INO ? 2 : 1) == in->nlink;
}

static int check_chunk(void *ctx, struct value_chunk *c)
{
	const struct inode *in = ctx;

	return c->slot->cap < value_chunk_valid(&in->u.value, c->idx);
}

/* A directory that has a name must hang below the root: a cycle hangs nowhere. */
static bool hangs_below_root(struct linker *x, const struct inode *in)
{
	size_t limit = x->st->inodes.count;

	for (size_t steps = 0; in && steps <= limit; steps++) {
		if (in->ino == STORE_ROOT_INO)
			return true;
		if (!S_ISDIR(in->mode) || in->nlink == 0)
			return false;
		in = store_inode_locked(x->st, in->u.parent_ino);
	}
	return false;
}

static int check_inode(struct linker *x, struct inode *in)
{
	if (in->ino >= x->st->next_ino)
		return bad(x, "an inode number is above the next");
	if (!links_match(in))
		return bad(x, "a link count is wrong");
	if (S_ISDIR(in->mode) && in->nlink && !hangs_below_root(x, in))
		return bad(x, "directories form a cycle");
	if (S_ISDIR(in->mode) && !store_dir_sort(in->u.dir))
		return bad(x, "two names have one cookie");
	if (S_ISREG(in->mode) && value_each_chunk(&in->u.value, check_chunk, in))
		return bad(x, "a chunk is shorter than its value needs");
	in->lookups = 0;
	if (in->nlink == 0)
		x->st->orphans++;
	if (S_ISREG(in->mode))
		x->st->value_bytes += in->u.value.size;
	return 0;
}

/* Everything that was loaded is on a list, in the order it was written, which memory
 * and cookies follow. */
static int walk_list(struct linker *x, struct cds_list_head *list, bool inodes)
{
	struct image_obj *obj;
	int err = 0;

	cds_list_for_each_entry(obj, list, node) {
		if (!inodes && obj->kind == IMAGE_NAME) {
			x->names++;
			err = link_name(x, caa_container_of(obj, struct name, img));
		} else if (inodes && obj->kind == IMAGE_INODE) {
			x->inodes++;
			err = check_inode(x, caa_container_of(obj, struct inode, img));
		}
		if (err)
			return err;
	}
	return 0;
}

static int walk(struct linker *x, bool inodes)
{
	int err = walk_list(x, &x->im->dirty, inodes); /* the root, when the checkpoint has none */

	for (uint32_t i = 0; i < x->im->seg_count && !err; i++)
		err = walk_list(x, &x->im->segs[i]->objs, inodes);
	return err;
}

int image_link_locked(struct image *im, const struct ckpt_info *info, const char **ret_why)
{
	struct linker x = { .im = im, .st = im->st };
	const struct inode *root = store_inode_locked(x.st, STORE_ROOT_INO);
	int err;

	x.st->next_ino = info->next_ino > STORE_ROOT_INO ? info->next_ino : STORE_ROOT_INO + 1;
	if (!root || !S_ISDIR(root->mode) || root->u.parent_ino != STORE_ROOT_INO ||
	    root->nlink == 0)
		err = bad(&x, "no root directory");
	else
		err = walk(&x, false);
	if (!err)
		err = walk(&x, true);
	if (!err && x.inodes != x.st->inodes.count)
		err = bad(&x, "a chunk belongs to no inode");
	assert(err || x.names == x.st->names.count);
	if (err && x.why)
		*ret_why = x.why;
	return err;
}
