/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of value_edit.h. Whether a slot may change in place is decided after the before hooks, for
 * these may take a reference to it. */
#include "fs/store/value_edit.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void value_plan_begin(struct value_plan *p, struct slab *s, struct value *v,
		      const struct value_hook *h, uint64_t new_size, bool tree)
{
	p->slab = s;
	p->v = v;
	p->hook = h;
	p->new_size = new_size;
	p->convert = v->height == 0 && (tree || new_size > VALUE_CHUNK_BYTES);
	p->root = NULL;
	p->height = 1;
	p->edits = p->fixed;
	p->n = 0;
	p->max = VALUE_EDITS_FIXED;
}

static int plan_grow(struct value_plan *p)
{
	size_t max = p->max * 2;
	struct value_edit *edits = p->edits == p->fixed ? NULL : p->edits;

	edits = realloc(edits, max * sizeof(*edits));
	if (!edits)
		return -ENOMEM;
	if (p->edits == p->fixed)
		memcpy(edits, p->fixed, p->n * sizeof(*edits));
	p->edits = edits;
	p->max = max;
	return 0;
}

struct value_edit *value_plan_add(struct value_plan *p, uint64_t idx)
{
	const struct value *v = p->v;
	struct value_edit *e;

	if (p->n == p->max && plan_grow(p) < 0)
		return NULL;
	e = &p->edits[p->n++];
	*e = (struct value_edit){
		.idx = idx,
		.end = value_valid_bytes(p->new_size, idx),
	};
	e->c = value_find_chunk(v, idx);
	e->old = e->c ? e->c->slot : value_slot_at(v, idx);
	if (e->old) {
		e->keep = value_valid_bytes(v->size, idx);
		if (e->keep > e->old->cap)
			e->keep = e->old->cap;
	}
	return e;
}

int value_plan_add_resized(struct value_plan *p, uint64_t first, uint64_t last)
{
	const struct value *v = p->v;
	struct value_chunk *c;

	if (v->height == 0) {
		if (first == 0 && v->u.slot && (p->convert || p->new_size != v->size))
			return value_plan_add(p, 0) ? 0 : -ENOMEM;
		return 0;
	}
	for (c = value_tree_next(v->u.root, v->height, first); c && c->idx <= last;
	     c = value_tree_next(v->u.root, v->height, c->idx + 1)) {
		if (value_valid_bytes(v->size, c->idx) == value_valid_bytes(p->new_size, c->idx))
			continue;
		if (!value_plan_add(p, c->idx))
			return -ENOMEM;
	}
	return 0;
}

/* True when bytes of the slot must be written. */
static bool edit_writes(const struct value_edit *e)
{
	return e->from < e->to || (e->end > e->keep && !(e->c && e->c->blank));
}

/*
 * Room for growth when bytes are appended to a slot that is too small, so that many small appends
 * don't copy quadratically: a quarter for a value of one chunk; double for the last chunk of a
 * larger one, where the share of the whole is small.
 */
static uint32_t roomy_bytes(const struct value_edit *e, uint32_t need)
{
	uint32_t want = need;

	if (e->old && e->from >= e->keep && e->to > e->keep)
		want += e->idx > 0 ? need : need / 4;
	return want < VALUE_CHUNK_BYTES ? want : VALUE_CHUNK_BYTES;
}

static int edit_slot_alloc(struct value_plan *p, struct value_edit *e)
{
	uint32_t need = e->end > e->min_cap ? e->end : e->min_cap;
	uint32_t want;
	int err;

	if (e->staged && *e->staged && (*e->staged)->cap >= need) {
		/* where value_reserve set more aside than was staged, keep that */
		bool reserved = e->old && e->keep == 0 && e->old->cap > (*e->staged)->cap &&
				!slot_is_shared(e->old);

		if (!reserved) {
			e->slot = *e->staged;
			return 0;
		}
	}
	e->staged = NULL;
	if (e->old && e->old->cap >= need && (!edit_writes(e) || !slot_is_shared(e->old))) {
		e->slot = e->old;
		return 0;
	}
	if (need == 0)
		need = 1;
	want = roomy_bytes(e, need);
	err = slab_alloc(p->slab, want, &e->slot);
	if (err == -ENOSPC && want > need)
		err = slab_alloc(p->slab, need, &e->slot);
	return err;
}

