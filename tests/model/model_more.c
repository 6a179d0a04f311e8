/* SPDX-License-Identifier: Apache-2.0 */
/* More of the model's operations: those of several steps, and those where only what is plausible
 * can be compared. */
#include "tests/model/model.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define APPEND_FDS 3

/* Each descriptor writes at the end, wherever the others have put it. */
void model_op_append(struct model *m)
{
	int fds[SIDES][APPEND_FDS];
	char path[1024];
	long long r = 0;

	model_path(m, path);
	model_say(m, "append through three", path, NULL, 0, 0);
	for (int i = 0; i < APPEND_FDS; i++)
		for (int side = 0; side < SIDES; side++)
			fds[side][i] = -1;
	for (int i = 0; i < APPEND_FDS && r == 0; i++)
		BOTH(m, r,
		     (fds[side][i] = openat(m->root[side], path,
					    O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOFOLLOW,
					    0600)) >= 0 ?
			     0 : -1);
	for (int n = 0; n < 6 && r >= 0; n++) {
		unsigned i = (unsigned)model_below(m, APPEND_FDS);
		size_t len = 1 + model_below(m, 3000);
		struct stat st;

		if (fstat(fds[0][i], &st) != 0 || !S_ISREG(st.st_mode) ||
		    st.st_size + (off_t)len > MODEL_FILE_MAX)
			break;
		model_fill(m, len);
		if (n == 3)
			BOTH(m, r, ftruncate(fds[side][i], st.st_size / 2));
		BOTH(m, r, write(fds[side][i], m->buf[side], len));
		BOTH(m, r, lseek(fds[side][i], 0, SEEK_CUR));
	}
	for (int i = 0; i < APPEND_FDS; i++)
		for (int side = 0; side < SIDES; side++)
			if (fds[side][i] >= 0)
				close(fds[side][i]);
	model_compare_path(m, path);
}

