/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_VALUE_EDIT_H
#define KVFS_FS_VALUE_EDIT_H
/*
 * Changing a value all or nothing: a plan lists what becomes of each chunk (value_plan_add), gets
 * all the memory that this needs (value_plan_prepare, the only step that fails), and is carried out
 * (value_plan_commit). Private to the value module.
 *
 * Threads: the store's lock.
 */
#include "fs/store/value_tree.h"

/* What becomes of one chunk: its first `keep` bytes stay, [from, to) are written, the rest up to
 * `end` reads as zeros. */
struct value_edit {
	uint64_t idx;
	struct value_chunk *c;     /* NULL: the inline slot */
	struct slot *old;          /* NULL: a hole */
	/* what it has afterwards; == old: changed in place or not at all */
	struct slot *slot;
	struct slot **staged;      /* a slot with all the bytes, or NULL */
	const uint8_t *src;        /* bytes for [from, to); NULL: zeros */
	uint32_t keep, from, to, end;
	uint32_t min_cap;          /* usable bytes wanted at least */
	bool fresh_chunk;          /* c was allocated for this */
	bool blank;                /* a new slot of zeros throughout */
};

/* a WRITE of RECORD_DATA_MAX touches 17 chunks, the old tail, chunk 0 */
#define VALUE_EDITS_FIXED 20

struct value_plan {
	struct slab *slab;
	struct value *v;
	const struct value_hook *hook; /* or NULL */
	uint64_t new_size;
	bool convert;                  /* height 0 to a tree */
	struct value_node *root;       /* of the tree when convert */
	uint8_t height;
	struct value_edit *edits;      /* in order of index */
	size_t n, max;
	struct value_edit fixed[VALUE_EDITS_FIXED];
};

/* Begins a plan. tree: the value must have one afterwards. Uncommitted plans end with
 * value_plan_abort. */
void value_plan_begin(struct value_plan *p, struct slab *s, struct value *v,
		      const struct value_hook *h, uint64_t new_size, bool tree);

/* The edit of chunk idx that only follows the new size; set from, to, src, staged, min_cap, blank
 * for more. Indexes ascend. NULL: no memory. */
struct value_edit *value_plan_add(struct value_plan *p, uint64_t idx);

/* Adds the edits of the chunks in [first, last] whose valid bytes the new size changes. -ENOMEM. */
int value_plan_add_resized(struct value_plan *p, uint64_t first, uint64_t last);

/* before hooks, then the memory. On failure the plan is aborted: -ENOSPC, -ENOMEM. */
int value_plan_prepare(struct value_plan *p);
void value_plan_commit(struct value_plan *p);
void value_plan_abort(struct value_plan *p);

/* What value_stage prepared. A slot is there where the write replaces all of its chunk, as far as
 * was known. */
#define VALUE_STAGE_SLOTS 17 /* RECORD_DATA_MAX, unaligned */
struct value_stage {
	uint64_t off;
	size_t len;
	struct slot *slot[VALUE_STAGE_SLOTS]; /* of chunk off / VALUE_CHUNK_BYTES + i */
};

/* Valid bytes of chunk idx in a value of size bytes. */
static inline uint32_t value_valid_bytes(uint64_t size, uint64_t idx)
{
	uint64_t start = idx * VALUE_CHUNK_BYTES;

	if (size <= start)
		return 0;
	return size - start < VALUE_CHUNK_BYTES ? (uint32_t)(size - start) : VALUE_CHUNK_BYTES;
}

/* The slot of chunk idx, NULL for a hole. */
static inline struct slot *value_slot_at(const struct value *v, uint64_t idx)
{
	const struct value_chunk *c;

	if (v->height == 0)
		return idx == 0 ? v->u.slot : NULL;
	c = value_tree_find(v->u.root, v->height, idx);
	return c ? c->slot : NULL;
}

static inline void value_hook_before(const struct value_hook *h, struct value_chunk *c)
{
	if (h && h->before)
		h->before(h->ctx, c);
}

static inline void value_hook_after(const struct value_hook *h, struct value_chunk *c)
{
	if (h && h->after)
		h->after(h->ctx, c);
}

#endif
