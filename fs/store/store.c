/* SPDX-License-Identifier: Apache-2.0 */
/* The store's life cycle, its inode table, and what is read from an inode. */
#include "fs/store/store_internal.h"

#include "common/clock.h"
#include "common/thread.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

static_assert(sizeof(struct inode) <= 136, "part of the 256 bytes of metadata a key may take");

/* Neighbours stay neighbours, 64 at a time, for the caches' sake; any pattern of survivors
 * spreads. */
static uint64_t hash_ino(uint64_t ino)
{
	return ino + (ino >> 6) * 0x9e3779b97f4a7c15ULL;
}

static uint64_t inode_hash(const struct htable_node *n)
{
	return hash_ino(caa_container_of(n, struct inode, hash)->ino);
}

static uint64_t name_hash(const struct htable_node *n)
{
	const struct name *name = caa_container_of(n, struct name, hash);

	return store_name_hash(name->parent_ino, name->text, name->len);
}

struct inode *store_inode_alloc(uint64_t ino, uint32_t mode)
{
	struct inode *in = calloc(1, sizeof(*in));

	if (!in)
		return NULL;
	in->ino = ino;
	in->mode = mode;
	if (S_ISDIR(mode)) {
		in->u.dir = store_dir_alloc();
		if (!in->u.dir) {
			free(in);
			return NULL;
		}
	}
	return in;
}

void store_inode_add_locked(struct store *st, struct inode *in)
{
	htable_add(&st->inodes, &in->hash);
}

void store_inode_clear_locked(struct store *st, struct inode *in)
{
	if (S_ISREG(in->mode)) {
		st->value_bytes -= in->u.value.size;
		value_clear(st->slab, &in->u.value);
	} else if (S_ISDIR(in->mode)) {
		store_dir_free(in->u.dir);
	} else if (S_ISLNK(in->mode)) {
		free(in->u.target);
	}
	memset(&in->u, 0, sizeof(in->u));
	store_xattrs_put(in->xattrs);
	in->xattrs = NULL;
}

void store_inode_drop_locked(struct store *st, struct inode *in)
{
	bool kept = image_inode_gone(st->image, in);

	htable_del(&st->inodes, &in->hash);
	if (in->nlink == 0)
		st->orphans--;
	store_inode_clear_locked(st, in);
	if (!kept)
		free(in);
}

static int add_root(struct store *st)
{
	struct inode *root = store_inode_alloc(STORE_ROOT_INO, S_IFDIR | 0755);

	if (!root)
		return -ENOMEM;
	root->nlink = 2;
	root->u.parent_ino = STORE_ROOT_INO;
	store_inode_add_locked(st, root);
	image_inode_touch(st->image, root);
	return 0;
}

struct store *store_create(struct slab *slab, const struct store_config *cfg)
{
	struct store *st = calloc(1, sizeof(*st));

	if (!st)
		return NULL;
	st->slab = slab;
	st->cfg = *cfg;
	st->next_ino = STORE_ROOT_INO + 1;
	if (thread_mutex_init_adaptive(&st->lock)) {
		free(st);
		return NULL;
	}
	st->image = image_create(st);
	if (!st->image || htable_init(&st->inodes, inode_hash) ||
	    htable_init(&st->names, name_hash) || add_root(st)) {
		store_destroy(st);
		return NULL;
	}
	return st;
}

void store_set_inodes_max(struct store *st, uint64_t inodes_max)
{
	store_lock(st);
	st->cfg.inodes_max = inodes_max;
	store_unlock(st);
}

static void free_all_names(struct store *st)
{
	for (size_t i = 0; i < htable_bucket_count(&st->names); i++) {
		struct htable_node *n = htable_bucket(&st->names, i);

		while (n) {
			struct htable_node *next = n->next;

			free(caa_container_of(n, struct name, hash));
			n = next;
		}
	}
}

static void free_all_inodes(struct store *st)
{
	for (size_t i = 0; i < htable_bucket_count(&st->inodes); i++) {
		struct htable_node *n = htable_bucket(&st->inodes, i);

		while (n) {
			struct inode *in = caa_container_of(n, struct inode, hash);

			n = n->next;
			store_inode_clear_locked(st, in);
			free(in);
		}
	}
}

void store_destroy(struct store *st)
{
	if (!st)
		return;
	image_destroy(st->image); /* first: it walks no object, and objects leave no lists below */
	if (st->names.buckets)
		free_all_names(st);
	if (st->inodes.buckets)
		free_all_inodes(st);
	htable_fini(&st->names);
	htable_fini(&st->inodes);
	pthread_mutex_destroy(&st->lock);
	free(st);
}

void store_lock(struct store *st)
{
	pthread_mutex_lock(&st->lock);
}

void store_unlock(struct store *st)
{
	pthread_mutex_unlock(&st->lock);
}

struct image *store_image(struct store *st)
{
	return st->image;
}

uint64_t store_next_ino_locked(const struct store *st)
{
	return st->next_ino;
}

uint64_t store_lsn_locked(const struct store *st)
{
	return st->lsn;
}

