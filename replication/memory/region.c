/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The region pool. A region is in one of five states:
 *
 *   BARE --commit, register--> READY <--put/get--> USED --put, reserve full--> LEAVING
 *   --decommit--> BARE
 *
 * and BUSY while the first or last arrow runs without the lock. "kv-region" does both ahead of
 * need;
 * a get that finds nothing READY (or LEAVING, which is as good) goes from BARE itself: a miss.
 *
 * Threads: any. One mutex, held over no system call but the wake-up of the thread.
 */
#include "replication/memory/region.h"

#include "common/clock.h"
#include "common/thread.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

/* How long a get waits for a region that the thread is just preparing or giving back. */
#define REGION_BUSY_WAIT_NS (10ULL * 1000000000ULL)

/* Between attempts to register memory with a device that had no room for it. */
#define REGION_REGISTER_RETRY_NS (1 * NSEC_PER_SEC)

/* How long a region stays LEAVING after the last put: values that are deleted and written again
 * (the usual case) find warm memory. */
#define REGION_LINGER_NS (3 * NSEC_PER_SEC)

enum region_state { REGION_BARE, REGION_READY, REGION_LEAVING, REGION_USED, REGION_BUSY,
		    REGION_STATES };

#define REGION_NONE UINT32_MAX

struct region_slot {
	void *_Atomic handle;    /* the registrar's; written under lock or while BUSY */
	uint32_t next;           /* in the list of its state */
	enum region_state state; /* lock */
};

struct region_pool {
	const struct region_backend_ops *be;
	void *be_ctx;
	uint8_t *base;
	uint32_t regions;
	pthread_t thread;

	pthread_mutex_t lock;  /* everything below */
	pthread_cond_t work;   /* for the thread */
	pthread_cond_t idle;   /* a region left BUSY */
	/* changes only when nothing is BUSY or registering */
	const struct region_registrar_ops *registrar;
	void *registrar_ctx;
	bool registering;      /* the thread is in registrar->add, without the lock */
	bool register_never;    /* the registrar's device can't take this kind of memory at all */
	bool registrar_changes; /* the thread begins nothing: handles are the changer's */
	uint32_t register_next; /* no region before it lacks a handle */
	_Atomic int register_err; /* of the last attempt; written under lock */
	uint64_t register_retry_ns;
	uint32_t reserve;      /* regions */
	uint32_t count[REGION_STATES];
	uint32_t head[REGION_STATES]; /* lists; USED and BUSY have none */
	/* the machine is out of memory: no more ahead until something changes */
	bool commit_failed;
	_Atomic int commit_err; /* the same for who looks on: set_reserve leaves it; written under
				   lock */
	_Atomic uint64_t refused_ns; /* when either failed last; written under lock */
	bool stop;
	uint64_t linger_until_ns; /* no region leaves before */
	_Atomic uint64_t hits, misses; /* written under lock */
	_Atomic uint64_t registered;           /* regions with a handle */
	_Atomic uint64_t found, not_found;     /* look-ups; relaxed */
	struct region_slot slot[];
};

static void state_set_locked(struct region_pool *p, uint32_t i, enum region_state state)
{
	struct region_slot *r = &p->slot[i];

	p->count[r->state]--;
	p->count[state]++;
	r->state = state;
	r->next = p->head[state];
	p->head[state] = i;
}

static uint32_t pop_locked(struct region_pool *p, enum region_state from, enum region_state to)
{
	uint32_t i = p->head[from];

	if (i == REGION_NONE)
		return REGION_NONE;
	p->head[from] = p->slot[i].next;
	state_set_locked(p, i, to);
	return i;
}

/* Regions above the reserve that stay ready, so that use that swings about a
 * level costs nothing. */
static uint32_t ready_max(const struct region_pool *p)
{
	return p->reserve + (p->reserve + 1) / 2;
}

