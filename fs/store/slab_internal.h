/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_SLAB_INTERNAL_H
#define KVFS_FS_SLAB_INTERNAL_H
/*
 * What the parts of slab.h share.
 *
 * slab.c         classes, slots, references
 * slab_region.c  regions and pages: from the pool, cut, given back
 * slab_nest.c    when the arena is full: pages within a slot of a larger class
 * slab_stats.c   what is used and free
 */
#include "fs/store/slab.h"

#include <pthread.h>
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

enum page_kind { PAGE_SMALL, PAGE_MEDIUM, PAGE_REGION, PAGE_KINDS };

/* log2 of a page's bytes */
static const unsigned slab_kind_shift[PAGE_KINDS] = { 16, 20, 23 };

/* A page. Its slots are carved in order of address first, so memory is touched only when needed. A
 * nested one is described by the first bytes of the slot that it lies in, its host. */
struct slab_page {
	struct cds_list_head node;  /* class's partial pages; region's free pages */
	struct slot *free;          /* freed slots, linked through their data */
	uint8_t *base;              /* of its first slot */
	uint32_t carved;            /* slots ever handed out */
	uint32_t used;              /* hosts among them */
	uint16_t slots;             /* in all */
	uint16_t hosts;             /* slots in which a nested page lies */
	uint8_t cls;
	bool nested;                /* never has hosts */
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
	uint32_t slots;              /* a page of its kind */
	enum page_kind kind;
	struct cds_list_head partial; /* pages with a free slot */
	uint64_t all_slots, used_slots; /* of its pages, nested ones too; used: hosts, too */
	uint64_t hosts;
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

static inline uint32_t slab_kind_pages(unsigned kind)
{
	return (uint32_t)(REGION_BYTES >> slab_kind_shift[kind]);
}

/* slab.c */

/* Makes page an empty one of slots of a class, the first at base, and the class's to take from. */
void slab_page_open_locked(struct slab *s, struct slab_page *page, unsigned cls, uint8_t *base,
			   uint32_t slots);

/* A slot of a class from its pages and those it can have without a new region. NULL: none. */
struct slot *slab_class_pop_locked(struct slab *s, unsigned cls);

/* slab_nest.c */

/* The arena is full: a slot of a page in a free slot of a larger class, or all of one that has room
 * for one only. NULL: there is none either. */
struct slot *slab_pop_larger_locked(struct slab *s, unsigned cls);

/* The page that a used slot is of: page, its region's at that address, or one nested in it. */
struct slab_page *slab_nest_find(const struct slab *s, struct slab_page *page,
				 const struct slot *slot);

/* A nested page has no used slots any more: it is gone. Returns its host, to be given back, which
 * is a slot of outer. */
struct slot *slab_nest_close_locked(struct slab *s, struct slab_page *page,
				    struct slab_page *outer);

/* slab_region.c */

/* Adds a region of a kind: from the pool, else a spare one of another kind. No lock. -ENOSPC,
 * -ENOMEM. */
int slab_region_add(struct slab *s, enum page_kind kind);

/* Gives a region back to the pool. No lock. NULL is fine. */
void slab_region_release(struct slab *s, struct slab_region *r);

/* Takes a free page of an open or spare region for a class. NULL: there is none. */
struct slab_page *slab_page_take_locked(struct slab *s, unsigned cls);

/* Gives a page without used slots back; returns a region to release without the lock, or NULL. */
struct slab_region *slab_page_release_locked(struct slab *s, struct slab_region *r,
					     struct slab_page *page);

#endif
