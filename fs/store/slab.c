/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slab allocator. A region of the pool is cut into pages of one kind (128 of 64 KiB, 8 of 1 MiB, or
 * one of 8 MiB); a page belongs to one size class while any of its slots is used. The largest class
 * has regions of its own; when there is none left it also takes what 1 MiB pages are free, as a
 * class behind the others (SLAB_LAST). When there is neither page nor region left for a smaller
 * class, a free slot of a larger one becomes a page of it (slab_nest.c). Slots are found from an
 * address by arithmetic: address -> region -> page (-> host -> nested page). A region without used
 * pages goes back to the pool; one of each kind is kept, so that use that swings about a level
 * costs nothing, and is cut anew when another kind needs it.
 *
 * A slot costs 8 bytes (struct slot) beside its usable bytes, from the class of 8 KiB on 64 bytes,
 * which put its data on a cache line.
 *
 * Threads: any. One short lock; region_get is called without it.
 */
#include "fs/store/slab_internal.h"

#include "common/thread.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static_assert(SLAB_CLASSES * sizeof(struct slab_class_stats) <=
		      sizeof(((struct slab_stats *)0)->class_stats),
	      "the statistics have room for every class");
static_assert(sizeof(struct slot) == 8, "a slot's header is 8 bytes");

/* The class of len bytes: doublings of 64 in quarters. */
static unsigned class_of(size_t len)
{
	unsigned shift, quarter;

	if (len <= 1U << SLAB_MIN_SHIFT)
		return 0;
	shift = 63 - (unsigned)__builtin_clzll(len - 1);
	quarter = (unsigned)((len - 1) >> (shift - 2)) & 3;
	return (shift - SLAB_MIN_SHIFT) * 4 + quarter + 1;
}

static uint32_t class_cap(unsigned cls)
{
	if (cls == SLAB_LAST)
		return SLAB_SLOT_MAX;
	return (4 + cls % 4) << (cls / 4 + SLAB_MIN_SHIFT - 2);
}

static enum page_kind class_kind(unsigned cls)
{
	if (cls == SLAB_LARGEST)
		return PAGE_REGION; /* 127 slots; fifteen to 1 MiB waste 6 % */
	return class_cap(cls) <= 1024 ? PAGE_SMALL : PAGE_MEDIUM;
}

static void class_init(struct slab_class *c, unsigned cls)
{
	c->cap = class_cap(cls);
	c->kind = class_kind(cls);
	c->stride = c->cap + (uint32_t)sizeof(struct slot);
	c->first = 0;
	if (c->cap >= SLAB_LINE_FROM_BYTES) {
		c->stride = (c->stride + SLAB_LINE_BYTES - 1) & ~(SLAB_LINE_BYTES - 1U);
		c->first = SLAB_LINE_BYTES - (uint32_t)sizeof(struct slot);
	}
	c->slots = ((1U << slab_kind_shift[c->kind]) - c->first) / c->stride;
	CDS_INIT_LIST_HEAD(&c->partial);
}

size_t slab_class_bytes(size_t len)
{
	return len > SLAB_SLOT_MAX ? SLAB_SLOT_MAX : class_cap(class_of(len));
}

struct slab *slab_create(struct region_pool *pool)
{
	struct region_stats rs;
	struct slab *s;

	region_pool_stats(pool, &rs);
	s = calloc(1, sizeof(*s) + rs.arena_bytes / REGION_BYTES * sizeof(s->by_index[0]));
	if (!s)
		return NULL;
	s->pool = pool;
	s->base = region_pool_base(pool);
	s->regions = s->limit = rs.arena_bytes / REGION_BYTES;
	thread_mutex_init_adaptive(&s->lock);
	for (unsigned i = 0; i <= SLAB_LAST; i++)
		class_init(&s->class[i], i);
	for (unsigned k = 0; k < PAGE_KINDS; k++)
		CDS_INIT_LIST_HEAD(&s->open[k]);
	return s;
}

void slab_set_limit(struct slab *s, uint64_t bytes)
{
	pthread_mutex_lock(&s->lock);
	s->limit = bytes / REGION_BYTES + (bytes % REGION_BYTES != 0);
	if (s->limit > s->regions)
		s->limit = s->regions;
	pthread_mutex_unlock(&s->lock);
}