/* What is said to be a hole reads as zeroes; beyond the end both sides refuse alike. */
void model_op_seek(struct model *m)
{
	off_t off = model_off(m), was, data, hole, end;
	struct stat st;
	unsigned i;
	int fd;

	if (!model_fd(m, &i) || fstat(m->fds[SIDE_A][i], &st) != 0 || !S_ISREG(st.st_mode))
		return;
	fd = m->fds[SIDE_A][i];
	model_say(m, "seek data and hole fd", NULL, NULL, (long long)off, (long long)st.st_size);
	if (off >= st.st_size) {
		long long r;

		BOTH(m, r, lseek(m->fds[side][i], off, SEEK_DATA));
		BOTH(m, r, lseek(m->fds[side][i], off, SEEK_HOLE));
		(void)r;
		return;
	}
	was = lseek(fd, 0, SEEK_CUR);
	data = lseek(fd, off, SEEK_DATA);
	if (data < 0 && errno != ENXIO)
		model_fail(m, "%s", strerror(errno));
	hole = lseek(fd, off, SEEK_HOLE);
	lseek(fd, was, SEEK_SET);
	if (hole < off || hole > st.st_size || (data >= 0 && (data < off || data >= st.st_size)))
		model_fail(m, "from %lld of %lld bytes, data at %lld, a hole at %lld",
			   (long long)off, (long long)st.st_size, (long long)data, (long long)hole);
	if (data != off && hole != off)
		model_fail(m, "%lld is neither data nor a hole", (long long)off);
	end = data < 0 ? st.st_size : data;
	if (hole > off || (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY)
		return;
	if (pread(fd, m->buf[SIDE_A], (size_t)(end - off), off) != end - off)
		model_fail(m, "the hole [%lld, %lld) cannot be read: %s", (long long)off,
			   (long long)end, strerror(errno));
	for (off_t at = 0; at < end - off; at++)
		if (m->buf[SIDE_A][at])
			model_fail(m, "a hole with a byte at %lld", (long long)(off + at));
}

static void unlinked_check(struct model *m, unsigned i)
{
	ssize_t n[SIDES];

	for (int side = 0; side < SIDES; side++)
		n[side] = pread(m->fds[side][i], m->buf[side], MODEL_FILE_MAX, 0);
	if (n[0] != n[1] || n[0] < 0 || memcmp(m->buf[0], m->buf[1], (size_t)n[0]) != 0)
		model_fail(m, "an unlinked file reads %zd bytes on a, %zd on b, or others", n[0],
			   n[1]);
}

/* A file without a name goes on until its last descriptor goes, which may be long after. */
void model_op_unlinked(struct model *m)
{
	unsigned i = (unsigned)model_below(m, MODEL_FDS);
	char path[1024], by_fd[64];
	off_t off = (off_t)model_below(m, 5000);
	size_t len = model_len(m);
	struct stat st;
	long long r;

	for (int side = 0; side < SIDES; side++) {
		if (m->fds[side][i] >= 0)
			close(m->fds[side][i]);
		m->fds[side][i] = -1;
	}
	model_path(m, path);
	model_say(m, "unlink while open", path, NULL, (long long)len, i);
	BOTH(m, r,
	     (m->fds[side][i] = openat(m->root[side], path,
				       O_RDWR | O_CREAT | O_NONBLOCK | O_NOFOLLOW, 0644)) >= 0 ?
		     0 : -1);
	if (r != 0 || fstat(m->fds[0][i], &st) != 0 || !S_ISREG(st.st_mode))
		return;
	BOTH(m, r, unlinkat(m->root[side], path, 0));
	model_compare_path(m, path);
	model_compare_fd(m, i);
	model_fill(m, len);
	BOTH(m, r, pwrite(m->fds[side][i], m->buf[side], len, off));
	model_compare_fd(m, i);
	unlinked_check(m, i);
	BOTH(m, r, ftruncate(m->fds[side][i], (off_t)(len / 2)));
	BOTH(m, r, fchmod(m->fds[side][i], 0640));
	/* an unlinked file gets no name again */
	if (st.st_nlink == 1)
		BOTH(m, r, (snprintf(by_fd, sizeof(by_fd), "/proc/self/fd/%d", m->fds[side][i]),
			    linkat(AT_FDCWD, by_fd, m->root[side], path, AT_SYMLINK_FOLLOW)));
	model_compare_fd(m, i);
	unlinked_check(m, i);
	model_compare_path(m, path);
}

struct listing {
	char names[512][256];
	unsigned count;
};

static void listing_read(DIR *d, struct listing *l, unsigned most)
{
	struct dirent *e;

	while (most-- > 0 && l->count < 512 && (e = readdir(d)))
		snprintf(l->names[l->count++], sizeof(l->names[0]), "%s", e->d_name);
}

static unsigned listing_times(const struct listing *l, const char *name)
{
	unsigned n = 0;

	for (unsigned i = 0; i < l->count; i++)
		n += strcmp(l->names[i], name) == 0;
	return n;
}

/* A listing that is under way while names come and go: those that stay are in it once, the others
 * at most once. */
void model_op_list(struct model *m)
{
	static struct listing before, seen;
	char dir[1024], name[64];
	DIR *d, *all;
	int fd;

	model_path(m, dir);
	if (model_below(m, 2))
		snprintf(dir, sizeof(dir), ".");
	model_say(m, "list while it changes", dir, NULL, 0, 0);
	fd = openat(m->root[SIDE_A], dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	if (fd < 0)
		return;
	all = fdopendir(dup(fd));
	d = fdopendir(fd);
	before.count = seen.count = 0;
	listing_read(all, &before, 512);
	closedir(all);
	rewinddir(d);
	listing_read(d, &seen, (unsigned)model_below(m, before.count + 1));
	for (int n = 0; n < 40; n++) {
		snprintf(name, sizeof(name), "passing-%d", n);
		for (int side = 0; side < SIDES; side++) {
			int at = openat(m->root[side], dir, O_RDONLY | O_DIRECTORY), file;

			file = openat(at, name, O_WRONLY | O_CREAT, 0600);
			if (file >= 0)
				close(file);
			if (file < 0 || unlinkat(at, name, 0) != 0)
				model_fail(m, "%s in it: %s", name, strerror(errno));
			close(at);
		}
		if (n % 8 == 0)
			listing_read(d, &seen, 2);
	}
	listing_read(d, &seen, 512);
	closedir(d);
	for (unsigned i = 0; i < before.count; i++)
		if (listing_times(&seen, before.names[i]) != 1)
			model_fail(m, "%s was listed %u times", before.names[i],
				   listing_times(&seen, before.names[i]));
	for (unsigned i = 0; i < seen.count; i++)
		if (listing_times(&seen, seen.names[i]) != 1)
			model_fail(m, "%s was listed %u times", seen.names[i],
				   listing_times(&seen, seen.names[i]));
}

void model_op_statfs(struct model *m)
{
	struct statvfs sv;

	model_say(m, "statfs", NULL, NULL, 0, 0);
	if (fstatvfs(m->root[SIDE_A], &sv) != 0)
		model_fail(m, "%s", strerror(errno));
	if (sv.f_bavail > sv.f_bfree || sv.f_bfree > sv.f_blocks || sv.f_ffree > sv.f_files ||
	    sv.f_namemax != 255 || sv.f_bsize == 0 || sv.f_blocks == 0)
		model_fail(
			m,
			"%llu of %llu blocks free, %llu available, %llu of %llu inodes free, names "
			"of %lu",
			(unsigned long long)sv.f_bfree, (unsigned long long)sv.f_blocks,
			(unsigned long long)sv.f_bavail, (unsigned long long)sv.f_ffree,
			(unsigned long long)sv.f_files, sv.f_namemax);
}

/* One that stays: bytes go through it alike, and chmod moves its ctime. */
void model_op_fifo(struct model *m)
{
	static const char path[] = "pipe";
	unsigned kind = (unsigned)model_below(m, 3);
	size_t len = 1 + model_below(m, 4000);
	int fd[SIDES];
	long long r;

	model_fill(m, len);
	model_say(m, "fifo", path, NULL, kind, (long long)len);
	if (faccessat(m->root[SIDE_B], path, F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
		BOTH(m, r, mknodat(m->root[side], path, S_IFIFO | 0600, 0));
	} else if (kind == 0) {
		BOTH(m, r, fchmodat(m->root[side], path, (mode_t)(0600 | len % 8), 0));
	} else {
		m->times_piped = true;
		BOTH(m, r,
		     (fd[side] = openat(m->root[side], path, O_RDWR | O_NONBLOCK)) >= 0 ? 0 : -1);
		BOTH(m, r, write(fd[side], m->buf[side], len));
		BOTH(m, r, read(fd[side], m->buf[side], len));
		if (memcmp(m->buf[SIDE_A], m->buf[SIDE_B], len) != 0)
			model_fail(m, "other bytes come out of the FIFO on a");
		BOTH(m, r, close(fd[side]));
	}
	(void)r;
	model_compare_path(m, path);
}
