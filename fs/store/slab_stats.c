/* SPDX-License-Identifier: Apache-2.0 */
/* What of the slab's memory is used and free. */
#include "fs/store/slab_internal.h"

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
		bytes += s->free_pages[k] << slab_kind_shift[k];
	return bytes;
}

static uint64_t class_free_slots_locked(const struct slab *s, unsigned cls)
{
	const struct slab_class *c = &s->class[cls];

	return c->all_slots - c->used_slots;
}

void slab_stats(struct slab *s, struct slab_stats *ret_stats)
{
	struct slab_stats st = { .classes = SLAB_CLASSES };

	pthread_mutex_lock(&s->lock);
	for (unsigned i = 0; i <= SLAB_LAST; i++) {
		const struct slab_class *c = &s->class[i];
		struct slab_class_stats *cs = &st.class_stats[i == SLAB_LAST ? SLAB_LARGEST : i];

		cs->slot_bytes = c->cap;
		cs->slots += c->all_slots - c->hosts;
		cs->used_slots += c->used_slots - c->hosts;
		st.used_bytes += (c->used_slots - c->hosts) * c->cap;
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