struct inode *store_inode_locked(struct store *st, uint64_t ino)
{
	struct htable_node *n = htable_chain(&st->inodes, hash_ino(ino));

	for (; n; n = n->next) {
		struct inode *in = caa_container_of(n, struct inode, hash);

		if (in->ino == ino)
			return in;
	}
	return NULL;
}

int store_parent_locked(struct store *st, uint64_t ino, struct inode **ret_dir)
{
	struct inode *dir = store_inode_locked(st, ino);

	if (!dir)
		return -ENOENT;
	if (!S_ISDIR(dir->mode))
		return -ENOTDIR;
	if (dir->nlink == 0)
		return -ENOENT;
	*ret_dir = dir;
	return 0;
}

/* ns: signed, two's complement; times before 1970 have a negative tv_sec and a positive tv_nsec. */
static struct timespec to_timespec(uint64_t ns)
{
	int64_t sec = (int64_t)ns / (int64_t)NSEC_PER_SEC,
		rest = (int64_t)ns % (int64_t)NSEC_PER_SEC;

	if (rest < 0) {
		rest += (int64_t)NSEC_PER_SEC;
		sec--;
	}
	return (struct timespec){ .tv_sec = (time_t)sec, .tv_nsec = (long)rest };
}

/* Memory the value takes, in the 512-byte units of st_blocks. */
static blkcnt_t value_blocks(const struct value *v)
{
	if (v->height == 0)
		return v->u.slot ? (blkcnt_t)((v->u.slot->cap + 511) / 512) : 0;
	return (blkcnt_t)v->chunks * (VALUE_CHUNK_BYTES / 512);
}

void store_stat_locked(const struct inode *in, struct stat *ret_st)
{
	memset(ret_st, 0, sizeof(*ret_st));
	ret_st->st_ino = in->ino;
	ret_st->st_mode = in->mode;
	ret_st->st_nlink = in->nlink;
	ret_st->st_uid = in->uid;
	ret_st->st_gid = in->gid;
	ret_st->st_rdev = in->rdev;
	ret_st->st_blksize = 4096;
	ret_st->st_atim = to_timespec(in->atime_ns);
	ret_st->st_mtim = to_timespec(in->mtime_ns);
	ret_st->st_ctim = to_timespec(in->ctime_ns);
	if (S_ISREG(in->mode)) {
		ret_st->st_size = (off_t)in->u.value.size;
		ret_st->st_blocks = value_blocks(&in->u.value);
	} else if (S_ISDIR(in->mode)) {
		ret_st->st_size = 4096;
	} else if (S_ISLNK(in->mode)) {
		ret_st->st_size = (off_t)strlen(in->u.target);
	}
}

void store_ref_locked(struct inode *in)
{
	in->lookups++;
}

bool store_forget_locked(struct store *st, struct inode *in, uint64_t n)
{
	in->lookups = n < in->lookups ? in->lookups - n : 0;
	return in->lookups == 0 && in->nlink == 0;
}

void store_each_orphan_locked(struct store *st, void (*fn)(void *ctx, uint64_t ino), void *ctx)
{
	for (size_t i = 0; st->orphans && i < htable_bucket_count(&st->inodes); i++) {
		for (struct htable_node *n = htable_bucket(&st->inodes, i); n; n = n->next) {
			struct inode *in = caa_container_of(n, struct inode, hash);

			if (in->nlink == 0 && in->lookups == 0)
				fn(ctx, in->ino);
		}
	}
}

void store_stats_locked(const struct store *st, struct store_stats *ret_stats)
{
	ret_stats->inodes = st->inodes.count;
	ret_stats->names = st->names.count;
	ret_stats->orphans = st->orphans;
	ret_stats->value_bytes = st->value_bytes;
}

#define WALK_BUCKETS 4096 /* looked at with the lock held at a stretch */

/* The hash spreads inode numbers too well for a chain to fill a step by itself. */
static bool walk_chain(const struct htable_node *n, bool all, uint64_t *inos, unsigned *count)
{
	unsigned at = *count;

	for (; n; n = n->next) {
		const struct inode *in = caa_container_of(n, struct inode, hash);

		if (!all && in->lookups == 0)
			continue;
		if (at == STORE_WALK_INODES)
			return false;
		inos[at++] = in->ino;
	}
	*count = at;
	return true;
}

bool store_walk_locked(struct store *st, struct store_walk *w, bool all,
		       uint64_t ret_inos[STORE_WALK_INODES], unsigned *ret_count)
{
	size_t buckets = htable_bucket_count(&st->inodes), end;
	unsigned count = 0;

	/* a table that has grown holds them in other places */
	if (w->buckets != buckets)
		*w = (struct store_walk){ .buckets = buckets };
	*ret_count = 0;
	if (w->bucket == buckets)
		return false;
	end = buckets - w->bucket > WALK_BUCKETS ? w->bucket + WALK_BUCKETS : buckets;
	while (w->bucket < end &&
	       (walk_chain(htable_bucket(&st->inodes, w->bucket), all, ret_inos, &count) || !count))
		w->bucket++;
	*ret_count = count;
	return true;
}
