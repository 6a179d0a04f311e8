/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_SLAB_H
#define KVFS_FS_SLAB_H
/*
 * Slab allocator for values: slots of size classes (four a doubling from 64 bytes, so mean internal
 * waste is under 12.5 %) in regions of registered memory. A slot is reference counted: writers copy
 * when anyone else (a reader's reply, a record in flight, a checkpoint) still holds it.
 *
 * Threads: any. The allocator's own lock is held for a few instructions, never over a system call
 * except when a region is taken or returned. Reference counts are atomic.
 */
#include "replication/memory/region.h"

#include <stdatomic.h>

#define SLAB_SLOT_MAX 65536 /* usable bytes of the largest class: VALUE_CHUNK_BYTES */

struct slab;

/* A slot. The header lives in the slot's memory. */
struct slot {
	_Atomic uint32_t refs;
	uint32_t cap;     /* usable bytes at data */
	uint8_t data[];
};

struct slab *slab_create(struct region_pool *pool); /* NULL: no memory */
void slab_destroy(struct slab *s);

/* From now on no region is taken beyond so many bytes' worth, though the pool has more and more may
 * be in use already. Without it: all of the pool. */
void slab_set_limit(struct slab *s, uint64_t bytes);

/* A slot of at least len (1 .. SLAB_SLOT_MAX) bytes, refs 1, content undefined.
 * -ENOSPC: arena full. */
int slab_alloc(struct slab *s, size_t len, struct slot **ret_slot);
void slot_get(struct slot *slot);                   /* one more reference */
void slot_put(struct slab *s, struct slot *slot);   /* one less; frees at zero; NULL is fine */
static inline bool slot_is_shared(const struct slot *slot)
{
	/* acquire pairs with the release in slot_put: what the other holder read is done */
	return atomic_load_explicit(&slot->refs, memory_order_acquire) != 1;
}

/* usable bytes a request of len bytes gets */
size_t slab_class_bytes(size_t len);

struct slab_class_stats {
	uint32_t slot_bytes;         /* usable */
	uint64_t slots, used_slots;
};
struct slab_stats {
	uint64_t used_bytes;         /* usable bytes of slots in use */
	uint64_t free_slot_bytes;    /* free slots in regions already taken */
	uint64_t free_region_bytes;  /* regions not taken */
	unsigned classes;
	struct slab_class_stats class_stats[64];
};
void slab_stats(struct slab *s, struct slab_stats *ret_stats);

/* Bytes that one large value could still take, chunk by chunk of SLAB_SLOT_MAX: exact while nobody
 * else allocates. What lies in smaller pieces is not in it. A few instructions under the lock. */
uint64_t slab_available_bytes(struct slab *s);
/* Bytes of all that is free, in pieces of any size. A walk over the classes. */
uint64_t slab_free_bytes(struct slab *s);

#endif
