/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of values: write, truncate, punch, reserve. What each does to a chunk is an edit of a
 * plan (value_edit.h), so that all of them are all or nothing and call the hooks in the same order.
 *
 * Every slot has room for the valid bytes of its chunk, and these are defined; bytes beyond are
 * not.
 */
#include "fs/store/value_edit.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* A tree that lost its last chunk may become a single slot again. */
static void value_normalise(struct value *v, uint64_t new_size)
{
	if (v->height > 0 && !v->u.root && new_size <= VALUE_CHUNK_BYTES) {
		v->height = 0;
		v->u.slot = NULL;
	}
}

/* Where chunks begin whose valid bytes grow with the size. A slot that moves into a
 * tree counts always. */
static uint64_t first_growing(const struct value *v)
{
	return v->height == 0 ? 0 : v->size / VALUE_CHUNK_BYTES;
}

/* Edits of the chunks before idx that follow the size. */
static int plan_gap(struct value_plan *p, uint64_t idx)
{
	return idx > 0 ? value_plan_add_resized(p, first_growing(p->v), idx - 1) : 0;
}

static int plan_write(struct value_plan *p, struct value_stage *stage, const uint8_t *src)
{
	uint64_t first = stage->off / VALUE_CHUNK_BYTES, end = stage->off + stage->len;

	for (uint64_t pos = stage->off; pos < end;) {
		uint64_t idx = pos / VALUE_CHUNK_BYTES;
		struct value_edit *e = value_plan_add(p, idx);
		uint64_t n = VALUE_CHUNK_BYTES - pos % VALUE_CHUNK_BYTES;

		if (!e)
			return -ENOMEM;
		if (n > end - pos)
			n = end - pos;
		e->from = (uint32_t)(pos % VALUE_CHUNK_BYTES);
		e->to = e->from + (uint32_t)n;
		e->src = src;
		if (e->from == 0 && e->to >= e->end && stage->slot[idx - first])
			e->staged = &stage->slot[idx - first];
		src += n;
		pos += n;
	}
	return 0;
}

/* Carries out a plan unless building it failed with err. */
static int plan_finish(struct value_plan *p, int err)
{
	if (err) {
		value_plan_abort(p);
		return err;
	}
	err = value_plan_prepare(p);
	if (!err)
		value_plan_commit(p);
	return err;
}

int value_write(struct slab *s, struct value *v, const struct value_hook *h,
		struct value_stage *stage, const void *src)
{
	uint64_t end = stage->off + stage->len, new_size = end > v->size ? end : v->size;
	struct value_plan p;
	int err;

	value_normalise(v, new_size);
	value_plan_begin(&p, s, v, h, new_size, false);
	err = plan_gap(&p, stage->off / VALUE_CHUNK_BYTES);
	if (!err)
		err = plan_write(&p, stage, src);
	return plan_finish(&p, err);
}

/* Frees chunks [first, last] of a tree; their before hooks have been called. */
static void chunks_remove(struct slab *s, struct value *v, const struct value_hook *h,
			  uint64_t first, uint64_t last)
{
	struct value_chunk *c;

	while ((c = value_tree_next(v->u.root, v->height, first)) && c->idx <= last) {
		first = c->idx + 1;
		value_tree_remove(&v->u.root, v->height, c->idx);
		v->chunks--;
		if (h && h->gone)
			h->gone(h->ctx, c);
		slot_put(s, c->slot);
		free(c);
	}
}

static void chunks_before(const struct value *v, const struct value_hook *h, uint64_t first,
			  uint64_t last)
{
	struct value_chunk *c;

	while (h && (c = value_tree_next(v->u.root, v->height, first)) && c->idx <= last) {
		value_hook_before(h, c);
		first = c->idx + 1;
	}
}

static void inline_drop(struct slab *s, struct value *v)
{
	if (!v->u.slot)
		return;
	slot_put(s, v->u.slot);
	v->u.slot = NULL;
	v->chunks = 0;
}

static void inline_shrink(struct slab *s, struct value *v, const struct value_hook *h,
			  uint64_t size)
{
	value_hook_before(h, NULL);
	if (size == 0)
		inline_drop(s, v);
	v->size = size;
	value_hook_after(h, NULL);
}

static void tree_shrink(struct slab *s, struct value *v, const struct value_hook *h, uint64_t size)
{
	uint64_t kept = (size + VALUE_CHUNK_BYTES - 1) / VALUE_CHUNK_BYTES;
	struct value_chunk *tail = NULL;

	if (size % VALUE_CHUNK_BYTES)
		tail = value_tree_find(v->u.root, v->height, kept - 1);
	chunks_before(v, h, tail ? kept - 1 : kept, UINT64_MAX);
	v->size = size;
	if (tail)
		value_hook_after(h, tail);
	chunks_remove(s, v, h, kept, UINT64_MAX);
	value_normalise(v, size);
}

int value_truncate(struct slab *s, struct value *v, const struct value_hook *h, uint64_t size)
{
	struct value_plan p;
	int err;

	if (size > VALUE_SIZE_MAX)
		return -EFBIG;
	if (size <= v->size) {
		if (v->height == 0)
			inline_shrink(s, v, h, size);
		else
			tree_shrink(s, v, h, size);
		return 0;
	}
	value_plan_begin(&p, s, v, h, size, false);
	err = value_plan_add_resized(&p, first_growing(v), (size - 1) / VALUE_CHUNK_BYTES);
	return plan_finish(&p, err);
}

/* True when clearing [from, to) leaves nothing of a chunk with valid bytes. */
static bool clears_all(uint32_t from, uint32_t to, uint32_t valid)
{
	return from == 0 && (to == VALUE_CHUNK_BYTES || (valid > 0 && to >= valid));
}

