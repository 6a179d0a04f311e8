/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at values: references to their bytes, holes, chunks; and installing chunks while a
 * checkpoint is loaded. */
#include "fs/store/value_edit.h"

#include <errno.h>
#include <stdlib.h>

int value_refs(const struct value *v, uint64_t off, uint64_t len, struct value_ref *refs, int max,
	       uint64_t *ret_len)
{
	uint64_t end, pos = off;
	int n = 0;

	if (off >= v->size)
		len = 0;
	else if (len > v->size - off)
		len = v->size - off;
	end = off + len;
	while (pos < end && n < max) {
		struct value_ref *ref = &refs[n++];
		uint32_t from = (uint32_t)(pos % VALUE_CHUNK_BYTES),
			 part = VALUE_CHUNK_BYTES - from;
		struct slot *slot = value_slot_at(v, pos / VALUE_CHUNK_BYTES);

		if (part > end - pos)
			part = (uint32_t)(end - pos);
		/* only a damaged checkpoint makes a slot shorter than its chunk: the rest
		 * is zeros then */
		if (slot && from >= slot->cap)
			slot = NULL;
		if (slot && part > slot->cap - from)
			part = slot->cap - from;
		if (slot)
			slot_get(slot);
		*ref = (struct value_ref){ .slot = slot, .off = slot ? from : 0, .len = part };
		pos += part;
	}
	*ret_len = pos - off;
	return n;
}

void value_ref_put(struct slab *s, const struct value_ref *ref)
{
	slot_put(s, ref->slot);
}

/* First chunk with data at or above idx; UINT64_MAX: none. */
static uint64_t next_data(const struct value *v, uint64_t idx)
{
	const struct value_chunk *c;

	if (v->height == 0)
		return idx == 0 && v->u.slot ? 0 : UINT64_MAX;
	c = value_tree_next(v->u.root, v->height, idx);
	return c ? c->idx : UINT64_MAX;
}

int value_seek(const struct value *v, uint64_t off, bool hole, uint64_t *ret_off)
{
	uint64_t idx = off / VALUE_CHUNK_BYTES, chunks, start;

	if (off >= v->size)
		return -ENXIO;
	chunks = (v->size + VALUE_CHUNK_BYTES - 1) / VALUE_CHUNK_BYTES;
	if (hole) {
		while (idx < chunks && value_slot_at(v, idx))
			idx++;
	} else {
		idx = next_data(v, idx);
		if (idx >= chunks)
			return -ENXIO;
	}
	start = idx * VALUE_CHUNK_BYTES;
	if (start > v->size)
		start = v->size;
	*ret_off = start > off ? start : off;
	return 0;
}

uint32_t value_chunk_valid(const struct value *v, uint64_t idx)
{
	return value_valid_bytes(v->size, idx);
}

struct value_chunk *value_find_chunk(const struct value *v, uint64_t idx)
{
	return v->height > 0 ? value_tree_find(v->u.root, v->height, idx) : NULL;
}

int value_each_chunk(const struct value *v, int (*fn)(void *ctx, struct value_chunk *c), void *ctx)
{
	struct value_chunk *c;
	uint64_t next = 0;
	int err = 0;

	while (v->height > 0 && !err && (c = value_tree_next(v->u.root, v->height, next))) {
		next = c->idx + 1;
		err = fn(ctx, c);
	}
	return err;
}

static void load_inline(struct slab *s, struct value *v, struct slot *slot)
{
	uint64_t size = v->size;

	value_clear(s, v);
	v->size = size;
	v->u.slot = slot;
	v->chunks = slot ? 1 : 0;
}

/* A chunk without a slot in the tree. */
static int load_tree_chunk(struct value *v, uint64_t idx, struct value_chunk **ret_c)
{
	struct value_chunk *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	if (value_tree_reserve(&v->u.root, &v->height, idx) < 0) {
		value_tree_prune(&v->u.root, v->height, idx);
		free(c);
		return -ENOMEM;
	}
	c->idx = idx;
	CDS_INIT_LIST_HEAD(&c->img.node);
	value_tree_insert(v->u.root, v->height, c);
	v->chunks++;
	*ret_c = c;
	return 0;
}

int value_load_chunk(struct slab *s, struct value *v, uint64_t idx, struct slot *slot,
		     bool inline_slot, struct value_chunk **ret_c)
{
	struct value_chunk *c;
	uint64_t size = v->size;
	int err;

	if (inline_slot) {
		load_inline(s, v, slot);
		*ret_c = NULL;
		return 0;
	}
	if (v->height == 0) {
		value_clear(s, v);
		v->size = size;
		v->height = 1;
		v->u.root = NULL;
	}
	c = value_tree_find(v->u.root, v->height, idx);
	if (!c) {
		err = load_tree_chunk(v, idx, &c);
		if (err)
			return err;
	}
	slot_put(s, c->slot);
	c->slot = slot;
	c->blank = false;
	*ret_c = c;
	return 0;
}
