/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_CKPT_FIXTURE_H
#define KVFS_TESTS_CKPT_FIXTURE_H
/* A checkpoint directory of its own for a test, and items whose content follows
 * from their index. */
#include "log/ckpt_internal.h"

#include <check.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint8_t fixture_uuid[16] = "0123456789abcde";

struct ckpt_fixture {
	char path[256];
	int dirfd;
	struct ckpt *c;
};

static inline void fixture_open(struct ckpt_fixture *fx)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(fx->path, sizeof(fx->path), "%s/kvfs-ckpt-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(fx->path));
	fx->dirfd = open(fx->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(fx->dirfd, 0);
	ck_assert_int_eq(ckpt_open(fx->dirfd, true, fixture_uuid, &fx->c), 0);
}

static inline void fixture_reopen(struct ckpt_fixture *fx)
{
	ckpt_close(fx->c);
	ck_assert_int_eq(ckpt_open(fx->dirfd, false, fixture_uuid, &fx->c), 0);
}

static inline int fixture_remove(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static inline void fixture_close(struct ckpt_fixture *fx)
{
	ckpt_close(fx->c);
	close(fx->dirfd);
	nftw(fx->path, fixture_remove, 8, FTW_DEPTH | FTW_PHYS);
}

/* Item index: every 50th is of the largest size, others of odd sizes down to 0. */
static inline size_t fixture_item_len(unsigned int index)
{
	return index % 50 == 49 ? CKPT_ITEM_BYTES_MAX : (size_t)index * 7919 % 3001;
}

static inline void fixture_item_fill(unsigned int index, uint8_t *buf, size_t len)
{
	memset(buf, (int)(index * 37 + 11), len);
	if (len >= sizeof(index))
		memcpy(buf, &index, sizeof(index));
}

/* Adds items [from, to); 0 or the first error. */
static inline int fixture_add(struct ckpt_writer *w, unsigned int from, unsigned int to)
{
	uint8_t *buf = malloc(CKPT_ITEM_BYTES_MAX);
	int err = 0;

	for (unsigned int i = from; i < to && !err; i++) {
		size_t len = fixture_item_len(i);
		struct iovec iov[2] = { { buf, len / 3 }, { buf + len / 3, len - len / 3 } };
		uint64_t seg;
		uint32_t bytes;

		fixture_item_fill(i, buf, len);
		err = ckpt_writer_add(w, (uint8_t)(1 + i % 255), iov, 2, &seg, &bytes);
	}
	free(buf);
	return err;
}

static inline struct ckpt_writer *fixture_begin(struct ckpt_fixture *fx, uint64_t lsn,
						unsigned int from, unsigned int to)
{
	struct ckpt_writer *w = NULL;

	ck_assert_int_eq(ckpt_begin(fx->c, lsn, 3, &w), 0);
	ck_assert_int_eq(fixture_add(w, from, to), 0);
	return w;
}

static inline void fixture_commit(struct ckpt_fixture *fx, uint64_t lsn, unsigned int from,
				  unsigned int to, uint64_t first_seg, struct ckpt_info *ret_info)
{
	struct ckpt_writer *w = fixture_begin(fx, lsn, from, to);

	ck_assert_int_eq(ckpt_commit(w, first_seg, lsn + 1000, ret_info), 0);
	ck_assert_uint_eq(ret_info->lsn, lsn);
}

struct fixture_walk {
	unsigned int next;
	uint64_t done, total;
	uint8_t *buf;
};

static inline int fixture_item(void *ctx, uint64_t seg, uint8_t type, const void *data, size_t len)
{
	struct fixture_walk *walk = ctx;
	unsigned int i = walk->next++;

	ck_assert_uint_gt(seg, 0);
	ck_assert_uint_eq(type, 1 + i % 255);
	ck_assert_uint_eq(len, fixture_item_len(i));
	fixture_item_fill(i, walk->buf, len);
	ck_assert(memcmp(data, walk->buf, len) == 0);
	return 0;
}

static inline void fixture_progress(void *ctx, uint64_t done, uint64_t total)
{
	struct fixture_walk *walk = ctx;

	ck_assert_uint_le(done, total);
	walk->done = done;
	walk->total = total;
}

/* The checkpoint reads as items [from, to), in order. */
static inline void fixture_expect(struct ckpt_fixture *fx, const struct ckpt_info *info,
				  unsigned int from, unsigned int to)
{
	static const struct ckpt_read_ops ops = { fixture_item, fixture_progress };
	struct fixture_walk walk = { .next = from, .buf = malloc(CKPT_ITEM_BYTES_MAX) };

	ck_assert_int_eq(ckpt_read(fx->c, info, &ops, &walk, NULL), 0);
	ck_assert_uint_eq(walk.next, to);
	ck_assert_uint_eq(walk.done, info->bytes);
	free(walk.buf);
}

struct fixture_counts {
	enum ckpt_name_kind kind;
	unsigned int count;
};

static inline int fixture_count_one(void *ctx, const char *name, enum ckpt_name_kind kind,
				    uint64_t number)
{
	struct fixture_counts *n = ctx;

	(void)name;
	(void)number;
	n->count += kind == n->kind;
	return 0;
}

static inline unsigned int fixture_count(struct ckpt_fixture *fx, enum ckpt_name_kind kind)
{
	struct fixture_counts n = { kind, 0 };

	ck_assert_int_eq(ckpt_dir_each(fx->c, fixture_count_one, &n), 0);
	return n.count;
}

static inline void fixture_flip(struct ckpt_fixture *fx, const char *name, off_t off)
{
	int fd = openat(ckpt_dirfd(fx->c), name, O_RDWR | O_CLOEXEC);
	uint8_t byte;

	ck_assert_int_eq(pread(fd, &byte, 1, off), 1);
	byte ^= 0x10;
	ck_assert_int_eq(pwrite(fd, &byte, 1, off), 1);
	close(fd);
}

static inline void fixture_copy(struct ckpt_fixture *from, struct ckpt_fixture *to,
				const char *name)
{
	int in = openat(ckpt_dirfd(from->c), name, O_RDONLY | O_CLOEXEC);
	int out = openat(ckpt_dirfd(to->c), name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	char buf[4096];
	ssize_t n;

	ck_assert(in >= 0 && out >= 0);
	while ((n = read(in, buf, sizeof(buf))) > 0)
		ck_assert_int_eq(write(out, buf, (size_t)n), n);
	close(in);
	close(out);
}

#endif
