/* SPDX-License-Identifier: Apache-2.0 */
/* The model's random operations: each runs on both sides and compares result, errno, and
 * how times moved. */
#include "tests/model/model.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define RENAME_NOREPLACE_FLAG 1
#define RENAME_EXCHANGE_FLAG 2

/* Names that shells and programs get wrong, and ordinary ones. */
static const char *const model_names[] = {
	"a",	     "b",	 "c",		"key", "two words", "-dash",
	"new\nline", "\xff\xfe", "caf\xc3\xa9", "*?[", "..c",	    "%s",
};
#define MODEL_NAMES (sizeof(model_names) / sizeof(model_names[0]))

static const char *model_name(struct model *m)
{
	static char longest[256];

	if (model_below(m, 40) == 0) {
		memset(longest, 'L', 255);
		return longest;
	}
	return model_names[model_below(m, MODEL_NAMES)];
}

/* A path of up to three components; most do not exist at first, later most do. */
void model_path(struct model *m, char out[1024])
{
	static const char *const dirs[] = { "d1", "d2", "d 3" };
	unsigned depth = (unsigned)model_below(m, 3);
	size_t used = 0;

	out[0] = '\0';
	for (unsigned i = 0; i < depth; i++)
		used += (size_t)snprintf(out + used, 1024 - used, "%s/", dirs[model_below(m, 3)]);
	if (model_below(m, 8) == 0)
		snprintf(out + used, 1024 - used, "%s", dirs[model_below(m, 3)]);
	else
		snprintf(out + used, 1024 - used, "%s", model_name(m));
}

void model_say(struct model *m, const char *op, const char *p, const char *q, long long x,
	       long long y)
{
	snprintf(m->what, sizeof(m->what), "%s %.200s%s%.200s %lld %lld", op, p ? p : "",
		 q ? " -> " : "", q ? q : "", x, y);
}

void model_fill(struct model *m, size_t len)
{
	uint64_t r = model_random(m);

	for (size_t i = 0; i < len; i++)
		m->buf[0][i] = (uint8_t)((r >> (8 * (i & 7))) + i);
	memcpy(m->buf[1], m->buf[0], len);
}

size_t model_len(struct model *m)
{
	switch (model_below(m, 4)) {
	case 0:
		return 1 + model_below(m, 64);
	case 1:
		return 1 + model_below(m, 4096);
	case 2:
		return 65536 - 8 + model_below(m, 16);
	default:
		return 1 + model_below(m, MODEL_IO_MAX - 1);
	}
}

off_t model_off(struct model *m)
{
	static const off_t edges[] = { 0, 1, 4095, 4096, 65535, 65536, 65537, 131072 };

	if (model_below(m, 2))
		return edges[model_below(m, 8)];
	return (off_t)model_below(m, MODEL_FILE_MAX - MODEL_IO_MAX);
}

static void op_open(struct model *m)
{
	static const int ways[] = { O_RDONLY, O_WRONLY, O_RDWR };
	unsigned i = (unsigned)model_below(m, MODEL_FDS);
	int flags = ways[model_below(m, 3)];
	char path[1024];
	long long r;

	for (int side = 0; side < SIDES; side++) {
		if (m->fds[side][i] >= 0)
			close(m->fds[side][i]);
		m->fds[side][i] = -1;
	}
	model_path(m, path);
	flags |= model_below(m, 2) ? O_CREAT : 0;
	flags |= model_below(m, 4) == 0 ? O_EXCL : 0;
	flags |= model_below(m, 4) == 0 ? O_TRUNC : 0;
	flags |= model_below(m, 4) == 0 ? O_APPEND : 0;
	model_say(m, "open", path, NULL, flags, i);
	BOTH(m, r,
	     (m->fds[side][i] =
		      openat(m->root[side], path, flags | O_NONBLOCK | O_NOFOLLOW, 0644)) >= 0 ?
		     0 : -1);
	(void)r;
	model_compare_path(m, path);
}

/* The open pair number i, or false. */
bool model_fd(struct model *m, unsigned *ret_i)
{
	*ret_i = (unsigned)model_below(m, MODEL_FDS);
	return m->fds[0][*ret_i] >= 0;
}

