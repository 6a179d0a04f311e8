/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing what is there: one path, or both trees. */
#include "tests/model/model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

static void compare_content(struct model *m, const char *path, const struct stat *st)
{
	if (st->st_size > MODEL_FILE_MAX)
		model_fail(m, "%s: size %lld is larger than any operation makes", path,
			   (long long)st->st_size);
	for (int side = 0; side < SIDES; side++) {
		int fd = openat(m->root[side], path, O_RDONLY | O_NOFOLLOW);
		ssize_t n = fd < 0 ? -1 : pread(fd, m->buf[side], MODEL_FILE_MAX + 1, 0);

		if (n != st->st_size)
			model_fail(m, "%s: side %c reads %zd bytes of %lld: %s", path, 'a' + side,
				   n, (long long)st->st_size, n < 0 ? strerror(errno) : "short");
		close(fd);
	}
	for (off_t i = 0; i < st->st_size; i++)
		if (m->buf[SIDE_A][i] != m->buf[SIDE_B][i])
			model_fail(m, "%s: byte %lld of %lld is %02x on a, %02x on b", path,
				   (long long)i, (long long)st->st_size, m->buf[SIDE_A][i],
				   m->buf[SIDE_B][i]);
}

static void compare_target(struct model *m, const char *path)
{
	char target[SIDES][4096];
	ssize_t n[SIDES];

	for (int side = 0; side < SIDES; side++)
		n[side] = readlinkat(m->root[side], path, target[side], sizeof(target[side]));
	if (n[0] != n[1] || n[0] < 0 || memcmp(target[0], target[1], (size_t)n[0]) != 0)
		model_fail(m, "%s: link targets differ (%zd and %zd bytes)", path, n[0], n[1]);
}

static int compare_strings(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The user.* names of a file, sorted and joined, with their values. */
static void xattr_text(struct model *m, int side, const char *path, char *out, size_t cap)
{
	char full[4600], list[8192], value[1024];
	char *names[64];
	size_t count = 0, used = 0;
	ssize_t n;

	snprintf(full, sizeof(full), "%s/%s", m->dir[side], path);
	n = llistxattr(full, list, sizeof(list));
	for (char *p = list; n > 0 && p < list + n && count < 64; p += strlen(p) + 1)
		if (strncmp(p, "user.", 5) == 0)
			names[count++] = p;
	qsort(names, count, sizeof(names[0]), compare_strings);
	out[0] = '\0';
	for (size_t i = 0; i < count && used < cap; i++) {
		ssize_t v = lgetxattr(full, names[i], value, sizeof(value));

		used += (size_t)snprintf(out + used, cap - used, "%s=%zd:%.*s;", names[i], v,
					 v > 0 ? (int)v : 0, value);
	}
}

static void compare_xattrs(struct model *m, const char *path)
{
	static char text[SIDES][16384];

	for (int side = 0; side < SIDES; side++)
		xattr_text(m, side, path, text[side], sizeof(text[side]));
	if (strcmp(text[0], text[1]) != 0)
		model_fail(m, "%s: xattrs differ: a has %s, b has %s", path, text[0], text[1]);
}

static void compare_stat(struct model *m, const char *path, const struct stat *a,
			 const struct stat *b)
{
	if (a->st_mode != b->st_mode)
		model_fail(m, "%s: mode %o on a, %o on b", path, a->st_mode, b->st_mode);
	if (a->st_nlink != b->st_nlink)
		model_fail(m, "%s: nlink %lu on a, %lu on b", path, (unsigned long)a->st_nlink,
			   (unsigned long)b->st_nlink);
	if (a->st_uid != b->st_uid || a->st_gid != b->st_gid)
		model_fail(m, "%s: owner %u:%u on a, %u:%u on b", path, a->st_uid, a->st_gid,
			   b->st_uid, b->st_gid);
	if (!S_ISDIR(a->st_mode) && a->st_size != b->st_size)
		model_fail(m, "%s: size %lld on a, %lld on b", path, (long long)a->st_size,
			   (long long)b->st_size);
	if (a->st_rdev != b->st_rdev)
		model_fail(m, "%s: rdev differs", path);
}

void model_compare_path(struct model *m, const char *path)
{
	struct stat st[SIDES];
	int err[SIDES];

	for (int side = 0; side < SIDES; side++)
		err[side] = fstatat(m->root[side], path, &st[side], AT_SYMLINK_NOFOLLOW) ? errno :
											   0;
	if (err[0] != err[1])
		model_fail(m, "%s: lstat says %s on a, %s on b", path, strerror(err[0]),
			   strerror(err[1]));
	if (err[0])
		return;
	compare_stat(m, path, &st[0], &st[1]);
	if (S_ISREG(st[0].st_mode))
		compare_content(m, path, &st[0]);
	if (S_ISLNK(st[0].st_mode))
		compare_target(m, path);
	if (m->xattr && (S_ISREG(st[0].st_mode) || S_ISDIR(st[0].st_mode)))
		compare_xattrs(m, path);
}

/* Sorted names of a directory; NULL-terminated, freed by the caller. */
static char **read_names(struct model *m, int side, const char *path, size_t *ret_count)
{
	int fd = openat(m->root[side], path, O_RDONLY | O_DIRECTORY);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	char **names = NULL;
	struct dirent *e;

	*ret_count = 0;
	if (!d)
		model_fail(m, "%s: side %c: cannot list: %s", path, 'a' + side, strerror(errno));
	while ((e = readdir(d))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		names = realloc(names, (*ret_count + 1) * sizeof(*names));
		names[(*ret_count)++] = strdup(e->d_name);
	}
	closedir(d);
	if (names)
		qsort(names, *ret_count, sizeof(*names), compare_strings);
	return names;
}

static void compare_dir(struct model *m, const char *path)
{
	size_t count[SIDES];
	char **names[SIDES];

	for (int side = 0; side < SIDES; side++)
		names[side] = read_names(m, side, path, &count[side]);
	for (size_t i = 0; i < count[0] || i < count[1]; i++) {
		char child[4600];
		struct stat st;

		if (i >= count[0] || i >= count[1] || strcmp(names[0][i], names[1][i]) != 0)
			model_fail(m, "%s: listings differ at entry %zu of %zu and %zu: %s and %s",
				   path, i, count[0], count[1], i < count[0] ? names[0][i] : "-",
				   i < count[1] ? names[1][i] : "-");
		snprintf(child, sizeof(child), "%s/%s", path, names[0][i]);
		model_compare_path(m, child);
		if (fstatat(m->root[0], child, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISDIR(st.st_mode))
			compare_dir(m, child);
	}
	for (int side = 0; side < SIDES; side++) {
		for (size_t i = 0; i < count[side]; i++)
			free(names[side][i]);
		free(names[side]);
	}
}

void model_compare_tree(struct model *m)
{
	model_compare_path(m, ".");
	compare_dir(m, ".");
}
