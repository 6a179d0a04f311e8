/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena is full, and a class has neither a free slot nor a page: a free slot of a larger class
 * becomes a page of it, which goes back when its last slot does. So what large values left free, in
 * pieces, serves small ones nearly whole. The smallest piece that is free is taken first: those of
 * 64 KiB are what large values need. Under the slab's lock.
 *
 * The page's descriptor takes the host's first bytes; its slots follow, on cache lines where those
 * of the class are, as the host's data is on one then.
 */
#include "fs/store/slab_internal.h"

#include <assert.h>

#define NEST_SLOTS_MIN 2 /* fewer: the host is handed out as it is */

static_assert(sizeof(struct slab_page) + sizeof(struct slot) <= SLAB_LINE_BYTES,
	      "the descriptor leaves the first slot's data on the second cache line");

/* Where in the host's data the first slot is. */
static uint32_t nest_first(const struct slab_class *c)
{
	uint32_t bytes = sizeof(struct slab_page);

	return c->cap >= SLAB_LINE_FROM_BYTES ? SLAB_LINE_BYTES - (uint32_t)sizeof(struct slot)
					      : bytes;
}

static uint32_t nest_slots(const struct slab_class *host, const struct slab_class *c)
{
	return (host->cap - nest_first(c)) / c->stride;
}

static struct slab_page *page_at(const struct slab *s, const struct slot *slot)
{
	size_t off = (size_t)((const uint8_t *)slot - s->base);
	struct slab_region *r = s->by_index[off / REGION_BYTES];

	return &r->page[(off % REGION_BYTES) >> slab_kind_shift[r->kind]];
}

static struct slab_page *nested_in(struct slot *host)
{
	return (struct slab_page *)(void *)host->data;
}

/* A page of slots of cls in a free slot of a larger class, whose first page with one is not itself
 * nested. NULL: it has none, nor a page. */
static struct slot *nest_locked(struct slab *s, unsigned larger, unsigned cls)
{
	struct slab_class *h = &s->class[larger], *c = &s->class[cls];
	struct slot *host = slab_class_pop_locked(s, larger);
	struct slab_page *page;

	if (!host)
		return NULL;
	page = nested_in(host);
	slab_page_open_locked(s, page, cls, host->data + nest_first(c), nest_slots(h, c));
	page->nested = true;
	page_at(s, host)->hosts++;
	h->hosts++;
	return slab_class_pop_locked(s, cls);
}

static struct slab_page *first_partial(struct slab_class *c)
{
	return cds_list_empty(&c->partial)
		       ? NULL
		       : cds_list_first_entry(&c->partial, struct slab_page, node);
}

struct slot *slab_pop_larger_locked(struct slab *s, unsigned cls)
{
	struct slot *slot = NULL;

	for (unsigned k = cls + 1; !slot && k <= SLAB_LAST; k++) {
		struct slab_page *page = first_partial(&s->class[k]);
		bool nests = nest_slots(&s->class[k], &s->class[cls]) >= NEST_SLOTS_MIN;

		if (page && !nests)
			slot = slab_class_pop_locked(s, k);
		else if (page && !page->nested) /* there is one level only */
			slot = nest_locked(s, k, cls);
	}
	/* a free page of 1 MiB: cut so that most of it stays what large values need */
	if (!slot && nest_slots(&s->class[SLAB_LAST], &s->class[cls]) >= NEST_SLOTS_MIN)
		slot = nest_locked(s, SLAB_LAST, cls);
	for (unsigned k = cls + 1; !slot && k <= SLAB_LAST; k++)
		slot = slab_class_pop_locked(s, k);
	return slot;
}

struct slab_page *slab_nest_find(const struct slab *s, struct slab_page *page,
				 const struct slot *slot)
{
	uint32_t stride = s->class[page->cls].stride;
	size_t off = (size_t)((const uint8_t *)slot - page->base);

	if (off % stride == 0)
		return page;
	return nested_in((struct slot *)(void *)(page->base + off / stride * stride));
}

struct slot *slab_nest_close_locked(struct slab *s, struct slab_page *page,
				    struct slab_page *outer)
{
	struct slot *host =
		(struct slot *)(void *)((uint8_t *)page - offsetof(struct slot, data));
	struct slab_class *h = &s->class[outer->cls];

	assert(page->nested && page->used == 0);
	s->class[page->cls].all_slots -= page->slots;
	cds_list_del(&page->node);
	ASAN_UNPOISON_MEMORY_REGION(host->data, h->cap);
	outer->hosts--;
	h->hosts--;
	return host;
}