void model_compare_fd(struct model *m, unsigned i)
{
	struct stat st[SIDES];

	for (int side = 0; side < SIDES; side++)
		if (fstat(m->fds[side][i], &st[side]) != 0)
			model_fail(m, "fstat on %c: %s", 'a' + side, strerror(errno));
	if (st[0].st_nlink != st[1].st_nlink || st[0].st_mode != st[1].st_mode ||
	    (S_ISREG(st[0].st_mode) && st[0].st_size != st[1].st_size))
		model_fail(m, "fstat: links %lu and %lu, mode %o and %o, size %lld and %lld",
			   (unsigned long)st[0].st_nlink, (unsigned long)st[1].st_nlink,
			   st[0].st_mode, st[1].st_mode, (long long)st[0].st_size,
			   (long long)st[1].st_size);
}

static const char *const fd_name[MODEL_FDS] = { "0", "1", "2", "3", "4", "5", "6", "7" };

static void op_write(struct model *m)
{
	size_t len = model_len(m);
	off_t off = model_off(m);
	struct stat before;
	unsigned i;
	long long r;

	if (!model_fd(m, &i))
		return;
	if (fstat(m->fds[0][i], &before) == 0 && before.st_size + (off_t)len > MODEL_FILE_MAX)
		return;
	model_fill(m, len);
	model_say(m, "pwrite or write fd", fd_name[i], NULL, (long long)off, (long long)len);
	if (model_below(m, 4))
		BOTH(m, r, pwrite(m->fds[side][i], m->buf[side], len, off));
	else
		BOTH(m, r, write(m->fds[side][i], m->buf[side], len > 8192 ? 8192 : len));
	m->times_piped = r > 0;
	model_compare_fd(m, i);
}

static void op_read(struct model *m)
{
	size_t len = model_len(m);
	off_t off = model_off(m);
	unsigned i;
	long long r;

	if (!model_fd(m, &i))
		return;
	model_say(m, "pread fd", fd_name[i], NULL, (long long)off, (long long)len);
	BOTH(m, r, pread(m->fds[side][i], m->buf[side], len, off));
	if (r > 0 && memcmp(m->buf[0], m->buf[1], (size_t)r) != 0)
		model_fail(m, "bytes read differ");
}

static void op_ftruncate(struct model *m)
{
	off_t size = (off_t)model_below(m, MODEL_FILE_MAX);
	unsigned i;
	long long r;

	if (!model_fd(m, &i))
		return;
	model_say(m, "ftruncate fd", fd_name[i], NULL, (long long)size, i);
	BOTH(m, r, ftruncate(m->fds[side][i], size));
	(void)r;
	model_compare_fd(m, i);
}

static void op_fallocate(struct model *m)
{
	static const int modes[] = { 0, FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE };
	int mode = modes[model_below(m, 3)];
	off_t off = model_off(m), len = 1 + (off_t)model_below(m, MODEL_IO_MAX - 1);
	unsigned i;
	long long r;

	if (!model_fd(m, &i))
		return;
	model_say(m, "fallocate fd", fd_name[i], NULL, (long long)off, mode);
	BOTH(m, r, fallocate(m->fds[side][i], mode, off, len));
	(void)r;
	model_compare_fd(m, i);
}

static void op_mmap_write(struct model *m)
{
	struct stat st;
	unsigned i;
	size_t off, len;

	if (!model_fd(m, &i) || fstat(m->fds[0][i], &st) != 0 || !S_ISREG(st.st_mode) ||
	    st.st_size == 0 || (fcntl(m->fds[0][i], F_GETFL) & O_ACCMODE) != O_RDWR)
		return;
	off = (size_t)model_below(m, (uint64_t)st.st_size);
	len = 1 + (size_t)model_below(m, (uint64_t)st.st_size - off);
	model_fill(m, len);
	model_say(m, "mmap-write fd", fd_name[i], NULL, (long long)off, (long long)len);
	m->times_differ = true; /* tmpfs does not notice stores into a mapping */
	for (int side = 0; side < SIDES; side++) {
		uint8_t *p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED,
				  m->fds[side][i], 0);

		if (p == MAP_FAILED)
			model_fail(m, "mmap on %c: %s", 'a' + side, strerror(errno));
		memcpy(p + off, m->buf[side], len);
		if (msync(p, (size_t)st.st_size, MS_SYNC) != 0)
			model_fail(m, "msync on %c: %s", 'a' + side, strerror(errno));
		munmap(p, (size_t)st.st_size);
	}
	model_compare_fd(m, i);
}

static void op_fsync_or_close(struct model *m)
{
	unsigned i;
	long long r;

	if (!model_fd(m, &i))
		return;
	model_say(m, "fsync/close fd", NULL, NULL, i, 0);
	BOTH(m, r, fsync(m->fds[side][i]));
	(void)r;
	if (model_below(m, 2))
		return;
	for (int side = 0; side < SIDES; side++) {
		close(m->fds[side][i]);
		m->fds[side][i] = -1;
	}
}

