/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slab's regions: taken from the pool, cut into pages, given back when no page of them is used.
 * One of each kind stays, cut anew when another kind needs it.
 */
#include "fs/store/slab_internal.h"

#include <errno.h>
#include <stdlib.h>

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

void slab_region_release(struct slab *s, struct slab_region *r)
{
	if (!r)
		return;
	ASAN_UNPOISON_MEMORY_REGION(r->region.base, REGION_BYTES);
	region_put(s->pool, &r->region);
	free(r);
}

/* Cuts a region without used pages into pages of a kind. NULL: no memory. */
static struct slab_region *region_cut(const struct region *region, enum page_kind kind)
{
	uint32_t pages = slab_kind_pages(kind);
	struct slab_region *r = calloc(1, sizeof(*r) + pages * sizeof(r->page[0]));

	if (!r)
		return NULL;
	r->region = *region;
	r->kind = kind;
	CDS_INIT_LIST_HEAD(&r->free_pages);
	for (uint32_t i = 0; i < pages; i++)
		cds_list_add_tail(&r->page[i].node, &r->free_pages);
	return r;
}

static uint8_t *page_memory(const struct slab_region *r, const struct slab_page *page)
{
	return r->region.base + ((size_t)(page - r->page) << slab_kind_shift[r->kind]);
}

struct slab_page *slab_page_take_locked(struct slab *s, unsigned cls)
{
	struct slab_class *c = &s->class[cls];
	struct slab_region *r = s->spare[c->kind];
	struct slab_page *page;

	if (!cds_list_empty(&s->open[c->kind])) {
		r = cds_list_first_entry(&s->open[c->kind], struct slab_region, node);
	} else if (r) {
		s->spare[c->kind] = NULL;
		cds_list_add(&r->node, &s->open[c->kind]);
		s->free_pages[c->kind] += slab_kind_pages(c->kind);
	} else {
		return NULL;
	}
	page = cds_list_first_entry(&r->free_pages, struct slab_page, node);
	cds_list_del(&page->node);
	r->pages_used++;
	s->free_pages[c->kind]--;
	if (cds_list_empty(&r->free_pages))
		cds_list_del(&r->node);
	slab_page_open_locked(s, page, cls, page_memory(r, page) + c->first, c->slots);
	return page;
}

struct slab_region *slab_page_release_locked(struct slab *s, struct slab_region *r,
					     struct slab_page *page)
{
	s->class[page->cls].all_slots -= page->slots;
	ASAN_UNPOISON_MEMORY_REGION(page_memory(r, page), 1UL << slab_kind_shift[r->kind]);
	cds_list_del(&page->node);
	if (cds_list_empty(&r->free_pages))
		cds_list_add(&r->node, &s->open[r->kind]);
	cds_list_add(&page->node, &r->free_pages);
	s->free_pages[r->kind]++;
	if (--r->pages_used > 0)
		return NULL;
	cds_list_del(&r->node);
	s->free_pages[r->kind] -= slab_kind_pages(r->kind);
	if (!s->spare[r->kind]) {
		s->spare[r->kind] = r;
		return NULL;
	}
	s->by_index[r->region.index] = NULL;
	s->regions_taken--;
	return r;
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

int slab_region_add(struct slab *s, enum page_kind kind)
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
	slab_region_release(s, extra);
	return 0;
}
