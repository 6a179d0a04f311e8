/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that came by a ring and may have to wait for log room: threads "kv-wait-N", started as
 * they are needed, take them in turn. A request waits here as long as a worker of /dev/fuse would,
 * its turn included.
 * See fuse_ring.h.
 */
#include "fs/fuse/fuse_ring_internal.h"

#include "common/clock.h"
#include "common/thread.h"

#include <errno.h>
#include <stdio.h>

static void *ring_wait_thread(void *arg)
{
	struct ring_wait *w = arg;

	pthread_mutex_lock(&w->lock);
	while (!w->stopping) {
		struct ring_entry *e = w->head;

		if (!e) {
			w->idle++;
			pthread_cond_wait(&w->changed, &w->lock);
			w->idle--;
			continue;
		}
		w->head = e->next;
		if (!w->head)
			w->tail = &w->head;
		w->queued--;
		pthread_mutex_unlock(&w->lock);
		fs_drain_device(w->fs);
		ring_entry_handle(e);
		pthread_mutex_lock(&w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

void ring_wait_push(struct ring_wait *w, struct ring_entry *e)
{
	char name[24];

	e->pushed_ns = clock_mono_ns(); /* its deadline counts from here */
	pthread_mutex_lock(&w->lock);
	e->next = NULL;
	*w->tail = e;
	w->tail = &e->next;
	w->queued++;
	if (w->queued > w->idle && w->count < FS_SPARES_MAX && !w->stopping) {
		snprintf(name, sizeof(name), "kv-wait-%u", w->count);
		/* without it the request waits for one of the others */
		if (thread_start(&w->threads[w->count], name, ring_wait_thread, w) == 0)
			w->count++;
	}
	pthread_cond_signal(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

int ring_wait_init(struct ring_wait *w, struct fs *fs)
{
	int err;

	w->fs = fs;
	w->tail = &w->head;
	pthread_mutex_init(&w->lock, NULL);
	err = thread_cond_init(&w->changed);
	if (!err)
		err = thread_start(&w->threads[0], "kv-wait-0", ring_wait_thread, w);
	if (!err)
		w->count = 1;
	return err;
}

void ring_wait_stop(struct ring_wait *w)
{
	pthread_mutex_lock(&w->lock);
	w->stopping = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	for (unsigned i = 0; i < w->count; i++)
		/* a handler's wait ends at the request's deadline, or as fs->stopping says */
		pthread_join(w->threads[i], NULL);
	w->count = 0;
}

void ring_wait_destroy(struct ring_wait *w)
{
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
}