static int registrar_add(struct region_pool *p, uint32_t i, void **ret_handle)
{
	const struct region_registrar_ops *r = p->registrar;
	uint8_t *at = p->base + i * REGION_BYTES;
	uint64_t fd_off;
	int fd, err;

	if (!p->be->dmabuf)
		return r->add(p->registrar_ctx, at, REGION_BYTES, ret_handle);
	if (!r->add_dmabuf)
		return -EOPNOTSUPP;
	err = p->be->dmabuf(p->be_ctx, i * REGION_BYTES, &fd, &fd_off);
	return err ? err
		   : r->add_dmabuf(p->registrar_ctx, fd, fd_off, at, REGION_BYTES, ret_handle);
}

static int handle_add(struct region_pool *p, uint32_t i)
{
	void *handle = NULL;
	int err;

	if (!p->registrar)
		return 0;
	err = registrar_add(p, i, &handle);
	if (!err) {
		atomic_store_explicit(&p->slot[i].handle, handle, memory_order_release);
		atomic_fetch_add_explicit(&p->registered, 1, memory_order_relaxed);
	}
	return err;
}

static void handle_remove(struct region_pool *p, uint32_t i)
{
	void *handle = atomic_exchange_explicit(&p->slot[i].handle, NULL, memory_order_acq_rel);

	if (!handle)
		return;
	p->registrar->remove(p->registrar_ctx, handle);
	atomic_fetch_sub_explicit(&p->registered, 1, memory_order_relaxed);
}

/* A region from i on may lack a handle: the thread looks. */
static void register_from_locked(struct region_pool *p, uint32_t i)
{
	if (i < p->register_next)
		p->register_next = i;
	if (p->registrar)
		pthread_cond_signal(&p->work);
}

static void committed_locked(struct region_pool *p, int err)
{
	p->commit_err = err;
	if (err)
		p->refused_ns = clock_mono_ns();
}

static void registered_locked(struct region_pool *p, uint32_t i, int err)
{
	p->register_err = err;
	if (!err)
		return;
	p->refused_ns = clock_mono_ns();
	p->register_never = err == -EOPNOTSUPP;
	if (p->register_never)
		return;
	/* Its bytes are copied where they would have been sent from here: slower, not wrong. */
	p->register_retry_ns = clock_mono_ns() + REGION_REGISTER_RETRY_NS;
	register_from_locked(p, i);
}

/*
 * BUSY to usable, in the thread. Without the lock: the registrar can't change while a region is
 * BUSY. A device that can't take the region is no reason not to use it.
 */
static int prepare(struct region_pool *p, uint32_t i, int *ret_register_err)
{
	int err = p->be->commit(p->be_ctx, i * REGION_BYTES, REGION_BYTES);

	if (!err)
		*ret_register_err = p->register_never ? -EOPNOTSUPP : handle_add(p, i);
	return err;
}

/* Registers one region that is in use or ready without it. False: there is none, or it is too
 * early. Drops and retakes the lock. */
static bool register_step_locked(struct region_pool *p)
{
	uint32_t i = p->register_next;
	int err;

	if (!p->registrar || p->register_never || clock_mono_ns() < p->register_retry_ns)
		return false;
	while (i < p->regions &&
	       (p->slot[i].state == REGION_BARE || p->slot[i].state == REGION_BUSY ||
		atomic_load_explicit(&p->slot[i].handle, memory_order_relaxed)))
		i++;
	p->register_next = i;
	if (i == p->regions)
		return false;
	p->register_next = i + 1;
	/* Only this thread takes a region's memory away: i keeps it meanwhile. */
	p->registering = true;
	pthread_mutex_unlock(&p->lock);
	err = handle_add(p, i);
	pthread_mutex_lock(&p->lock);
	p->registering = false;
	pthread_cond_broadcast(&p->idle);
	registered_locked(p, i, err);
	return true;
}

static void busy_end_locked(struct region_pool *p, uint32_t i, enum region_state state)
{
	state_set_locked(p, i, state);
	pthread_cond_broadcast(&p->idle);
}