static int plan_clear(struct value_plan *p, uint64_t idx, uint32_t from, uint32_t to)
{
	struct value_edit *e = value_plan_add(p, idx);

	if (!e)
		return -ENOMEM;
	e->from = from;
	e->to = to < e->end ? to : e->end;
	return 0;
}

static int inline_punch(struct slab *s, struct value *v, const struct value_hook *h, uint32_t from,
			uint32_t to)
{
	struct value_plan p;

	if (!v->u.slot)
		return 0;
	if (clears_all(from, to, value_valid_bytes(v->size, 0))) {
		value_hook_before(h, NULL);
		inline_drop(s, v);
		value_hook_after(h, NULL);
		return 0;
	}
	if (from >= v->size)
		return 0;
	value_plan_begin(&p, s, v, h, v->size, false);
	return plan_finish(&p, plan_clear(&p, 0, from, to));
}

/* Range [from, to) of chunk idx under [off, end). */
static void chunk_range(uint64_t idx, uint64_t off, uint64_t end, uint32_t *ret_from,
			uint32_t *ret_to)
{
	uint64_t start = idx * VALUE_CHUNK_BYTES;

	*ret_from = off > start ? (uint32_t)(off - start) : 0;
	*ret_to = end - start < VALUE_CHUNK_BYTES ? (uint32_t)(end - start) : VALUE_CHUNK_BYTES;
}

static int tree_punch(struct slab *s, struct value *v, const struct value_hook *h, uint64_t off,
		      uint64_t end)
{
	uint64_t first = off / VALUE_CHUNK_BYTES, last = (end - 1) / VALUE_CHUNK_BYTES;
	uint64_t whole_first = first, whole_last = last + 1; /* first included, last not */
	struct value_plan p;
	int err = 0;

	value_plan_begin(&p, s, v, h, v->size, false);
	for (unsigned edge = 0; edge < (first == last ? 1 : 2) && !err; edge++) {
		uint64_t idx = edge ? last : first;
		const struct value_chunk *c = value_tree_find(v->u.root, v->height, idx);
		uint32_t from, to, valid = value_valid_bytes(v->size, idx);

		chunk_range(idx, off, end, &from, &to);
		if (clears_all(from, to, valid))
			continue;
		if (edge || first == last)
			whole_last = last;
		else
			whole_first = first + 1;
		if (c && !c->blank && from < valid)
			err = plan_clear(&p, idx, from, to);
	}
	err = plan_finish(&p, err);
	if (!err && whole_first < whole_last) {
		chunks_before(v, h, whole_first, whole_last - 1);
		chunks_remove(s, v, h, whole_first, whole_last - 1);
	}
	return err;
}

int value_punch(struct slab *s, struct value *v, const struct value_hook *h, uint64_t off,
		uint64_t len)
{
	uint64_t end;
	uint32_t from, to;

	if (len == 0 || off >= VALUE_SIZE_MAX)
		return 0;
	end = len > VALUE_SIZE_MAX - off ? VALUE_SIZE_MAX : off + len;
	if (v->height > 0)
		return tree_punch(s, v, h, off, end);
	if (off >= VALUE_CHUNK_BYTES)
		return 0;
	chunk_range(0, off, end, &from, &to);
	return inline_punch(s, v, h, from, to);
}

/* Room for chunk idx up to cap bytes, zeroed where there is none. */
static int plan_reserve(struct value_plan *p, uint64_t idx, uint32_t cap)
{
	const struct value *v = p->v;
	const struct slot *old = value_slot_at(v, idx);
	struct value_edit *e;

	if (old && old->cap >= cap && !p->convert &&
	    value_valid_bytes(v->size, idx) == value_valid_bytes(p->new_size, idx))
		return 0;
	e = value_plan_add(p, idx);
	if (!e)
		return -ENOMEM;
	e->min_cap = cap;
	e->blank = !old && cap == VALUE_CHUNK_BYTES;
	return 0;
}

int value_reserve(struct slab *s, struct value *v, const struct value_hook *h, uint64_t off,
		  uint64_t len, bool keep_size)
{
	uint64_t end = off + len, first = off / VALUE_CHUNK_BYTES,
		 last = (end - 1) / VALUE_CHUNK_BYTES;
	uint64_t new_size = !keep_size && end > v->size ? end : v->size;
	bool tree = end > VALUE_CHUNK_BYTES;
	struct value_plan p;
	int err;

	if (off > VALUE_SIZE_MAX || len > VALUE_SIZE_MAX - off)
		return -EFBIG;
	if (len == 0)
		return 0;
	/* certain to fail: don't take the whole arena to find out */
	if (last - first >= v->chunks &&
	    (last - first - v->chunks) * VALUE_CHUNK_BYTES > slab_available_bytes(s))
		return -ENOSPC;
	value_normalise(v, end > new_size ? end : new_size);
	value_plan_begin(&p, s, v, h, new_size, tree);
	err = plan_gap(&p, first);
	for (uint64_t i = first; i <= last && !err; i++)
		err = plan_reserve(&p, i,
				   v->height > 0 || p.convert ? VALUE_CHUNK_BYTES : (uint32_t)end);
	if (!err && p.n == 0 && new_size == v->size) {
		value_plan_abort(&p);
		return 0;
	}
	return plan_finish(&p, err);
}

void value_clear(struct slab *s, struct value *v)
{
	if (v->height == 0)
		inline_drop(s, v);
	else
		chunks_remove(s, v, NULL, 0, UINT64_MAX);
	v->size = 0;
	v->height = 0;
	v->u.slot = NULL;
}

void value_unload_chunks(struct slab *s, struct value *v, uint64_t first, uint64_t last)
{
	if (v->height > 0)
		chunks_remove(s, v, NULL, first, last);
}
