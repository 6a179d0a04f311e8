/* SPDX-License-Identifier: Apache-2.0 */
/* The names table, directories' entries in cookie order, and readdir. All under the store's
 * lock. */
#include "fs/store/store_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

uint64_t store_name_hash(uint64_t parent_ino, const char *text, size_t len)
{
	return XXH3_64bits_withSeed(text, len, parent_ino);
}

struct name *store_name_alloc(uint64_t parent_ino, const char *text, size_t len)
{
	size_t bytes = offsetof(struct name, text) + len;
	struct name *n;

	assert(len <= RECORD_NAME_MAX);
	n = malloc(bytes < sizeof(*n) ? sizeof(*n) : bytes);
	if (!n)
		return NULL;
	memset(n, 0, sizeof(*n));
	n->parent_ino = parent_ino;
	n->len = (uint8_t)len;
	memcpy(n->text, text, len);
	return n;
}

void store_name_add_locked(struct store *st, struct name *n)
{
	htable_add(&st->names, &n->hash);
}

void store_name_remove_locked(struct store *st, struct name *n)
{
	htable_del(&st->names, &n->hash);
}

struct name *store_name_find_locked(struct store *st, uint64_t parent_ino, const char *text,
				    size_t len)
{
	struct htable_node *h = htable_chain(&st->names, store_name_hash(parent_ino, text, len));

	for (; h; h = h->next) {
		struct name *n = caa_container_of(h, struct name, hash);

		if (n->parent_ino == parent_ino && n->len == len && memcmp(n->text, text, len) == 0)
			return n;
	}
	return NULL;
}

struct inode *store_lookup_locked(struct store *st, struct inode *dir, const char *name,
				  size_t name_len)
{
	struct name *n = store_name_find_locked(st, dir->ino, name, name_len);

	return n ? store_inode_locked(st, n->ino) : NULL;
}

struct store_dir *store_dir_alloc(void)
{
	struct store_dir *d = calloc(1, sizeof(*d));

	if (d)
		d->next_cookie = STORE_COOKIE_FIRST;
	return d;
}

void store_dir_free(struct store_dir *d)
{
	if (!d)
		return;
	free(d->entries);
	free(d);
}

static bool entry_is_gone(uint64_t e)
{
	return e & 1;
}

static struct name *entry_name(uint64_t e)
{
	return (struct name *)(uintptr_t)e;
}

static uint64_t entry_cookie(uint64_t e)
{
	return entry_is_gone(e) ? e >> 1 : entry_name(e)->cookie;
}

int store_dir_reserve(struct store_dir *d)
{
	uint32_t cap = d->cap + d->cap / 2 + 4;
	uint64_t *grown;

	if (d->used < d->cap)
		return 0;
	grown = realloc(d->entries, (size_t)cap * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	d->entries = grown;
	d->cap = cap;
	return 0;
}

void store_dir_append(struct store_dir *d, struct name *n)
{
	assert(d->used < d->cap);
	d->entries[d->used++] = (uintptr_t)n;
	d->live++;
}

/* Index of the first entry, gone or not, with a cookie of at least cookie. */
static uint32_t dir_search(const struct store_dir *d, uint64_t cookie)
{
	uint32_t low = 0, high = d->used;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (entry_cookie(d->entries[mid]) < cookie)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static void dir_compact(struct store_dir *d)
{
	uint32_t kept = 0;
	uint64_t *shrunk;

	for (uint32_t i = 0; i < d->used; i++)
		if (!entry_is_gone(d->entries[i]))
			d->entries[kept++] = d->entries[i];
	d->used = kept;
	if (kept + kept / 4 + 16 >= d->cap)
		return;
	d->cap = kept + kept / 4 + 16;
	shrunk = realloc(d->entries, (size_t)d->cap * sizeof(*shrunk));
	if (shrunk)
		d->entries = shrunk; /* else the old block, which is larger, goes on */
}

void store_dir_remove(struct store_dir *d, const struct name *n)
{
	uint32_t i = dir_search(d, n->cookie);

	assert(i < d->used && entry_name(d->entries[i]) == n);
	d->entries[i] = n->cookie << 1 | 1;
	d->live--;
	while (d->used && entry_is_gone(d->entries[d->used - 1]))
		d->used--;
	if (d->used > 16 && d->live < d->used / 2)
		dir_compact(d);
}

static int compare_entries(const void *a, const void *b)
{
	uint64_t x = entry_cookie(*(const uint64_t *)a), y = entry_cookie(*(const uint64_t *)b);

	return x < y ? -1 : x > y;
}

static bool dir_is_sorted(const struct store_dir *d)
{
	for (uint32_t i = 1; i < d->used; i++)
		if (entry_cookie(d->entries[i - 1]) >= entry_cookie(d->entries[i]))
			return false;
	return true;
}

bool store_dir_sort(struct store_dir *d)
{
	if (dir_is_sorted(d))
		return true;
	qsort(d->entries, d->used, sizeof(*d->entries), compare_entries);
	return dir_is_sorted(d);
}

struct name *store_dir_next(const struct store_dir *d, uint64_t cookie)
{
	for (uint32_t i = dir_search(d, cookie + 1); i < d->used; i++)
		if (!entry_is_gone(d->entries[i]))
			return entry_name(d->entries[i]);
	return NULL;
}

bool store_readdir_locked(struct store *st, struct inode *dir, uint64_t after,
			  struct store_dirent *ret_e)
{
	struct inode *in;
	struct name *n;

	assert(S_ISDIR(dir->mode));
	if (after < STORE_COOKIE_DOTDOT) {
		bool dot = after < STORE_COOKIE_DOT;

		*ret_e = (struct store_dirent){
			.ino = dot ? dir->ino : dir->u.parent_ino,
			.cookie = dot ? STORE_COOKIE_DOT : STORE_COOKIE_DOTDOT,
			.mode = S_IFDIR,
			.name_len = dot ? 1 : 2,
			.name = dot ? "." : "..",
		};
		return true;
	}
	if (after >= UINT64_MAX >> 1)
		return false;
	n = store_dir_next(dir->u.dir, after);
	if (!n)
		return false;
	in = store_inode_locked(st, n->ino);
	assert(in);
	*ret_e = (struct store_dirent){
		.ino = n->ino,
		.cookie = n->cookie,
		.mode = in->mode,
		.name_len = n->len,
		.name = n->text,
	};
	return true;
}
