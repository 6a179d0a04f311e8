/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes a checkpoint's items as far as the index needs them, and collects them. */
#include "mkfs/fsck_index.h"

#include "common/byteorder.h"
#include "log/image_format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

void fsck_index_init(struct fsck_index *x)
{
	*x = (struct fsck_index){
		.inodes.item_bytes = sizeof(struct index_inode),
		.names.item_bytes = sizeof(struct index_name),
		.chunks.item_bytes = sizeof(struct index_chunks),
	};
}

void fsck_index_clear(struct fsck_index *x)
{
	free(x->inodes.items);
	free(x->names.items);
	free(x->chunks.items);
	fsck_index_init(x);
}

static int list_add(struct index_list *l, const void *item)
{
	if (l->count == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 1024;
		void *items = reallocarray(l->items, cap, l->item_bytes);

		if (!items)
			return -ENOMEM;
		l->items = items;
		l->cap = cap;
	}
	memcpy((char *)l->items + l->count++ * l->item_bytes, item, l->item_bytes);
	return 0;
}

static int bad(struct fsck_index *x, uint64_t seg, const char *why)
{
	x->why = why;
	x->why_seg = seg;
	return -EBADMSG;
}

static int add_inode(struct fsck_index *x, uint64_t seg, const uint8_t *data, size_t len)
{
	const struct image_inode_item *d = (const struct image_inode_item *)data;
	struct index_inode in = { .order = x->order, .seg = seg };

	if (len < sizeof(*d) || len != sizeof(*d) + get_be16(&d->target_len) +
				       (uint64_t)get_be32(&d->xattr_len) + get_be32(&d->inline_len))
		return bad(x, seg, "an inode item's length is wrong");
	in.ino = get_be64(&d->ino);
	in.mode = get_be32(&d->mode);
	in.nlink = get_be32(&d->nlink);
	if (in.ino == 0 || (in.mode & S_IFMT) == 0 || d->chunked > 1 || d->zero != 0)
		return bad(x, seg, "an inode item's fields are out of range");
	if (S_ISDIR(in.mode)) {
		in.parent_ino = get_be64(&d->parent_ino);
		in.next_cookie = get_be64(&d->size);
	}
	return list_add(&x->inodes, &in);
}

static int add_inode_gone(struct fsck_index *x, uint64_t seg, const uint8_t *data, size_t len)
{
	struct index_inode in = { .order = x->order, .seg = seg, .gone = true };

	if (len != sizeof(struct image_inode_gone_item))
		return bad(x, seg, "an inode tombstone's length is wrong");
	in.ino = get_be64(data);
	return list_add(&x->inodes, &in);
}

static int add_name(struct fsck_index *x, uint64_t seg, const uint8_t *data, size_t len, bool gone)
{
	const struct image_name_item *d = (const struct image_name_item *)data;
	struct index_name n = { .order = x->order, .seg = seg, .gone = gone };
	XXH128_hash_t hash;

	if (len < sizeof(*d) || d->len == 0 || len != sizeof(*d) + d->len)
		return bad(x, seg, "a name item's length is wrong");
	if (memchr(data + sizeof(*d), '/', d->len) || memchr(data + sizeof(*d), 0, d->len))
		return bad(x, seg, "a name holds '/' or NUL");
	hash = XXH3_128bits(data + sizeof(*d), d->len);
	n.hash_high = hash.high64;
	n.hash_low = hash.low64;
	n.parent_ino = get_be64(&d->parent_ino);
	n.ino = get_be64(&d->ino);
	n.cookie = get_be64(&d->cookie);
	return list_add(&x->names, &n);
}

static int add_chunk(struct fsck_index *x, uint64_t seg, const uint8_t *data, size_t len)
{
	const struct image_chunk_item *d = (const struct image_chunk_item *)data;
	struct index_chunks *last = x->chunks.count == 0 ? NULL :
				    (struct index_chunks *)x->chunks.items + x->chunks.count - 1;
	struct index_chunks c = { .order = x->order, .seg = seg };

	if (len < sizeof(*d) || len != sizeof(*d) + (uint64_t)get_be32(&d->len) ||
	    get_be32(&d->len) > get_be32(&d->cap))
		return bad(x, seg, "a chunk item's length is wrong");
	c.ino = get_be64(&d->ino);
	if (last && last->ino == c.ino) { /* runs of one value's chunks need one entry */
		last->order = c.order;
		return 0;
	}
	return list_add(&x->chunks, &c);
}

int fsck_index_add(struct fsck_index *x, uint64_t seg, uint8_t type, const uint8_t *data,
		   size_t len)
{
	x->order++;
	switch (type) {
	case IMAGE_ITEM_INODE:
		return add_inode(x, seg, data, len);
	case IMAGE_ITEM_INODE_GONE:
		return add_inode_gone(x, seg, data, len);
	case IMAGE_ITEM_NAME:
		return add_name(x, seg, data, len, false);
	case IMAGE_ITEM_NAME_GONE:
		return add_name(x, seg, data, len, true);
	case IMAGE_ITEM_CHUNK:
		return add_chunk(x, seg, data, len);
	case IMAGE_ITEM_CHUNKS_GONE:
		return len == sizeof(struct image_chunks_gone_item) ? 0 :
		       bad(x, seg, "a chunk tombstone's length is wrong");
	default:
		return bad(x, seg, "an item of unknown type");
	}
}