static void op_put(struct model *m)
{
	size_t len = model_len(m);
	char path[1024];
	long long r = 0;
	int fd[SIDES];

	model_path(m, path);
	model_say(m, "put", path, NULL, (long long)len, 0);
	model_fill(m, len);
	BOTH(m, r,
	     (fd[side] = openat(m->root[side], path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK,
				0600)) >= 0 ?
		     0 : -1);
	if (r == 0) {
		BOTH(m, r, write(fd[side], m->buf[side], len));
		m->times_piped = r > 0;
		BOTH(m, r, close(fd[side]));
	}
	model_compare_path(m, path);
}

static void op_two_paths(struct model *m)
{
	char p[1024], q[1024];
	unsigned kind = (unsigned)model_below(m, 5);
	long long r;

	model_path(m, p);
	model_path(m, q);
	switch (kind) {
	case 0:
		model_say(m, "link", p, q, 0, 0);
		BOTH(m, r, linkat(m->root[side], p, m->root[side], q, 0));
		break;
	case 1:
		model_say(m, "rename noreplace", p, q, 0, 0);
		BOTH(m, r,
		     syscall(SYS_renameat2, m->root[side], p, m->root[side], q,
			     RENAME_NOREPLACE_FLAG));
		break;
	case 2:
		model_say(m, "rename exchange", p, q, 0, 0);
		BOTH(m, r,
		     syscall(SYS_renameat2, m->root[side], p, m->root[side], q,
			     RENAME_EXCHANGE_FLAG));
		break;
	default:
		model_say(m, "rename", p, q, 0, 0);
		BOTH(m, r, renameat(m->root[side], p, m->root[side], q));
		break;
	}
	(void)r;
	model_compare_path(m, p);
	model_compare_path(m, q);
}

static void op_make(struct model *m)
{
	unsigned kind = (unsigned)model_below(m, 4);
	char path[1024];
	long long r;

	model_path(m, path);
	model_say(m, "make", path, NULL, kind, 0);
	switch (kind) {
	case 0:
		BOTH(m, r, symlinkat(model_names[m->step % MODEL_NAMES], m->root[side], path));
		break;
	case 1:
		BOTH(m, r,
		     mknodat(m->root[side], path, (m->step & 1 ? S_IFIFO : S_IFSOCK) | 0640, 0));
		break;
	default:
		BOTH(m, r, mkdirat(m->root[side], path, m->step & 1 ? 0755 : 02770));
		break;
	}
	(void)r;
	model_compare_path(m, path);
}

static void op_remove(struct model *m)
{
	char path[1024];
	int flags = model_below(m, 5) == 0 ? AT_REMOVEDIR : 0;
	long long r;

	model_path(m, path);
	model_say(m, "unlink", path, NULL, flags, 0);
	BOTH(m, r, unlinkat(m->root[side], path, flags));
	(void)r;
	model_compare_path(m, path);
}

/* A quarter of them before 1970, as far back as every filesystem to compare with can count. */
static time_t model_seconds(struct model *m)
{
	time_t sec = (time_t)model_below(m, 2000000000);

	return model_below(m, 4) == 0 ? -sec : sec;
}

static void op_attributes(struct model *m)
{
	mode_t mode = (mode_t)model_below(m, 010000);
	uid_t uid = (uid_t)model_below(m, 3) * 1000;
	struct timespec ts[2];
	char path[1024];
	long long r;

	for (int i = 0; i < 2; i++)
		ts[i] = (struct timespec){ model_seconds(m), (long)model_below(m, 1000000000) };
	model_path(m, path);
	switch (model_below(m, 4)) {
	case 0:
		model_say(m, "chmod", path, NULL, mode, 0);
		BOTH(m, r, fchmodat(m->root[side], path, mode, 0));
		break;
	case 1:
		model_say(m, "chown", path, NULL, uid, 0);
		BOTH(m, r, fchownat(m->root[side], path, uid, uid + 1, AT_SYMLINK_NOFOLLOW));
		break;
	case 2: {
		int fd[SIDES];
		off_t size = (off_t)model_below(m, MODEL_FILE_MAX);

		model_say(m, "truncate", path, NULL, (long long)size, 0);
		BOTH(m, r,
		     (fd[side] = openat(m->root[side], path, O_WRONLY | O_NONBLOCK)) >= 0 ? 0 : -1);
		if (r == 0) {
			BOTH(m, r, ftruncate(fd[side], size));
			BOTH(m, r, close(fd[side]));
		}
		break;
	}
	default: {
		struct stat st[SIDES];

		model_say(m, "utimens", path, NULL, (long long)ts[1].tv_sec, ts[1].tv_nsec);
		BOTH(m, r, utimensat(m->root[side], path, ts, AT_SYMLINK_NOFOLLOW));
		if (r != 0)
			break;
		for (int side = 0; side < SIDES; side++)
			fstatat(m->root[side], path, &st[side], AT_SYMLINK_NOFOLLOW);
		if (memcmp(&st[0].st_mtim, &st[1].st_mtim, sizeof(st[0].st_mtim)) != 0)
			model_fail(m, "mtime differs by side after utimens");
		break;
	}
	}
	model_compare_path(m, path);
}