/* One step towards the reserve; false when there is nothing to do before *ret_until_ns (0: at all).
 * Drops and retakes the lock. */
static bool balance_locked(struct region_pool *p, uint64_t *ret_until_ns)
{
	uint32_t i;
	int err, register_err = 0;

	if (p->count[REGION_READY] < p->reserve) {
		if (pop_locked(p, REGION_LEAVING, REGION_READY) != REGION_NONE)
			return true;
		i = p->commit_failed ? REGION_NONE : pop_locked(p, REGION_BARE, REGION_BUSY);
		if (i != REGION_NONE) {
			pthread_mutex_unlock(&p->lock);
			err = prepare(p, i, &register_err);
			pthread_mutex_lock(&p->lock);
			p->commit_failed = err != 0;
			committed_locked(p, err);
			busy_end_locked(p, i, err ? REGION_BARE : REGION_READY);
			if (!err && p->registrar)
				registered_locked(p, i, register_err);
			return true;
		}
	}
	if (register_step_locked(p))
		return true;
	if (p->count[REGION_READY] > ready_max(p)) {
		pop_locked(p, REGION_READY, REGION_LEAVING);
		return true;
	}
	*ret_until_ns = p->count[REGION_LEAVING] ? p->linger_until_ns : 0;
	if (*ret_until_ns <= clock_mono_ns() || p->commit_failed) {
		i = pop_locked(p, REGION_LEAVING, REGION_BUSY);
		*ret_until_ns = 0;
	} else {
		i = REGION_NONE;
	}
	if (i == REGION_NONE) {
		bool waits = p->registrar && !p->register_never && p->register_next < p->regions;

		if (waits && (*ret_until_ns == 0 || p->register_retry_ns < *ret_until_ns))
			*ret_until_ns = p->register_retry_ns;
		return false;
	}
	pthread_mutex_unlock(&p->lock);
	handle_remove(p, i);
	p->be->decommit(p->be_ctx, i * REGION_BYTES, REGION_BYTES);
	pthread_mutex_lock(&p->lock);
	p->commit_failed = false;
	p->commit_err = 0;
	busy_end_locked(p, i, REGION_BARE);
	return true;
}

