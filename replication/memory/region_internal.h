/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_REGION_INTERNAL_H
#define KVFS_REPLICATION_REGION_INTERNAL_H
/*
 * The pool's state, which region.c (lists, thread, get and put) and region_register.c (the
 * registrar's handles) share. The states of a region are drawn in region.c.
 */
#include "replication/memory/region.h"

#include <pthread.h>
#include <stdatomic.h>

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

/* region_register.c. add: nothing without a registrar. add and remove without the lock: the
 * registrar can't change while a region is BUSY, or the thread registers. */
int region_handle_add(struct region_pool *p, uint32_t i);
void region_handle_remove(struct region_pool *p, uint32_t i);

/* A region from i on may lack a handle: the thread looks. */
void region_register_from_locked(struct region_pool *p, uint32_t i);

/* Notes how an attempt to register i ended. */
void region_registered_locked(struct region_pool *p, uint32_t i, int err);

/* Registers one region that is in use or ready without it. False: there is none, or it is too
 * early. Drops and retakes the lock. The pool's thread. */
bool region_register_step_locked(struct region_pool *p);

#endif
