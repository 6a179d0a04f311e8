/* SPDX-License-Identifier: Apache-2.0 */
/* The queue and its thread: see trace_writer.h. One lock, over no system call but wake-ups. */
#include "tuner/trace_writer.h"

#include "common/clock.h"
#include "common/thread.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct trace_writer {
	int (*open)(const char *path); /* fixed, as path and the limits */
	char *path;
	size_t queue_bytes;
	uint64_t wait_ns;

	pthread_mutex_t lock; /* what follows */
	pthread_cond_t changed;
	unsigned users;       /* the FILE's owner and the thread */
	bool opened, ended, finished, stuck;
	int err;              /* of open, write or close */
	char *queue;          /* malloc'ed; to be written */
	size_t queued, room;  /* bytes in it, and that it has room for */
};

#define QUEUE_LEAST (16U << 10)

static void writer_put(struct trace_writer *w)
{
	unsigned users;

	pthread_mutex_lock(&w->lock);
	users = --w->users;
	pthread_mutex_unlock(&w->lock);
	if (users)
		return;
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
	free(w->queue);
	free(w->path);
	free(w);
}

static int write_all(int fd, const char *bytes, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, bytes, len);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			bytes += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

static void note_locked(struct trace_writer *w, int err)
{
	if (err && !w->err)
		w->err = err;
}

/* Until the recording ended, or failed: what comes after that is not wanted. */
static void write_queue(struct trace_writer *w, int fd)
{
	pthread_mutex_lock(&w->lock);
	while (!w->err && (!w->ended || w->queued)) {
		char *bytes = w->queue;
		size_t len = w->queued;
		int err;

		if (!len) {
			pthread_cond_wait(&w->changed, &w->lock);
			continue;
		}
		w->queue = NULL;
		w->queued = w->room = 0;
		pthread_mutex_unlock(&w->lock);
		err = write_all(fd, bytes, len);
		free(bytes);
		pthread_mutex_lock(&w->lock);
		note_locked(w, err);
	}
	pthread_mutex_unlock(&w->lock);
}

static void *writer_main(void *arg)
{
	struct trace_writer *w = arg;
	int fd = w->open(w->path), err = 0;

	pthread_mutex_lock(&w->lock);
	w->opened = true;
	note_locked(w, fd < 0 ? fd : 0);
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	if (fd >= 0) {
		write_queue(w, fd);
		err = close(fd) == 0 ? 0 : -errno;
	}
	pthread_mutex_lock(&w->lock);
	note_locked(w, err);
	w->finished = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	writer_put(w);
	return NULL;
}

static int add_locked(struct trace_writer *w, const char *bytes, size_t len)
{
	size_t room = w->room ? w->room : QUEUE_LEAST;
	char *queue;

	if (w->queued + len > w->queue_bytes) {
		w->stuck = true;
		return -ENOBUFS;
	}
	while (room < w->queued + len)
		room *= 2;
	queue = room > w->room ? realloc(w->queue, room) : w->queue;
	if (!queue)
		return -ENOMEM;
	memcpy(queue + w->queued, bytes, len);
	w->queue = queue;
	w->room = room;
	w->queued += len;
	pthread_cond_broadcast(&w->changed);
	return 0;
}

/* Copies: the caller never waits for the disk. */
static ssize_t writer_write(void *cookie, const char *bytes, size_t len)
{
	struct trace_writer *w = cookie;
	int err;

	pthread_mutex_lock(&w->lock);
	if (!w->err)
		note_locked(w, add_locked(w, bytes, len));
	err = w->err;
	pthread_mutex_unlock(&w->lock);
	errno = -err;
	return err ? 0 : (ssize_t)len; /* 0 is a cookie's error */
}

static int writer_close(void *cookie)
{
	struct trace_writer *w = cookie;
	uint64_t deadline_ns = clock_mono_ns() + w->wait_ns;
	int err = 0;

	pthread_mutex_lock(&w->lock);
	w->ended = true;
	pthread_cond_broadcast(&w->changed);
	while (!err && !w->finished && !w->stuck)
		err = thread_cond_wait_until(&w->changed, &w->lock, deadline_ns);
	note_locked(w, err); /* given up: what is left is not written */
	err = w->err;
	pthread_mutex_unlock(&w->lock);
	writer_put(w);
	errno = -err;
	return err ? EOF : 0;
}

static int writer_start(struct trace_writer *w)
{
	pthread_t thread;
	int err;

	pthread_mutex_init(&w->lock, NULL);
	err = thread_cond_init(&w->changed);
	if (err) {
		pthread_mutex_destroy(&w->lock);
		free(w->path);
		free(w);
		return err;
	}
	w->users = 2;
	err = thread_start(&thread, "kv-trace", writer_main, w);
	if (!err) {
		pthread_detach(thread);
		return 0;
	}
	writer_put(w);
	writer_put(w);
	return err;
}

static int writer_wait_opened(struct trace_writer *w)
{
	uint64_t deadline_ns = clock_mono_ns() + w->wait_ns;
	int err = 0;

	pthread_mutex_lock(&w->lock);
	while (!err && !w->opened)
		err = thread_cond_wait_until(&w->changed, &w->lock, deadline_ns);
	if (!err)
		err = w->err;
	else
		note_locked(w, err); /* whatever comes is closed at once */
	pthread_mutex_unlock(&w->lock);
	return err;
}

int trace_writer_open(int (*open)(const char *path), const char *path, size_t queue_bytes,
		      uint64_t wait_ns, FILE **ret_file)
{
	static const cookie_io_functions_t io = { .write = writer_write, .close = writer_close };
	struct trace_writer *w = calloc(1, sizeof(*w));
	FILE *f;
	int err;

	if (!w)
		return -ENOMEM;
	w->open = open;
	w->queue_bytes = queue_bytes;
	w->wait_ns = wait_ns;
	w->path = strdup(path);
	if (!w->path) {
		free(w);
		return -ENOMEM;
	}
	err = writer_start(w);
	if (err)
		return err;
	err = writer_wait_opened(w);
	f = err ? NULL : fopencookie(w, "w", io);
	if (f) {
		*ret_file = f;
		return 0;
	}
	if (!err) {
		pthread_mutex_lock(&w->lock);
		w->ended = true;
		pthread_cond_broadcast(&w->changed);
		pthread_mutex_unlock(&w->lock);
		err = -ENOMEM;
	}
	writer_put(w);
	return err;
}