void slab_destroy(struct slab *s)
{
	if (!s)
		return;
	for (uint64_t i = 0; i < s->regions; i++)
		slab_region_release(s, s->by_index[i]);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void slab_page_open_locked(struct slab *s, struct slab_page *page, unsigned cls, uint8_t *base,
			   uint32_t slots)
{
	struct slab_class *c = &s->class[cls];

	page->cls = (uint8_t)cls;
	page->base = base;
	page->slots = (uint16_t)slots;
	page->free = NULL;
	page->carved = 0;
	page->used = 0;
	page->hosts = 0;
	page->nested = false;
	c->all_slots += slots;
	cds_list_add(&page->node, &c->partial);
}

struct slot *slab_class_pop_locked(struct slab *s, unsigned cls)
{
	struct slab_class *c = &s->class[cls];
	struct slab_page *page;
	struct slot *slot;

	if (!cds_list_empty(&c->partial))
		page = cds_list_first_entry(&c->partial, struct slab_page, node);
	else
		page = slab_page_take_locked(s, cls);
	if (!page)
		return NULL;
	slot = page->free;
	if (slot) {
		page->free = *(struct slot **)(void *)slot->data;
		ASAN_UNPOISON_MEMORY_REGION(slot->data, c->cap);
	} else {
		slot = (struct slot *)(void *)(page->base + (size_t)page->carved++ * c->stride);
	}
	page->used++;
	c->used_slots++;
	if (page->used == page->slots)
		cds_list_del(&page->node);
	slot->cap = c->cap;
	atomic_store_explicit(&slot->refs, 1, memory_order_relaxed);
	return slot;
}

int slab_alloc(struct slab *s, size_t len, struct slot **ret_slot)
{
	unsigned cls = class_of(len);
	struct slot *slot;
	int err = 0;

	assert(len > 0 && len <= SLAB_SLOT_MAX);
	pthread_mutex_lock(&s->lock);
	slot = slab_class_pop_locked(s, cls);
	while (!slot && !err) {
		pthread_mutex_unlock(&s->lock);
		err = slab_region_add(s, s->class[cls].kind);
		pthread_mutex_lock(&s->lock);
		slot = slab_class_pop_locked(s, cls);
		if (!slot && err)
			slot = slab_pop_larger_locked(s, cls);
	}
	pthread_mutex_unlock(&s->lock);
	if (!slot)
		return err;
	*ret_slot = slot;
	return 0;
}

static void page_push_locked(struct slab *s, struct slab_page *page, struct slot *slot)
{
	struct slab_class *c = &s->class[page->cls];

	*(struct slot **)(void *)slot->data = page->free;
	ASAN_POISON_MEMORY_REGION(slot->data + sizeof(void *), c->cap - sizeof(void *));
	page->free = slot;
	if (page->used == page->slots && page->nested) /* the last to be taken from */
		cds_list_add_tail(&page->node, &c->partial);
	else if (page->used == page->slots)
		cds_list_add(&page->node, &c->partial);
	page->used--;
	c->used_slots--;
}

static void slot_free(struct slab *s, struct slot *slot)
{
	size_t off = (size_t)((uint8_t *)slot - s->base);
	struct slab_region *r, *release = NULL;
	struct slab_page *outer, *page;

	pthread_mutex_lock(&s->lock);
	r = s->by_index[off / REGION_BYTES];
	outer = &r->page[(off % REGION_BYTES) >> slab_kind_shift[r->kind]];
	page = outer->hosts ? slab_nest_find(s, outer, slot) : outer;
	page_push_locked(s, page, slot);
	if (page->nested && page->used == 0)
		page_push_locked(s, outer, slab_nest_close_locked(s, page, outer));
	if (outer->used == 0)
		release = slab_page_release_locked(s, r, outer);
	pthread_mutex_unlock(&s->lock);
	slab_region_release(s, release);
}

void slot_get(struct slot *slot)
{
	uint32_t refs = atomic_fetch_add_explicit(&slot->refs, 1, memory_order_relaxed);

	assert(refs > 0);
	(void)refs;
}

void slot_put(struct slab *s, struct slot *slot)
{
	uint32_t refs;

	if (!slot)
		return;
	/* release: what this holder read or wrote is done; acquire: for the one who frees */
	refs = atomic_fetch_sub_explicit(&slot->refs, 1, memory_order_acq_rel);
	assert(refs > 0);
	if (refs == 1)
		slot_free(s, slot);
}
