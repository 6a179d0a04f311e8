/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slab allocator. A region of the pool is cut into pages of one kind (128 of 64 KiB, 8 of 1 MiB, or
 * one of 8 MiB); a page belongs to one size class while any of its slots is used. The largest class
 * has regions of its own; when there is none left it also takes what 1 MiB pages are free, as a
 * class behind the others (SLAB_LAST). Slots are found from an address by arithmetic: address ->
 * region -> page. A region without used pages goes back
 * to the pool; one of each kind is kept, so that use that swings about a level costs nothing, and
 * is cut anew when another kind needs it.
 *
 * A slot costs 8 bytes (struct slot) beside its usable bytes, from the class of 8 KiB on 64 bytes,
 * which put its data on a cache line.
 *
 * Threads: any. One short lock; region_get is called without it.
 */
#include "fs/store/slab.h"

#include "common/thread.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <urcu/list.h>

#if defined(__SANITIZE_ADDRESS__)
#define SLAB_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLAB_POISON 1
#endif
#endif
#ifdef SLAB_POISON
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

#define SLAB_MIN_SHIFT 6                 /* the smallest class: 64 bytes */
#define SLAB_CLASSES (10 * 4 + 1)        /* four a doubling, 64 .. 65536 */
#define SLAB_LARGEST (SLAB_CLASSES - 1)
#define SLAB_LAST SLAB_CLASSES           /* slots as the largest, in 1 MiB pages */
#define SLAB_LINE_FROM_BYTES 8192        /* classes from here have data on a cache line */
#define SLAB_LINE_BYTES 64

static_assert(SLAB_CLASSES * sizeof(struct slab_class_stats) <=
		      sizeof(((struct slab_stats *)0)->class_stats),
	      "the statistics have room for every class");
static_assert(sizeof(struct slot) == 8, "a slot's header is 8 bytes");

enum page_kind { PAGE_SMALL, PAGE_MEDIUM, PAGE_REGION, PAGE_KINDS };

static const unsigned kind_shift[PAGE_KINDS] = { 16, 20, 23 };

/* A page. Its slots are carved in order of address first, so memory is touched only when needed. */
struct slab_page {
	struct cds_list_head node;  /* class's partial pages; region's free pages */
	struct slot *free;          /* freed slots, linked through their data */
	uint8_t *base;
	uint32_t carved;            /* slots ever handed out */
	uint32_t used;
	uint8_t cls;
};

struct slab_region {
	struct cds_list_head node;  /* kind's regions with free pages */
	struct cds_list_head free_pages;
	struct region region;
	enum page_kind kind;
	uint32_t pages_used;
	struct slab_page page[];
};

struct slab_class {
	/* usable bytes; distance of slots; offset of the first in its page */
	uint32_t cap, stride, first;
	uint32_t slots;              /* a page */
	enum page_kind kind;
	struct cds_list_head partial; /* pages with a free slot */
	uint64_t pages, used_slots;
};

struct slab {
	struct region_pool *pool;
	uint8_t *base;
	uint64_t regions;

	pthread_mutex_t lock; /* everything below */
	uint64_t regions_taken;
	uint64_t limit;                            /* regions; no more are taken */
	struct slab_class class[SLAB_LAST + 1];
	struct cds_list_head open[PAGE_KINDS];     /* regions with free and used pages */
	uint64_t free_pages[PAGE_KINDS];           /* of those */
	struct slab_region *spare[PAGE_KINDS];     /* a region without used pages, or NULL */
	/* an entry is stable while a slot of it is held */
	struct slab_region *by_index[];
};

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

