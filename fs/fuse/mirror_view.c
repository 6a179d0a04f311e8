/* SPDX-License-Identifier: Apache-2.0 */
/* Invalidations of a mirror's view: see mirror_view.h. */
#include "fs/fuse/mirror_view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define VIEW_INODES_FIRST 1024
#define VIEW_JOIN_SECONDS 5

struct view {
	struct fs *fs;
	atomic_bool all;       /* relaxed: written by kv-mirror */
	pthread_t thread;
	bool joined;           /* main's */
	pthread_mutex_t lock;  /* protects what follows */
	pthread_cond_t cond;
	uint64_t *spare;       /* kv-inval's, of spare_cap */
	size_t spare_cap;
	uint64_t *inos;        /* noted, not yet taken */
	size_t count, cap;
	bool flush;
	bool stopping;         /* the thread looks at nothing of fs any more */
	bool lost;             /* no memory to note one: any page may be old */
};

bool view_wants_locked(struct view *v, struct store *st, const struct record *r)
{
	struct inode *in;

	switch (r->opcode) {
	case RECORD_WRITE:
	case RECORD_FALLOCATE:
	case RECORD_COPY:
		break;
	case RECORD_SETATTR:
		if (r->u.setattr.valid_mask & RECORD_SET_SIZE)
			break;
		return false;
	default:
		return false; /* names and attributes are never cached */
	}
	in = store_inode_locked(st, r->ino);
	return in && (in->lookups || v->all);
}

void view_note(struct view *v, uint64_t ino)
{
	pthread_mutex_lock(&v->lock);
	if (v->stopping || (v->count && v->inos[v->count - 1] == ino)) {
		pthread_mutex_unlock(&v->lock);
		return;
	}
	if (v->count == v->cap) {
		size_t cap = v->cap * 2;
		uint64_t *inos = realloc(v->inos, cap * sizeof(*inos));

		if (!inos) {
			v->lost = true;
			pthread_mutex_unlock(&v->lock);
			return;
		}
		v->inos = inos;
		v->cap = cap;
	}
	v->inos[v->count++] = ino;
	pthread_mutex_unlock(&v->lock);
}

void view_flush(struct view *v)
{
	pthread_mutex_lock(&v->lock);
	if ((v->count || v->lost) && !v->flush) {
		v->flush = true;
		pthread_cond_signal(&v->cond);
	}
	pthread_mutex_unlock(&v->lock);
}

void view_note_resync(struct view *v)
{
	v->all = true;
}

static int view_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static bool view_is_stopping(struct view *v)
{
	bool stopping;

	pthread_mutex_lock(&v->lock);
	stopping = v->stopping;
	pthread_mutex_unlock(&v->lock);
	return stopping;
}

/* False: stopping. */
static bool view_send(struct view *v, uint64_t *inos, size_t count)
{
	struct fuse_session *se = v->fs->se;
	size_t i;

	qsort(inos, count, sizeof(*inos), view_compare);
	for (i = 0; i < count; i++) {
		if (i > 0 && inos[i] == inos[i - 1])
			continue;
		if (view_is_stopping(v))
			return false;
		fuse_lowlevel_notify_inval_inode(se, inos[i], 0, 0); /* -ENOENT: not known */
	}
	if (view_is_stopping(v))
		return false;
	metric_add(v->fs->metrics.view_told, count);
	return true;
}

/* Notes were lost: whatever the kernel knows may have changed. Needs no memory. */
static void view_send_all(struct view *v)
{
	uint64_t inos[STORE_WALK_INODES];
	struct store_walk walk = { 0 };
	unsigned count;
	bool more = true;

	while (more) {
		struct store *st = fs_lock(v->fs);

		more = store_walk_locked(st, &walk, v->all, inos, &count);
		fs_unlock(v->fs, st);
		more = view_send(v, inos, count) && more;
	}
}

static void *view_main(void *arg)
{
	struct view *v = arg;
	uint64_t *taken;
	size_t count, cap;
	bool lost;

	pthread_mutex_lock(&v->lock);
	while (!v->stopping) {
		if (!v->flush) {
			pthread_cond_wait(&v->cond, &v->lock);
			continue;
		}
		v->flush = false;
		taken = v->inos;
		count = v->count;
		cap = v->cap;
		lost = v->lost;
		v->inos = v->spare;
		v->cap = v->spare_cap;
		v->count = 0;
		v->lost = false;
		pthread_mutex_unlock(&v->lock);
		if (lost)
			view_send_all(v);
		else
			view_send(v, taken, count);
		v->spare = taken;
		v->spare_cap = cap;
		pthread_mutex_lock(&v->lock);
	}
	pthread_mutex_unlock(&v->lock);
	return NULL;
}

int view_create(struct fs *fs, struct view **ret_view)
{
	struct view *v = calloc(1, sizeof(*v));
	int err;

	if (!v)
		return -ENOMEM;
	v->fs = fs;
	v->cap = v->spare_cap = VIEW_INODES_FIRST;
	v->inos = malloc(v->cap * sizeof(*v->inos));
	v->spare = malloc(v->spare_cap * sizeof(*v->spare));
	pthread_mutex_init(&v->lock, NULL);
	pthread_cond_init(&v->cond, NULL);
	err = v->inos && v->spare ? thread_start(&v->thread, "kv-inval", view_main, v) : -ENOMEM;
	if (err) {
		free(v->spare);
		free(v->inos);
		free(v);
		return err;
	}
	*ret_view = v;
	return 0;
}

/* The thread may be in the kernel, which waits for a page that a request is to fill. */
static void view_join(struct view *v)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += VIEW_JOIN_SECONDS;
	v->joined = v->joined || pthread_timedjoin_np(v->thread, NULL, &until) == 0;
}

void view_stop(struct view *v)
{
	if (!v)
		return;
	pthread_mutex_lock(&v->lock);
	v->stopping = true;
	pthread_cond_signal(&v->cond);
	pthread_mutex_unlock(&v->lock);
	view_join(v);
}

int view_destroy(struct view *v)
{
	if (!v)
		return 0;
	view_stop(v);
	if (!v->joined)
		return -ETIMEDOUT;
	pthread_cond_destroy(&v->cond);
	pthread_mutex_destroy(&v->lock);
	free(v->spare);
	free(v->inos);
	free(v);
	return 0;
}
