/* SPDX-License-Identifier: Apache-2.0 */
/* "kv-progress", while pools are allocated: see pool_watch.h. */
#include "mkfs/pool_watch.h"

#include "common/clock.h"
#include "common/thread.h"

#include <fcntl.h>
#include <sys/stat.h>

#define LOOK_NS (NSEC_PER_SEC / 10)

static uint64_t allocated_bytes(int dirfd)
{
	static const char *const names[] = { "log.0", "log.1" };
	uint64_t bytes = 0;
	struct stat st;

	for (size_t i = 0; i < 2; i++) {
		if (fstatat(dirfd, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
			bytes += (uint64_t)st.st_blocks * 512;
	}
	return bytes;
}

static void *watch_main(void *arg)
{
	struct pool_watch *w = arg;

	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		uint64_t bytes = allocated_bytes(w->dirfd);

		progress_update(w->progress, bytes < w->total_bytes ? bytes : w->total_bytes - 1,
				w->total_bytes);
		thread_cond_wait_until(&w->wake, &w->lock, clock_mono_ns() + LOOK_NS);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

void pool_watch_start(struct pool_watch *w, struct progress *progress, int dirfd,
		      uint64_t total_bytes)
{
	*w = (struct pool_watch){ .progress = progress,
				  .dirfd = dirfd,
				  .total_bytes = total_bytes };
	progress_begin(progress, "allocating the log pools");
	if (!progress->enabled)
		return;
	pthread_mutex_init(&w->lock, NULL);
	if (thread_cond_init(&w->wake) == 0)
		w->running = thread_start(&w->thread, "kv-progress", watch_main, w) == 0;
}

void pool_watch_stop(struct pool_watch *w)
{
	if (w->running) {
		pthread_mutex_lock(&w->lock);
		w->stop = true;
		pthread_cond_signal(&w->wake);
		pthread_mutex_unlock(&w->lock);
		pthread_join(w->thread, NULL);
		pthread_cond_destroy(&w->wake);
		pthread_mutex_destroy(&w->lock);
		progress_update(w->progress, w->total_bytes, w->total_bytes);
	}
	progress_end(w->progress);
}
