/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_REGION_H
#define KVFS_REPLICATION_REGION_H
/*
 * The region pool: the arena's memory in regions of REGION_BYTES, cut from memfd segments of at
 * most 1 GiB. A background thread ("kv-region") keeps a reserve of regions ahead of need: mapped,
 * faulted in, and registered with the device of a registrar (verbs; none for tcp and shm). The data
 * path takes from the reserve (a hit) or, when it is empty, prepares one itself (a miss; both are
 * counted).
 *
 * Threads: get and put from any thread; each O(1) on a hit.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REGION_BYTES (8ULL << 20)
#define REGION_SEGMENT_BYTES (1ULL << 30)

struct region_pool;

struct region {
	uint8_t *base;     /* REGION_BYTES, aligned to REGION_BYTES */
	uint32_t index;    /* position in the arena, 0 .. arena_regions - 1 */
	void *registered;  /* the registrar's handle (ibv_mr), NULL when there is none */
};

/* Memory back-end seam: where segments come from; the real ones are in region_memory.h. */
struct region_backend_ops {
	const char *name;
	/* Reserves address space for arena_bytes, aligned to REGION_BYTES; no memory yet. where:
	 * which node or device, as the option says it; NULL for a back-end that needs none.
	 * Of the first huge_bytes may lie in reserved hugepages what such pages suffice for.
	 * -ENODEV, -ENOENT: not there; -EBUSY, -ENOSPC, -ENOMEM, -EPERM, ... */
	int (*open)(const char *where, uint64_t arena_bytes, uint64_t huge_bytes, void **ret_be,
		    uint8_t **ret_base);
	/* Makes [off, off+len) usable (faulted in) / gives its memory back. -ENOMEM. */
	int (*commit)(void *be, uint64_t off, uint64_t len);
	void (*decommit)(void *be, uint64_t off, uint64_t len);
	bool (*hugepages)(void *be); /* true when memory lies in huge pages (reserved or not) */
	void (*close)(void *be);
	/* The dmabuf that a committed region is, and the offset in it: for memory that a device
	 * can't register by its address. The descriptor stays the back-end's. NULL: memory
	 * is the host's. */
	int (*dmabuf)(void *be, uint64_t off, int *ret_fd, uint64_t *ret_fd_off);
};
extern const struct region_backend_ops region_memfd_ops;

/* Registers memory with a device; ctx is the transport's. NULL ops: nothing to register. */
struct region_registrar_ops {
	int (*add)(void *ctx, void *base, size_t len, void **ret_handle);
	void (*remove)(void *ctx, void *handle);
	/* The same for a region that is a dmabuf (ibv_reg_dmabuf_mr). NULL, or -EOPNOTSUPP of
	 * either: this device can't, and is not asked again. */
	int (*add_dmabuf)(void *ctx, int fd, uint64_t fd_off, void *base, size_t len,
			  void **ret_handle);
	void (*gone)(void *ctx); /* last, when the pool is destroyed; may be NULL */
};

/*
 * arena_bytes is rounded up to whole regions. reserve_bytes (mr_cache_size) of regions are kept
 * ahead; may be changed later. -ENOMEM, -EINVAL.
 */
int region_pool_create(const struct region_backend_ops *be, uint64_t arena_bytes,
		       uint64_t reserve_bytes, struct region_pool **ret_pool);
/* The same in the memory that where names: see region_memory.h. spare_bytes: addresses behind the
 * arena, which take nothing as long as they are not used. Errors of the back-end's open, too. */
int region_pool_create_in(const struct region_backend_ops *be, const char *where,
			  uint64_t arena_bytes, uint64_t spare_bytes, uint64_t reserve_bytes,
			  struct region_pool **ret_pool);
void region_pool_destroy(struct region_pool *p); /* joins the thread; every region was put */

/* -ENOMEM: the arena is used up (or the machine is). A miss blocks while 8 MiB are faulted in. */
int region_get(struct region_pool *p, struct region *ret_region);
void region_put(struct region_pool *p, const struct region *r);

void region_pool_set_reserve(struct region_pool *p, uint64_t reserve_bytes);

/*
 * From now on the thread registers regions by ops: those present one after the other, new ones
 * before they join the reserve. A region that the data path had to prepare itself, or that the
 * device could not take, is used without and tried (again) later (but see add_dmabuf). ops NULL
 * ends it. Waits for a registration under way, and takes back those made with the ops before:
 * nobody may use their handles any more. Callers one at a time.
 */
void region_pool_set_registrar(struct region_pool *p, const struct region_registrar_ops *ops,
			       void *ctx);

/* The registrar's handle for the region that contains [addr, addr + len). False: not memory of the
 * pool, more than one region, or not registered (yet). Any thread, no lock. The caller owns
 * something in that region, and the registrar stays. (A region's own `registered` is as of
 * region_get.) */
bool region_pool_find(struct region_pool *p, const void *addr, size_t len, void **ret_handle);

struct region_stats {
	uint64_t arena_bytes, used_bytes, reserve_bytes, ready_bytes;
	uint64_t hits, misses;       /* of region_get */
	uint64_t registered_bytes;
	int register_err;            /* of the last registration, 0 or -errno */
	uint64_t found, not_found;   /* by region_pool_find: mr_cache_hit_rate */
	bool hugepages;
};
void region_pool_stats(struct region_pool *p, struct region_stats *ret_stats);
/* The counters of these alone, without the lock: for who looks often. */
struct region_look {
	uint64_t hits, misses, found, not_found;
	int register_err;
	int commit_err; /* of the last attempt to get memory since some was given back */
	uint64_t refused_ns; /* clock_mono_ns() of when memory or a registration was refused last,
				0: never */
};
void region_pool_look(struct region_pool *p, struct region_look *ret_look);
uint8_t *region_pool_base(struct region_pool *p);

#endif
