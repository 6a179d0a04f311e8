/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of mtime and ctime: of every object that an operation leaves, either side must agree
 * whether they moved. Before the operation the clock is awaited to be past all of them, since an
 * ordinary filesystem counts in ticks. A FIFO is left out where bytes went through it: the kernel
 * keeps them to itself and moves its times on tmpfs, never on FUSE (S_NOCMTIME), and the daemon
 * doesn't hear of it. By all else its times move as those of others.
 */
#include "tests/model/model.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define TIMES_MAX 4096

struct object {
	char path[1024]; /* "": of the descriptor fd */
	unsigned fd;
	struct stat st[SIDES];
};

static struct object *objects;
static size_t object_count;

static bool object_stat(struct model *m, const struct object *o, int side, struct stat *ret_st)
{
	if (!o->path[0])
		return m->fds[side][o->fd] >= 0 && fstat(m->fds[side][o->fd], ret_st) == 0;
	return fstatat(m->root[side], o->path, ret_st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void object_add(struct model *m, const char *path, unsigned fd)
{
	struct object *o = &objects[object_count];
	bool there = object_count < TIMES_MAX;

	if (!there)
		return;
	snprintf(o->path, sizeof(o->path), "%s", path);
	o->fd = fd;
	for (int side = 0; side < SIDES; side++)
		there = there && object_stat(m, o, side, &o->st[side]);
	object_count += there;
}

static void objects_walk(struct model *m, const char *path)
{
	int fd = openat(m->root[SIDE_B], path, O_RDONLY | O_DIRECTORY);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		char child[1024];

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    snprintf(child, sizeof(child), "%s/%s", path, e->d_name) >= (int)sizeof(child))
			continue;
		object_add(m, child, 0);
		if (e->d_type == DT_DIR)
			objects_walk(m, child);
	}
	if (d)
		closedir(d);
}

static bool later(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

/* Until the clock by which ordinary filesystems stamp is past every ctime. */
static void await_tick(void)
{
	struct timespec newest = { 0, 0 }, now;

	for (size_t i = 0; i < object_count; i++)
		for (int side = 0; side < SIDES; side++)
			if (later(&objects[i].st[side].st_ctim, &newest))
				newest = objects[i].st[side].st_ctim;
	do {
		clock_gettime(CLOCK_REALTIME_COARSE, &now);
	} while (!later(&now, &newest));
}

void model_times_begin(struct model *m)
{
	m->times_differ = m->times_piped = false;
	m->times_watched = m->times_every && m->step % m->times_every == 0;
	if (!m->times_watched)
		return;
	if (!objects)
		objects = calloc(TIMES_MAX, sizeof(*objects));
	object_count = 0;
	if (!objects)
		model_fail(m, "no memory");
	object_add(m, ".", 0);
	objects_walk(m, ".");
	for (unsigned i = 0; i < MODEL_FDS; i++)
		object_add(m, "", i);
	await_tick();
}

static bool moved(const struct timespec *before, const struct timespec *after)
{
	return before->tv_sec != after->tv_sec || before->tv_nsec != after->tv_nsec;
}

static void object_compare(struct model *m, const struct object *o)
{
	bool m_moved[SIDES], c_moved[SIDES];
	struct stat st;

	for (int side = 0; side < SIDES; side++) {
		/* gone, or another object by now (then on both sides, as the operation's own
		 * comparison has seen) */
		if (!object_stat(m, o, side, &st) || st.st_ino != o->st[side].st_ino)
			return;
		if (m->times_piped && S_ISFIFO(st.st_mode))
			return;
		m_moved[side] = moved(&o->st[side].st_mtim, &st.st_mtim);
		c_moved[side] = moved(&o->st[side].st_ctim, &st.st_ctim);
	}
	if (m_moved[0] != m_moved[1])
		model_fail(m, "%s (fd %u): mtime %s on a, %s on b", o->path, o->fd,
			   m_moved[0] ? "moved" : "stayed", m_moved[1] ? "moved" : "stayed");
	if (c_moved[0] != c_moved[1])
		model_fail(m, "%s (fd %u): ctime %s on a, %s on b", o->path, o->fd,
			   c_moved[0] ? "moved" : "stayed", c_moved[1] ? "moved" : "stayed");
}

void model_times_end(struct model *m)
{
	if (!m->times_watched || m->times_differ)
		return;
	for (size_t i = 0; i < object_count; i++)
		object_compare(m, &objects[i]);
}
