/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The region pool. A region is in one of five states:
 *
 *   BARE --commit, register--> READY <--put/get--> USED --put, reserve full--> LEAVING
 *   --decommit--> BARE
 *
 * and BUSY while the first or last arrow runs without the lock. "kv-region" does both ahead of
 * need; a get that finds nothing READY (or LEAVING, which is as good) goes from BARE itself: a
 * miss.
 *
 * Threads: any. One mutex, held over no system call but the wake-up of the thread.
 */
#include "replication/memory/region_internal.h"

#include "common/clock.h"
#include "common/thread.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* How long a get waits for a region that the thread is just preparing or giving back. */
#define REGION_BUSY_WAIT_NS (10ULL * 1000000000ULL)

/* How long a region stays LEAVING after the last put: values that are deleted and written again
 * (the usual case) find warm memory. */
#define REGION_LINGER_NS (3 * NSEC_PER_SEC)

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

/* Regions above the reserve that stay ready, so that use that swings about a level costs
 * nothing. */
static uint32_t ready_max(const struct region_pool *p)
{
	return p->reserve + (p->reserve + 1) / 2;
}

static void committed_locked(struct region_pool *p, int err)
{
	p->commit_err = err;
	if (err)
		p->refused_ns = clock_mono_ns();
}

/*
 * BUSY to usable, in the thread. Without the lock: the registrar can't change while a region is
 * BUSY. A device that can't take the region is no reason not to use it.
 */
static int prepare(struct region_pool *p, uint32_t i, int *ret_register_err)
{
	int err = p->be->commit(p->be_ctx, i * REGION_BYTES, REGION_BYTES);

	if (!err)
		*ret_register_err = p->register_never ? -EOPNOTSUPP : region_handle_add(p, i);
	return err;
}

static void busy_end_locked(struct region_pool *p, uint32_t i, enum region_state state)
{
	state_set_locked(p, i, state);
	pthread_cond_broadcast(&p->idle);
}

/* Makes one region READY ahead of need. False: enough are, or none can be. Drops and retakes the
 * lock. */
static bool commit_step_locked(struct region_pool *p)
{
	int err, register_err = 0;
	uint32_t i;

	if (p->count[REGION_READY] >= p->reserve)
		return false;
	if (pop_locked(p, REGION_LEAVING, REGION_READY) != REGION_NONE)
		return true;
	i = p->commit_failed ? REGION_NONE : pop_locked(p, REGION_BARE, REGION_BUSY);
	if (i == REGION_NONE)
		return false;
	pthread_mutex_unlock(&p->lock);
	err = prepare(p, i, &register_err);
	pthread_mutex_lock(&p->lock);
	p->commit_failed = err != 0;
	committed_locked(p, err);
	busy_end_locked(p, i, err ? REGION_BARE : REGION_READY);
	if (!err && p->registrar)
		region_registered_locked(p, i, register_err);
	return true;
}

/* Gives one LEAVING region's memory back. False: there is none, or none may go before
 * *ret_until_ns (0: no such time). Drops and retakes the lock. */
static bool decommit_step_locked(struct region_pool *p, uint64_t *ret_until_ns)
{
	uint32_t i = REGION_NONE;

	*ret_until_ns = p->count[REGION_LEAVING] ? p->linger_until_ns : 0;
	if (*ret_until_ns <= clock_mono_ns() || p->commit_failed) {
		i = pop_locked(p, REGION_LEAVING, REGION_BUSY);
		*ret_until_ns = 0;
	}
	if (i == REGION_NONE)
		return false;
	pthread_mutex_unlock(&p->lock);
	region_handle_remove(p, i);
	p->be->decommit(p->be_ctx, i * REGION_BYTES, REGION_BYTES);
	pthread_mutex_lock(&p->lock);
	p->commit_failed = false;
	p->commit_err = 0;
	busy_end_locked(p, i, REGION_BARE);
	return true;
}

/* One step towards the reserve; false when there is nothing to do before *ret_until_ns (0: at all).
 * Drops and retakes the lock. */
static bool balance_locked(struct region_pool *p, uint64_t *ret_until_ns)
{
	if (commit_step_locked(p) || region_register_step_locked(p))
		return true;
	if (p->count[REGION_READY] > ready_max(p)) {
		pop_locked(p, REGION_READY, REGION_LEAVING);
		return true;
	}
	if (decommit_step_locked(p, ret_until_ns))
		return true;
	if (p->registrar && !p->register_never && p->register_next < p->regions &&
	    (*ret_until_ns == 0 || p->register_retry_ns < *ret_until_ns))
		*ret_until_ns = p->register_retry_ns;
	return false;
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
		region_handle_remove(p, i);
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
		region_register_from_locked(p, i);
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
		return -ENOMEM;
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
