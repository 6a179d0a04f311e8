/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registering regions with a device, so that it sends from where a value lies. A region that the
 * device can't take is used without, and tried again later: its bytes are copied then. The handles
 * are made and taken back by the pool's thread, but for those of set_registrar and destroy.
 */
#include "replication/memory/region_internal.h"

#include "common/clock.h"

#include <errno.h>

/* Between attempts to register memory with a device that had no room for it. */
#define REGION_REGISTER_RETRY_NS (1 * NSEC_PER_SEC)

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

int region_handle_add(struct region_pool *p, uint32_t i)
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

void region_handle_remove(struct region_pool *p, uint32_t i)
{
	void *handle = atomic_exchange_explicit(&p->slot[i].handle, NULL, memory_order_acq_rel);

	if (!handle)
		return;
	p->registrar->remove(p->registrar_ctx, handle);
	atomic_fetch_sub_explicit(&p->registered, 1, memory_order_relaxed);
}

void region_register_from_locked(struct region_pool *p, uint32_t i)
{
	if (i < p->register_next)
		p->register_next = i;
	if (p->registrar)
		pthread_cond_signal(&p->work);
}

void region_registered_locked(struct region_pool *p, uint32_t i, int err)
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
	region_register_from_locked(p, i);
}

bool region_register_step_locked(struct region_pool *p)
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
	err = region_handle_add(p, i);
	pthread_mutex_lock(&p->lock);
	p->registering = false;
	pthread_cond_broadcast(&p->idle);
	region_registered_locked(p, i, err);
	return true;
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
		region_handle_remove(p, i);
	pthread_mutex_lock(&p->lock);
	p->registrar = ops;
	p->registrar_ctx = ctx;
	p->register_err = 0;
	p->register_never = false;
	p->register_retry_ns = 0;
	region_register_from_locked(p, 0);
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
	/* acquire pairs with the release in region_handle_add: the handle's content is there */
	handle = atomic_load_explicit(&p->slot[i].handle, memory_order_acquire);
	atomic_fetch_add_explicit(handle ? &p->found : &p->not_found, 1, memory_order_relaxed);
	if (!handle)
		return false;
	*ret_handle = handle;
	return true;
}