static void *region_thread(void *arg)
{
	struct region_pool *p = arg;

	pthread_mutex_lock(&p->lock);
	while (!p->stop) {
		uint64_t until_ns;

		if (p->registrar_changes) {
			pthread_cond_wait(&p->work, &p->lock);
			continue;
		}
		if (balance_locked(p, &until_ns) || p->stop)
			continue;
		if (until_ns)
			thread_cond_wait_until(&p->work, &p->lock, until_ns);
		else
			pthread_cond_wait(&p->work, &p->lock);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void pool_init(struct region_pool *p)
{
	pthread_mutex_init(&p->lock, NULL);
	thread_cond_init(&p->work);
	thread_cond_init(&p->idle);
	for (int s = 0; s < REGION_STATES; s++)
		p->head[s] = REGION_NONE;
	p->count[REGION_BARE] = p->regions;
	for (uint32_t i = p->regions; i-- > 0;) {
		p->slot[i].next = p->head[REGION_BARE];
		p->head[REGION_BARE] = i;
	}
}

static void pool_free(struct region_pool *p)
{
	p->be->close(p->be_ctx);
	pthread_cond_destroy(&p->idle);
	pthread_cond_destroy(&p->work);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static uint32_t regions_of(uint64_t bytes)
{
	uint64_t n = bytes / REGION_BYTES + (bytes % REGION_BYTES != 0);

	return n < REGION_NONE ? (uint32_t)n : REGION_NONE - 1;
}

int region_pool_create(const struct region_backend_ops *be, uint64_t arena_bytes,
		       uint64_t reserve_bytes, struct region_pool **ret_pool)
{
	return region_pool_create_in(be, NULL, arena_bytes, 0, reserve_bytes, ret_pool);
}

int region_pool_create_in(const struct region_backend_ops *be, const char *where,
			  uint64_t arena_bytes, uint64_t spare_bytes, uint64_t reserve_bytes,
			  struct region_pool **ret_pool)
{
	uint32_t regions = regions_of(arena_bytes + spare_bytes);
	struct region_pool *p;
	int err;

	if (arena_bytes == 0 || arena_bytes > 1ULL << 46 || spare_bytes > 1ULL << 48)
		return -EINVAL;
	p = calloc(1, sizeof(*p) + regions * sizeof(p->slot[0]));
	if (!p)
		return -ENOMEM;
	p->be = be;
	p->regions = p->register_next = regions;
	p->reserve = regions_of(reserve_bytes);
	err = be->open(where, regions * REGION_BYTES, regions_of(arena_bytes) * REGION_BYTES,
		       &p->be_ctx, &p->base);
	if (err) {
		free(p);
		return err;
	}
	pool_init(p);
	err = thread_start(&p->thread, "kv-region", region_thread, p);
	if (err) {
		pool_free(p);
		return err;
	}
	*ret_pool = p;
	return 0;
}

void region_pool_destroy(struct region_pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	assert(p->count[REGION_USED] == 0);
	p->stop = true;
	pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	for (uint32_t i = 0; i < p->regions; i++)
		handle_remove(p, i);
	if (p->registrar && p->registrar->gone)
		p->registrar->gone(p->registrar_ctx);
	pool_free(p);
}

/* Takes a region from BARE without the lock held meanwhile. Registering it is left to the
 * thread. */
static int get_miss_locked(struct region_pool *p, uint32_t i)
{
	int err;

	p->misses++;
	pthread_mutex_unlock(&p->lock);
	err = p->be->commit(p->be_ctx, i * REGION_BYTES, REGION_BYTES);
	pthread_mutex_lock(&p->lock);
	committed_locked(p, err);
	busy_end_locked(p, i, err ? REGION_BARE : REGION_USED);
	if (!err)
		register_from_locked(p, i);
	return err;
}

static int get_locked(struct region_pool *p, uint32_t *ret_index)
{
	uint64_t deadline = 0;

	for (;;) {
		uint32_t i = pop_locked(p, REGION_READY, REGION_USED);

		if (i == REGION_NONE)
			i = pop_locked(p, REGION_LEAVING, REGION_USED);
		if (i != REGION_NONE) {
			p->hits++;
			*ret_index = i;
			return 0;
		}
		i = pop_locked(p, REGION_BARE, REGION_BUSY);
		if (i != REGION_NONE) {
			*ret_index = i;
			return get_miss_locked(p, i);
		}
		if (p->count[REGION_BUSY] == 0)
			return -ENOMEM;
		if (!deadline)
			deadline = clock_mono_ns() + REGION_BUSY_WAIT_NS;
		if (thread_cond_wait_until(&p->idle, &p->lock, deadline) == -ETIMEDOUT)
			return -ENOMEM;
	}
}

int region_get(struct region_pool *p, struct region *ret_region)
{
	uint32_t i = REGION_NONE;
	int err;

	pthread_mutex_lock(&p->lock);
	err = get_locked(p, &i);
	if (p->count[REGION_READY] < p->reserve && p->head[REGION_BARE] != REGION_NONE)
		pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&p->lock);
	if (err)
		return err == -ENOMEM ? err : -ENOMEM;
	ret_region->base = p->base + i * REGION_BYTES;
	ret_region->index = i;
	ret_region->registered = atomic_load_explicit(&p->slot[i].handle, memory_order_acquire);
	return 0;
}

void region_put(struct region_pool *p, const struct region *r)
{
	pthread_mutex_lock(&p->lock);
	assert(r->index < p->regions && p->slot[r->index].state == REGION_USED);
	if (p->count[REGION_READY] < ready_max(p)) {
		state_set_locked(p, r->index, REGION_READY);
	} else {
		state_set_locked(p, r->index, REGION_LEAVING);
		p->linger_until_ns = clock_mono_ns() + REGION_LINGER_NS;
		if (p->count[REGION_LEAVING] == 1)
			pthread_cond_signal(&p->work);
	}
	pthread_mutex_unlock(&p->lock);
}

void region_pool_set_reserve(struct region_pool *p, uint64_t reserve_bytes)
{
	pthread_mutex_lock(&p->lock);
	p->reserve = regions_of(reserve_bytes);
	p->commit_failed = false;
	pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&p->lock);
}

void region_pool_set_registrar(struct region_pool *p, const struct region_registrar_ops *ops,
			       void *ctx)
{
	pthread_mutex_lock(&p->lock);
	p->registrar_changes = true;
	/* each ends by itself: a bounded number of page faults, or one registration */
	while (p->count[REGION_BUSY] > 0 || p->registering)
		pthread_cond_wait(&p->idle, &p->lock);
	pthread_mutex_unlock(&p->lock); /* who takes or gives a region touches no handle */
	for (uint32_t i = 0; i < p->regions; i++)
		handle_remove(p, i);
	pthread_mutex_lock(&p->lock);
	p->registrar = ops;
	p->registrar_ctx = ctx;
	p->register_err = 0;
	p->register_never = false;
	p->register_retry_ns = 0;
	register_from_locked(p, 0);
	p->registrar_changes = false;
	pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&p->lock);
}

