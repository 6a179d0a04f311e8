/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of the checkpoint directory: names, manifests, and what may go. The order of removals
 * matters: a manifest's absence is durable before any segment that it named is touched.
 */
#include "log/ckpt_internal.h"

#include "common/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The longest manifest there can be: both copies. */
#define MANIFEST_BYTES_MAX                                                                         \
	(2 * (sizeof(struct ckpt_manifest_header) +                                                \
	      (size_t)CKPT_SEGS_MAX * sizeof(struct ckpt_manifest_entry)))

static bool parse_hex16(const char *s, uint64_t *ret_number)
{
	uint64_t v = 0;

	for (int i = 0; i < 16; i++) {
		char ch = s[i];

		if (ch >= '0' && ch <= '9')
			v = v << 4 | (uint64_t)(ch - '0');
		else if (ch >= 'a' && ch <= 'f')
			v = v << 4 | (uint64_t)(ch - 'a' + 10);
		else
			return false;
	}
	if (s[16] != '\0')
		return false;
	*ret_number = v;
	return true;
}

enum ckpt_name_kind ckpt_name_parse(const char *name, uint64_t *ret_number)
{
	size_t len = strlen(name);

	if (strncmp(name, "seg-", 4) == 0 && parse_hex16(name + 4, ret_number))
		return CKPT_NAME_SEG;
	if (strncmp(name, "manifest-", 9) == 0 && parse_hex16(name + 9, ret_number))
		return CKPT_NAME_MANIFEST;
	if (len > 4 && strcmp(name + len - 4, ".tmp") == 0)
		return CKPT_NAME_TMP;
	return CKPT_NAME_OTHER;
}

int ckpt_dir_each(struct ckpt *c,
		  int (*fn)(void *ctx, const char *name, enum ckpt_name_kind kind, uint64_t number),
		  void *ctx)
{
	/* A descriptor of its own: dup would share the position with other walks. */
	int fd = openat(c->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	int err = 0;

	if (!dir) {
		err = -errno;
		if (fd >= 0)
			close(fd);
		return err;
	}
	while (!err) {
		uint64_t number = 0;
		enum ckpt_name_kind kind;

		errno = 0;
		e = readdir(dir);
		if (!e) {
			err = -errno;
			break;
		}
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		kind = ckpt_name_parse(e->d_name, &number);
		err = fn(ctx, e->d_name, kind, number);
	}
	closedir(dir);
	return err;
}

struct number_list {
	uint64_t *v;
	size_t count, cap;
};

static int collect_manifest(void *ctx, const char *name, enum ckpt_name_kind kind, uint64_t number)
{
	struct number_list *l = ctx;

	(void)name;
	if (kind != CKPT_NAME_MANIFEST)
		return 0;
	if (l->count == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 16;
		uint64_t *v = reallocarray(l->v, cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		l->v = v;
		l->cap = cap;
	}
	l->v[l->count++] = number;
	return 0;
}

static int newest_first(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x < *y) - (*x > *y);
}

int ckpt_dir_manifests(struct ckpt *c, uint64_t **ret_numbers, size_t *ret_count)
{
	struct number_list l = { NULL, 0, 0 };
	int err = ckpt_dir_each(c, collect_manifest, &l);

	if (err) {
		free(l.v);
		return err;
	}
	if (l.count > 1)
		qsort(l.v, l.count, sizeof(*l.v), newest_first);
	*ret_numbers = l.v;
	*ret_count = l.count;
	return 0;
}

static int manifest_read(int fd, uint8_t **ret_data, size_t *ret_len)
{
	struct stat st;
	uint8_t *data;
	int err;

	if (fstat(fd, &st) != 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size <= 0 || (uint64_t)st.st_size > MANIFEST_BYTES_MAX)
		return -EBADMSG;
	data = malloc((size_t)st.st_size);
	if (!data)
		return -ENOMEM;
	err = io_pread_full(fd, data, (size_t)st.st_size, 0);
	if (err) {
		free(data);
		return err;
	}
	*ret_data = data;
	*ret_len = (size_t)st.st_size;
	return 0;
}

int ckpt_manifest_load(struct ckpt *c, uint64_t number, struct ckpt_manifest *ret_m)
{
	char name[CKPT_NAME_BYTES];
	struct ckpt_manifest m;
	uint8_t *data = NULL;
	size_t len = 0;
	int fd, err;

	ckpt_manifest_name(number, name, sizeof(name));
	fd = openat(c->dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return errno == ELOOP ? -EBADMSG : -errno;
	err = manifest_read(fd, &data, &len);
	close(fd);
	if (err) /* what the medium can't give back is damaged as well */
		return err == -EIO || err == -ENODATA ? -EBADMSG : err;
	err = ckpt_manifest_decode(data, len, c->uuid, &m);
	free(data);
	if (err)
		return err;
	if (m.info.number != number) {
		ckpt_manifest_clear(&m);
		return -EBADMSG;
	}
	*ret_m = m;
	return 0;
}

static int write_tmp(struct ckpt *c, const char *tmp, const uint8_t *data, size_t len)
{
	const struct ckpt_hooks *h = &c->hooks;
	int fd = h->ops->open(h->ops_ctx, c->dirfd, tmp,
			      O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	int err;

	if (fd < 0)
		return fd;
	err = h->ops->write(h->ops_ctx, fd, data, len, 0);
	if (!err)
		err = h->ops->fsync(h->ops_ctx, fd);
	if (close(fd) != 0 && !err)
		err = -errno;
	return err;
}

int ckpt_manifest_store(struct ckpt *c, const struct ckpt_manifest *m)
{
	const struct ckpt_hooks *h = &c->hooks;
	char name[CKPT_NAME_BYTES], tmp[CKPT_NAME_BYTES];
	uint8_t *data;
	size_t len;
	int err = ckpt_manifest_encode(m, c->uuid, &data, &len);

	if (err)
		return err;
	ckpt_manifest_name(m->info.number, name, sizeof(name));
	snprintf(tmp, sizeof(tmp), "manifest.tmp");
	err = write_tmp(c, tmp, data, len);
	free(data);
	if (!err)
		err = h->ops->rename(h->ops_ctx, c->dirfd, tmp, name);
	if (err) {
		(void)h->ops->unlink(h->ops_ctx, c->dirfd, tmp);
		return err;
	}
	return h->ops->fsync_dir(h->ops_ctx, c->dirfd);
}

int ckpt_manifest_remove(struct ckpt *c, uint64_t number)
{
	const struct ckpt_hooks *h = &c->hooks;
	char name[CKPT_NAME_BYTES];
	int err;

	ckpt_manifest_name(number, name, sizeof(name));
	err = h->ops->unlink(h->ops_ctx, c->dirfd, name);
	if (err && err != -ENOENT)
		return err;
	return h->ops->fsync_dir(h->ops_ctx, c->dirfd);
}
