/* SPDX-License-Identifier: Apache-2.0 */
/* A digest of the whole state, for comparing nodes. The store is quiet meanwhile; the lock is taken
 * per inode. */
#include "fs/store/store_internal.h"

#include "common/byteorder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static void add_u64(XXH3_state_t *h, uint64_t v)
{
	uint8_t b[8];

	put_be64(b, v);
	XXH3_128bits_update(h, b, sizeof(b));
}

struct value_ctx {
	XXH3_state_t *hash;
	const struct value *v;
};

static void add_chunk(XXH3_state_t *h, const struct value *v, uint64_t idx, const struct slot *slot)
{
	uint32_t valid = value_chunk_valid(v, idx);

	if (!slot || valid == 0)
		return;
	add_u64(h, idx);
	XXH3_128bits_update(h, slot->data, valid);
}

static int each_chunk(void *ctx, struct value_chunk *c)
{
	struct value_ctx *x = ctx;

	add_chunk(x->hash, x->v, c->idx, c->slot);
	return 0;
}

static void add_value(XXH3_state_t *h, const struct value *v)
{
	struct value_ctx x = { h, v };

	add_u64(h, v->size);
	if (v->height == 0)
		add_chunk(h, v, 0, v->u.slot);
	else
		value_each_chunk(v, each_chunk, &x);
}

static void add_dir(XXH3_state_t *h, const struct inode *in)
{
	const struct name *n;

	add_u64(h, in->u.parent_ino);
	add_u64(h, in->u.dir->next_cookie);
	for (n = store_dir_next(in->u.dir, 0); n; n = store_dir_next(in->u.dir, n->cookie)) {
		add_u64(h, n->cookie);
		add_u64(h, n->ino);
		add_u64(h, n->len);
		XXH3_128bits_update(h, n->text, n->len);
	}
}

static void add_inode(XXH3_state_t *h, const struct inode *in)
{
	add_u64(h, in->ino);
	add_u64(h, (uint64_t)in->gen << 32 | in->mode);
	add_u64(h, (uint64_t)in->uid << 32 | in->gid);
	add_u64(h, (uint64_t)in->nlink << 32 | in->rdev);
	add_u64(h, in->mtime_ns);
	add_u64(h, in->ctime_ns);
	add_u64(h, in->xattrs ? in->xattrs->len : 0);
	if (in->xattrs)
		XXH3_128bits_update(h, in->xattrs->data, in->xattrs->len);
	if (S_ISREG(in->mode))
		add_value(h, &in->u.value);
	else if (S_ISDIR(in->mode))
		add_dir(h, in);
	else if (S_ISLNK(in->mode))
		XXH3_128bits_update(h, in->u.target, strlen(in->u.target));
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* All inode numbers, sorted. NULL: no memory. */
static uint64_t *list_inodes(struct store *st, size_t *ret_count)
{
	size_t count = 0;
	uint64_t *inos;

	store_lock(st);
	inos = malloc(sizeof(*inos) * (st->inodes.count + 1));
	for (size_t i = 0; inos && i < htable_bucket_count(&st->inodes); i++)
		for (struct htable_node *n = htable_bucket(&st->inodes, i); n; n = n->next)
			inos[count++] = caa_container_of(n, struct inode, hash)->ino;
	store_unlock(st);
	if (inos)
		qsort(inos, count, sizeof(*inos), compare_u64);
	*ret_count = count;
	return inos;
}

void store_digest(struct store *st, uint8_t ret_digest[16])
{
	XXH3_state_t *h = XXH3_createState();
	size_t count = 0;
	uint64_t *inos = list_inodes(st, &count);
	XXH128_canonical_t sum;

	memset(ret_digest, 0, 16);
	if (!h || !inos)
		goto out; /* no memory: a digest no real state has */
	XXH3_128bits_reset(h);
	for (size_t i = 0; i < count; i++) {
		const struct inode *in;

		store_lock(st);
		in = store_inode_locked(st, inos[i]);
		if (in)
			add_inode(h, in);
		store_unlock(st);
	}
	store_lock(st);
	add_u64(h, st->next_ino);
	store_unlock(st);
	XXH128_canonicalFromHash(&sum, XXH3_128bits_digest(h));
	memcpy(ret_digest, sum.digest, 16);
out:
	free(inos);
	XXH3_freeState(h);
}