bool region_pool_find(struct region_pool *p, const void *addr, size_t len, void **ret_handle)
{
	uintptr_t off = (uintptr_t)addr - (uintptr_t)p->base; /* wraps for what lies before */
	size_t i = off / REGION_BYTES;
	void *handle;

	if (len == 0 || i >= p->regions || (off + len - 1) / REGION_BYTES != i)
		return false;
	/* acquire pairs with the release in handle_add: the handle's content is there */
	handle = atomic_load_explicit(&p->slot[i].handle, memory_order_acquire);
	atomic_fetch_add_explicit(handle ? &p->found : &p->not_found, 1, memory_order_relaxed);
	if (!handle)
		return false;
	*ret_handle = handle;
	return true;
}

void region_pool_look(struct region_pool *p, struct region_look *ret_look)
{
	*ret_look = (struct region_look){
		.hits = atomic_load_explicit(&p->hits, memory_order_relaxed),
		.misses = atomic_load_explicit(&p->misses, memory_order_relaxed),
		.found = atomic_load_explicit(&p->found, memory_order_relaxed),
		.not_found = atomic_load_explicit(&p->not_found, memory_order_relaxed),
		.register_err = atomic_load_explicit(&p->register_err, memory_order_relaxed),
		.commit_err = atomic_load_explicit(&p->commit_err, memory_order_relaxed),
		.refused_ns = atomic_load_explicit(&p->refused_ns, memory_order_relaxed),
	};
}

void region_pool_stats(struct region_pool *p, struct region_stats *ret_stats)
{
	pthread_mutex_lock(&p->lock);
	*ret_stats = (struct region_stats){
		.arena_bytes = p->regions * REGION_BYTES,
		.used_bytes = p->count[REGION_USED] * REGION_BYTES,
		.reserve_bytes = p->reserve * REGION_BYTES,
		.ready_bytes = p->count[REGION_READY] * REGION_BYTES,
		.hits = p->hits,
		.misses = p->misses,
		.registered_bytes =
			atomic_load_explicit(&p->registered, memory_order_relaxed) * REGION_BYTES,
		.register_err = p->register_err,
		.found = atomic_load_explicit(&p->found, memory_order_relaxed),
		.not_found = atomic_load_explicit(&p->not_found, memory_order_relaxed),
		.hugepages = p->be->hugepages(p->be_ctx),
	};
	pthread_mutex_unlock(&p->lock);
}

uint8_t *region_pool_base(struct region_pool *p)
{
	return p->base;
}