static void op_copy(struct model *m)
{
	off_t src = model_off(m), dst = model_off(m);
	size_t len = model_len(m);
	unsigned i, j;

	if (!model_fd(m, &i) || !model_fd(m, &j) || i == j)
		return;
	model_say(m, "copy_file_range fd", fd_name[i], fd_name[j], (long long)src, (long long)len);
	for (int side = 0; side < SIDES; side++) {
		off_t in = src, out = dst;
		size_t left = len;
		ssize_t n = 1;

		while (left > 0 && n > 0) {
			n = copy_file_range(m->fds[side][i], &in, m->fds[side][j], &out, left, 0);
			left -= n > 0 ? (size_t)n : 0;
		}
		m->buf[side][0] = (uint8_t)(n < 0 ? errno : 0);
	}
	if (m->buf[0][0] != m->buf[1][0])
		model_fail(m, "%s on a, %s on b", strerror(m->buf[0][0]), strerror(m->buf[1][0]));
	model_compare_fd(m, j);
}

static void op_xattr(struct model *m)
{
	char path[1024], full[4600], name[32], value[64];
	int flags = (int)model_below(m, 3); /* 0, XATTR_CREATE, XATTR_REPLACE */
	struct stat st;
	long long r;

	model_path(m, path);
	if (!m->xattr || fstatat(m->root[0], path, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
	    !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
		return;
	snprintf(name, sizeof(name), "user.n%d", (int)model_below(m, 6));
	snprintf(value, sizeof(value), "v%llu", (unsigned long long)model_random(m));
	model_say(m, "xattr", path, name, flags, 0);
	if (model_below(m, 3))
		BOTH(m, r, (snprintf(full, sizeof(full), "%s/%s", m->dir[side], path),
			    lsetxattr(full, name, value, strlen(value), flags)));
	else
		BOTH(m, r,
		     (snprintf(full, sizeof(full), "%s/%s", m->dir[side], path),
		      lremovexattr(full, name)));
	(void)r;
	model_compare_path(m, path);
}

static const struct {
	void (*run)(struct model *m);
	unsigned weight;
} model_table[] = {
	{ op_open, 14 }, { op_write, 20 }, { op_read, 8 },
	{ op_ftruncate, 5 }, { op_fallocate, 5 }, { op_mmap_write, 3 },
	{ op_fsync_or_close, 3 }, { op_put, 12 }, { op_two_paths, 12 },
	{ op_make, 6 }, { op_remove, 6 }, { op_attributes, 8 },
	{ op_copy, 3 }, { op_xattr, 4 }, { model_op_append, 3 },
	{ model_op_seek, 4 }, { model_op_unlinked, 3 }, { model_op_list, 2 },
	{ model_op_statfs, 1 }, { model_op_fifo, 2 },
};
#define MODEL_OPS (sizeof(model_table) / sizeof(model_table[0]))

void model_step(struct model *m)
{
	unsigned total = 0, roll;

	for (size_t i = 0; i < MODEL_OPS; i++)
		total += model_table[i].weight;
	roll = (unsigned)model_below(m, total);
	memcpy(m->history[m->step % MODEL_HISTORY], m->what, sizeof(m->what));
	m->step++;
	snprintf(m->what, sizeof(m->what), "nothing");
	for (size_t i = 0; i < MODEL_OPS; i++) {
		if (roll < model_table[i].weight) {
			model_times_begin(m);
			model_table[i].run(m);
			model_times_end(m);
			return;
		}
		roll -= model_table[i].weight;
	}
}

void model_close_all(struct model *m)
{
	for (int side = 0; side < SIDES; side++)
		for (unsigned i = 0; i < MODEL_FDS; i++) {
			if (m->fds[side][i] >= 0)
				close(m->fds[side][i]);
			m->fds[side][i] = -1;
		}
}