static int edit_chunk_alloc(struct value_plan *p, struct value_edit *e)
{
	int err;

	if (e->c || (p->v->height == 0 && !p->convert))
		return 0;
	err = p->convert ? value_tree_reserve(&p->root, &p->height, e->idx)
			 : value_tree_reserve(&p->v->u.root, &p->v->height, e->idx);
	if (err)
		return err;
	e->c = calloc(1, sizeof(*e->c));
	if (!e->c)
		return -ENOMEM;
	e->c->idx = e->idx;
	CDS_INIT_LIST_HEAD(&e->c->img.node);
	e->fresh_chunk = true;
	return 0;
}

int value_plan_prepare(struct value_plan *p)
{
	int err = 0;

	if (p->v->height == 0 && (p->n > 0 || p->convert))
		value_hook_before(p->hook, NULL);
	for (size_t i = 0; i < p->n; i++)
		if (p->edits[i].c)
			value_hook_before(p->hook, p->edits[i].c);
	for (size_t i = 0; i < p->n && !err; i++) {
		err = edit_slot_alloc(p, &p->edits[i]);
		if (!err)
			err = edit_chunk_alloc(p, &p->edits[i]);
	}
	if (err)
		value_plan_abort(p);
	return err;
}

static void plan_free(struct value_plan *p)
{
	if (p->edits != p->fixed)
		free(p->edits);
}

void value_plan_abort(struct value_plan *p)
{
	for (size_t i = 0; i < p->n; i++) {
		struct value_edit *e = &p->edits[i];

		if (e->slot != e->old && !e->staged)
			slot_put(p->slab, e->slot);
		if (e->fresh_chunk)
			free(e->c);
		if (p->convert)
			value_tree_prune(&p->root, p->height, e->idx);
		else if (p->v->height > 0)
			value_tree_prune(&p->v->u.root, p->v->height, e->idx);
	}
	plan_free(p);
}

/* Fills [from, to) of a slot that isn't old's with old's bytes below keep, zeros above. */
static void copy_old(uint8_t *data, const struct value_edit *e, uint32_t from, uint32_t to)
{
	uint32_t kept = e->keep < to ? e->keep : to;

	if (from < kept && e->slot != e->old)
		memcpy(data + from, e->old->data + from, kept - from);
	if (kept < from)
		kept = from;
	if (kept < to)
		memset(data + kept, 0, to - kept);
}

static void edit_apply(const struct value_edit *e)
{
	uint8_t *data = e->slot->data;

	if (e->staged)
		return;
	if (e->blank && !e->old) {
		memset(data, 0, VALUE_CHUNK_BYTES);
		return;
	}
	if (e->slot == e->old && !edit_writes(e))
		return;
	if (e->from >= e->to) {
		copy_old(data, e, 0, e->end);
		return;
	}
	copy_old(data, e, 0, e->from);
	if (e->src)
		memcpy(data + e->from, e->src, e->to - e->from);
	else
		memset(data + e->from, 0, e->to - e->from);
	copy_old(data, e, e->to, e->end);
}

static void edit_install(struct value_plan *p, struct value_edit *e)
{
	struct value *v = p->v;

	if (e->staged)
		*e->staged = NULL;
	if (!e->old)
		v->chunks++;
	if (!e->c) {
		v->u.slot = e->slot;
		return;
	}
	e->c->blank = (e->blank && !e->old) || (e->c->blank && !edit_writes(e));
	e->c->slot = e->slot;
	if (e->fresh_chunk)
		value_tree_insert(v->u.root, v->height, e->c);
}

void value_plan_commit(struct value_plan *p)
{
	struct value *v = p->v;

	for (size_t i = 0; i < p->n; i++)
		edit_apply(&p->edits[i]);
	if (p->convert) {
		v->u.root = p->root;
		v->height = p->height;
	}
	v->size = p->new_size;
	for (size_t i = 0; i < p->n; i++)
		edit_install(p, &p->edits[i]);
	for (size_t i = 0; i < p->n; i++) {
		struct value_edit *e = &p->edits[i];

		value_hook_after(p->hook, e->c);
		if (e->old != e->slot)
			slot_put(p->slab, e->old);
	}
	plan_free(p);
}
