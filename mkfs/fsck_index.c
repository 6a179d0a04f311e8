/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a checkpoint's index: the same rules by which a mount accepts it, but
 * naming each fault. */
#include "mkfs/fsck_index.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define ROOT_INO 1
#define FAULTS_SHOWN 20

struct check {
	struct fsck *f;
	struct fsck_index *x;
	const struct ckpt_info *info;
	unsigned faults;
};

__attribute__((format(printf, 3, 4))) static void fault(struct check *c, uint64_t seg,
							const char *fmt, ...)
{
	char name[64] = "ckpt", text[256];
	struct fsck_place place = { .file = name, .offset = -1, .lsn = c->info->lsn, .seg = seg };
	va_list ap;

	if (c->faults++ >= FAULTS_SHOWN)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ckpt_manifest_name(c->info->number, name, sizeof(name));
	fsck_detail(c->f, &place, "index: %s", text);
}

static int compare_u64(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int by_ino(const void *a, const void *b)
{
	const struct index_inode *x = a, *y = b;

	return x->ino != y->ino ? compare_u64(x->ino, y->ino) : compare_u64(x->order, y->order);
}

static int same_name(const struct index_name *x, const struct index_name *y)
{
	return x->parent_ino != y->parent_ino ? compare_u64(x->parent_ino, y->parent_ino) :
	       x->hash_high != y->hash_high ? compare_u64(x->hash_high, y->hash_high) :
	       compare_u64(x->hash_low, y->hash_low);
}

static int by_name(const void *a, const void *b)
{
	const struct index_name *x = a, *y = b;
	int order = same_name(x, y);

	return order ? order : compare_u64(x->order, y->order);
}

static int by_cookie(const void *a, const void *b)
{
	const struct index_name *x = a, *y = b;

	return x->parent_ino != y->parent_ino ? compare_u64(x->parent_ino, y->parent_ino) :
	       compare_u64(x->cookie, y->cookie);
}

/* Keeps the last item of each identity. Inodes that are gone stay, for their order. */
static void settle(struct fsck_index *x)
{
	struct index_inode *in = x->inodes.items;
	struct index_name *n = x->names.items;
	size_t kept = 0;

	if (x->inodes.count > 0)
		qsort(in, x->inodes.count, sizeof(*in), by_ino);
	for (size_t i = 0; i < x->inodes.count; i++) {
		if (i + 1 == x->inodes.count || in[i + 1].ino != in[i].ino)
			in[kept++] = in[i];
	}
	x->inodes.count = kept;
	kept = 0;
	if (x->names.count > 0)
		qsort(n, x->names.count, sizeof(*n), by_name);
	for (size_t i = 0; i < x->names.count; i++) {
		if ((i + 1 == x->names.count || same_name(&n[i], &n[i + 1]) != 0) && !n[i].gone)
			n[kept++] = n[i];
	}
	x->names.count = kept;
}

static struct index_inode *find_any(struct fsck_index *x, uint64_t ino)
{
	struct index_inode *in = x->inodes.items;
	size_t low = 0, high = x->inodes.count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (in[mid].ino == ino)
			return &in[mid];
		if (in[mid].ino < ino)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

static struct index_inode *find_live(struct fsck_index *x, uint64_t ino)
{
	struct index_inode *in = find_any(x, ino);

	return in && !in->gone ? in : NULL;
}

static void check_name(struct check *c, const struct index_name *n)
{
	struct index_inode *dir = find_live(c->x, n->parent_ino);
	struct index_inode *in = find_live(c->x, n->ino);

	if (!dir || !S_ISDIR(dir->mode) || dir->nlink == 0) {
		fault(c, n->seg,
		      "a name of inode %" PRIu64 " is in %" PRIu64 ", which is no directory",
		      n->ino, n->parent_ino);
		return;
	}
	if (!in) {
		fault(c, n->seg, "a name in directory %" PRIu64 " refers to inode %" PRIu64
		      ", which is missing", n->parent_ino, n->ino);
		return;
	}
	if (n->cookie >= dir->next_cookie)
		fault(c, n->seg,
		      "a name's cookie %" PRIu64 " is above the next of directory %" PRIu64,
		      n->cookie, dir->ino);
	if (S_ISDIR(in->mode)) {
		if (in->parent_ino != dir->ino || in->ino == ROOT_INO)
			fault(c, n->seg,
			      "directory %" PRIu64 " is named in %" PRIu64 ", not in its parent "
			      "%" PRIu64,
			      in->ino, dir->ino, in->parent_ino);
		dir->subdirs++;
	}
	in->names++;
}

static void check_cookies(struct check *c)
{
	struct index_name *n = c->x->names.items;

	if (c->x->names.count > 0)
		qsort(n, c->x->names.count, sizeof(*n), by_cookie);
	for (size_t i = 0; i + 1 < c->x->names.count; i++) {
		if (by_cookie(&n[i], &n[i + 1]) == 0)
			fault(c, n[i].seg,
			      "two names in directory %" PRIu64 " have the cookie %" PRIu64,
			      n[i].parent_ino, n[i].cookie);
	}
}

/* A directory has its "." and its name, and the ".." of each subdirectory. */
static uint32_t links_counted(const struct index_inode *in)
{
	if (!S_ISDIR(in->mode) || in->nlink == 0)
		return in->names;
	return in->subdirs + 1 + (in->ino == ROOT_INO ? 1 : in->names);
}

static void check_inode(struct check *c, const struct index_inode *in)
{
	const struct index_inode *up = in;
	size_t steps = 0;

	if (in->ino != ROOT_INO && in->ino >= c->info->next_ino)
		fault(c, in->seg, "inode %" PRIu64 " is above the next inode number", in->ino);
	if (links_counted(in) != in->nlink)
		fault(c, in->seg, "inode %" PRIu64 " has %u links, %u were counted", in->ino,
		      in->nlink, links_counted(in));
	while (up && S_ISDIR(up->mode) && up->nlink > 0 && up->ino != ROOT_INO) {
		up = find_live(c->x, up->parent_ino);
		if (++steps > c->x->inodes.count) {
			fault(c, in->seg, "directory %" PRIu64 " is in a cycle", in->ino);
			break;
		}
	}
}

static void check_chunks(struct check *c)
{
	const struct index_chunks *k = c->x->chunks.items;

	for (size_t i = 0; i < c->x->chunks.count; i++) {
		const struct index_inode *in = find_any(c->x, k[i].ino);

		if (!in || (!in->gone && !S_ISREG(in->mode)) ||
		    (in->gone && in->order < k[i].order))
			fault(c, k[i].seg, "chunks of inode %" PRIu64 ", which is no regular file",
			      k[i].ino);
	}
}

unsigned fsck_index_check(struct fsck *f, struct fsck_index *x, const struct ckpt_info *info)
{
	struct check c = { .f = f, .x = x, .info = info };
	const struct index_inode *in;
	const struct index_name *n;

	settle(x);
	in = x->inodes.items;
	n = x->names.items;
	if (x->order > 0) { /* an empty image is that of the volume mkfs made */
		const struct index_inode *root = find_live(x, ROOT_INO);

		if (!root || !S_ISDIR(root->mode) || root->nlink == 0)
			fault(&c, 0, "there is no root directory");
	}
	for (size_t i = 0; i < x->names.count; i++)
		check_name(&c, &n[i]);
	for (size_t i = 0; i < x->inodes.count; i++) {
		if (!in[i].gone)
			check_inode(&c, &in[i]);
	}
	check_cookies(&c);
	check_chunks(&c);
	if (c.faults > FAULTS_SHOWN) {
		struct fsck_place place = { .file = "ckpt", .offset = -1 };

		fsck_detail(f, &place, "index: %u faults more", c.faults - FAULTS_SHOWN);
	}
	return c.faults;
}
