/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_MKFS_POOL_WATCH_H
#define KVFS_MKFS_POOL_WATCH_H
/*
 * Shows progress while oplog_create allocates the pools in one blocking call: a thread
 * ("kv-progress") looks at the blocks of the pool files ten times a second. It owns the progress
 * line meanwhile.
 */
#include "mkfs/progress.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct pool_watch {
	struct progress *progress;
	int dirfd;
	uint64_t total_bytes;
	pthread_t thread;
	bool running; /* the thread was started */
	bool stop;    /* lock */
	pthread_mutex_t lock;
	pthread_cond_t wake;
};

/* Without progress enabled, or when no thread can be had, it does nothing. */
void pool_watch_start(struct pool_watch *w, struct progress *progress, int dirfd,
		      uint64_t total_bytes);
void pool_watch_stop(struct pool_watch *w);

#endif