static uint32_t kind_pages(unsigned kind)
{
	return (uint32_t)(REGION_BYTES >> kind_shift[kind]);
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
	c->slots = ((1U << kind_shift[c->kind]) - c->first) / c->stride;
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

/* A region of the pool, while there may be more. A few threads at once may pass the limit by one
 * each. */
static int region_take(struct slab *s, struct region *ret_region)
{
	bool full;

	pthread_mutex_lock(&s->lock);
	full = s->regions_taken >= s->limit;
	pthread_mutex_unlock(&s->lock);
	return full ? -ENOSPC : region_get(s->pool, ret_region);
}

static void region_release(struct slab *s, struct slab_region *r)
{
	if (!r)
		return;
	ASAN_UNPOISON_MEMORY_REGION(r->region.base, REGION_BYTES);
	region_put(s->pool, &r->region);
	free(r);
}

void slab_destroy(struct slab *s)
{
	if (!s)
		return;
	for (uint64_t i = 0; i < s->regions; i++)
		region_release(s, s->by_index[i]);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* Cuts a region without used pages into pages of a kind. NULL: no memory. r's
 * descriptor is replaced. */
static struct slab_region *region_cut(const struct region *region, enum page_kind kind)
{
	uint32_t pages = kind_pages(kind);
	struct slab_region *r = calloc(1, sizeof(*r) + pages * sizeof(r->page[0]));

	if (!r)
		return NULL;
	r->region = *region;
	r->kind = kind;
	CDS_INIT_LIST_HEAD(&r->free_pages);
	for (uint32_t i = 0; i < pages; i++) {
		r->page[i].base = region->base + ((size_t)i << kind_shift[kind]);
		cds_list_add_tail(&r->page[i].node, &r->free_pages);
	}
	return r;
}

/* Takes a free page of an open or spare region for a class. NULL: there is none. */
static struct slab_page *page_take_locked(struct slab *s, unsigned cls)
{
	struct slab_class *c = &s->class[cls];
	struct slab_region *r = s->spare[c->kind];
	struct slab_page *page;

	if (!cds_list_empty(&s->open[c->kind])) {
		r = cds_list_first_entry(&s->open[c->kind], struct slab_region, node);
	} else if (r) {
		s->spare[c->kind] = NULL;
		cds_list_add(&r->node, &s->open[c->kind]);
		s->free_pages[c->kind] += kind_pages(c->kind);
	} else {
		return NULL;
	}
	page = cds_list_first_entry(&r->free_pages, struct slab_page, node);
	cds_list_del(&page->node);
	r->pages_used++;
	s->free_pages[c->kind]--;
	if (cds_list_empty(&r->free_pages))
		cds_list_del(&r->node);
	page->cls = (uint8_t)cls;
	page->free = NULL;
	page->carved = 0;
	page->used = 0;
	c->pages++;
	cds_list_add(&page->node, &c->partial);
	return page;
}

/* Gives a page without used slots back; returns a region to release without the lock, or NULL. */
static struct slab_region *page_release_locked(struct slab *s, struct slab_region *r,
					       struct slab_page *page)
{
	s->class[page->cls].pages--;
	ASAN_UNPOISON_MEMORY_REGION(page->base, 1UL << kind_shift[r->kind]);
	cds_list_del(&page->node);
	if (cds_list_empty(&r->free_pages))
		cds_list_add(&r->node, &s->open[r->kind]);
	cds_list_add(&page->node, &r->free_pages);
	s->free_pages[r->kind]++;
	if (--r->pages_used > 0)
		return NULL;
	cds_list_del(&r->node);
	s->free_pages[r->kind] -= kind_pages(r->kind);
	if (!s->spare[r->kind]) {
		s->spare[r->kind] = r;
		return NULL;
	}
	s->by_index[r->region.index] = NULL;
	s->regions_taken--;
	return r;
}

/* A slot of a class from its pages and those it can have without a new region. NULL: none. */
static struct slot *class_pop_locked(struct slab *s, unsigned cls)
{
	struct slab_class *c = &s->class[cls];
	struct slab_page *page;
	struct slot *slot;

	if (!cds_list_empty(&c->partial))
		page = cds_list_first_entry(&c->partial, struct slab_page, node);
	else
		page = page_take_locked(s, cls);
	if (!page)
		return NULL;
	slot = page->free;
	if (slot) {
		page->free = *(struct slot **)(void *)slot->data;
		ASAN_UNPOISON_MEMORY_REGION(slot->data, c->cap);
	} else {
		slot = (struct slot *)(void *)(page->base + c->first +
					       (size_t)page->carved++ * c->stride);
	}
	page->used++;
	c->used_slots++;
	if (page->used == c->slots)
		cds_list_del(&page->node);
	slot->cap = c->cap;
	atomic_store_explicit(&slot->refs, 1, memory_order_relaxed);
	return slot;
}

/* A region without used pages of another kind, out of the slab's tables. NULL: none. */
static struct slab_region *spare_steal_locked(struct slab *s)
{
	for (unsigned k = 0; k < PAGE_KINDS; k++) {
		struct slab_region *r = s->spare[k];

		if (r) {
			s->spare[k] = NULL;
			s->by_index[r->region.index] = NULL;
			s->regions_taken--;
			return r;
		}
	}
	return NULL;
}

/* Adds a region of a kind: from the pool, else a spare one of another kind. No
 * lock. -ENOSPC, -ENOMEM. */
static int region_add(struct slab *s, enum page_kind kind)
{
	struct slab_region *r, *extra = NULL, *stolen = NULL;
	struct region region;

	if (region_take(s, &region) < 0) {
		pthread_mutex_lock(&s->lock);
		stolen = spare_steal_locked(s);
		pthread_mutex_unlock(&s->lock);
		if (!stolen)
			return -ENOSPC;
		region = stolen->region;
	}
	r = region_cut(&region, kind);
	free(stolen);
	if (!r) {
		region_put(s->pool, &region);
		return -ENOMEM;
	}
	ASAN_UNPOISON_MEMORY_REGION(region.base, REGION_BYTES);
	pthread_mutex_lock(&s->lock);
	if (s->spare[kind]) { /* another thread was faster */
		extra = r;
	} else {
		s->by_index[region.index] = r;
		s->spare[kind] = r;
		s->regions_taken++;
	}
	pthread_mutex_unlock(&s->lock);
	region_release(s, extra);
	return 0;
}

/* The arena is full: a larger slot than needed is better than none. */
static struct slot *pop_larger_locked(struct slab *s, unsigned cls)
{
	struct slot *slot = NULL;

	while (!slot && cls <= SLAB_LAST)
		slot = class_pop_locked(s, cls++);
	return slot;
}

int slab_alloc(struct slab *s, size_t len, struct slot **ret_slot)
{
	unsigned cls = class_of(len);
	struct slot *slot;
	int err = 0;

	assert(len > 0 && len <= SLAB_SLOT_MAX);
	pthread_mutex_lock(&s->lock);
	slot = class_pop_locked(s, cls);
	while (!slot && !err) {
		pthread_mutex_unlock(&s->lock);
		err = region_add(s, s->class[cls].kind);
		pthread_mutex_lock(&s->lock);
		slot = err ? pop_larger_locked(s, cls) : class_pop_locked(s, cls);
	}
	pthread_mutex_unlock(&s->lock);
	if (!slot)
		return err;
	*ret_slot = slot;
	return 0;
}

static void slot_free(struct slab *s, struct slot *slot)
{
	size_t off = (size_t)((uint8_t *)slot - s->base);
	struct slab_region *r, *release = NULL;
	struct slab_page *page;
	struct slab_class *c;

	pthread_mutex_lock(&s->lock);
	r = s->by_index[off / REGION_BYTES];
	page = &r->page[(off % REGION_BYTES) >> kind_shift[r->kind]];
	c = &s->class[page->cls];
	*(struct slot **)(void *)slot->data = page->free;
	ASAN_POISON_MEMORY_REGION(slot->data + sizeof(void *), c->cap - sizeof(void *));
	page->free = slot;
	if (page->used == c->slots)
		cds_list_add(&page->node, &c->partial);
	page->used--;
	c->used_slots--;
	if (page->used == 0)
		release = page_release_locked(s, r, page);
	pthread_mutex_unlock(&s->lock);
	region_release(s, release);
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

/* Regions not taken, the spare ones included. */
static uint64_t free_regions_locked(const struct slab *s)
{
	uint64_t n = s->limit > s->regions_taken ? s->limit - s->regions_taken : 0;

	for (unsigned k = 0; k < PAGE_KINDS; k++)
		n += s->spare[k] != NULL;
	return n;
}

/* Bytes of the free pages of regions that have used ones. */
static uint64_t free_page_bytes_locked(const struct slab *s)
{
	uint64_t bytes = 0;

	for (unsigned k = 0; k < PAGE_KINDS; k++)
		bytes += s->free_pages[k] << kind_shift[k];
	return bytes;
}

static uint64_t class_free_slots_locked(const struct slab *s, unsigned cls)
{
	const struct slab_class *c = &s->class[cls];

	return c->pages * c->slots - c->used_slots;
}

void slab_stats(struct slab *s, struct slab_stats *ret_stats)
{
	struct slab_stats st = { .classes = SLAB_CLASSES };

	pthread_mutex_lock(&s->lock);
	for (unsigned i = 0; i <= SLAB_LAST; i++) {
		const struct slab_class *c = &s->class[i];
		struct slab_class_stats *cs = &st.class_stats[i == SLAB_LAST ? SLAB_LARGEST : i];

		cs->slot_bytes = c->cap;
		cs->slots += c->pages * c->slots;
		cs->used_slots += c->used_slots;
		st.used_bytes += c->used_slots * c->cap;
		st.free_slot_bytes += class_free_slots_locked(s, i) * c->cap;
	}
	st.free_slot_bytes += free_page_bytes_locked(s);
	st.free_region_bytes = free_regions_locked(s) * REGION_BYTES;
	pthread_mutex_unlock(&s->lock);
	*ret_stats = st;
}

uint64_t slab_available_bytes(struct slab *s)
{
	const struct slab_class *largest = &s->class[SLAB_LARGEST], *last = &s->class[SLAB_LAST];
	uint64_t slots;

	pthread_mutex_lock(&s->lock);
	slots = free_regions_locked(s) * largest->slots + class_free_slots_locked(s, SLAB_LARGEST) +
		s->free_pages[last->kind] * last->slots + class_free_slots_locked(s, SLAB_LAST);
	pthread_mutex_unlock(&s->lock);
	return slots * SLAB_SLOT_MAX;
}

uint64_t slab_free_bytes(struct slab *s)
{
	struct slab_stats st;

	slab_stats(s, &st);
	return st.free_slot_bytes + st.free_region_bytes;
}
