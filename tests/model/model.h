/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_MODEL_H
#define KVFS_TESTS_MODEL_H
/*
 * The model test: the same random operations on two directories (a kvfs mount and an ordinary
 * filesystem), results compared after each. Single-threaded.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

enum { SIDE_A, SIDE_B, SIDES };

#define MODEL_FDS 8
#define MODEL_HISTORY 24
#define MODEL_IO_MAX (160 * 1024)
#define MODEL_FILE_MAX (400 * 1024)

struct model {
	int root[SIDES];
	const char *dir[SIDES];
	uint64_t seed, random, step;
	bool xattr;
	int fds[SIDES][MODEL_FDS]; /* pairs, -1: closed */
	char what[512];            /* the operation under way, for the report */
	char history[MODEL_HISTORY][512]; /* the ones before, by step */
	unsigned times_every;      /* how often, in operations, all times are watched; 0: never */
	bool times_watched, times_differ;
	bool times_piped;          /* bytes went into a FIFO: see model_times.c */
	uint8_t buf[SIDES][MODEL_FILE_MAX + 1];
};

uint64_t model_random(struct model *m);
uint64_t model_below(struct model *m, uint64_t n); /* 0 .. n - 1 */

/* Prints what differs with seed, step and operation, and exits with 1. */
void model_fail(struct model *m, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), noreturn));

/* One random operation on both sides, results compared. */
void model_step(struct model *m);
void model_close_all(struct model *m);

/* What operations are made of. */
void model_path(struct model *m, char out[1024]); /* of up to three components */
void model_say(struct model *m, const char *op, const char *p, const char *q, long long x,
	       long long y);
void model_fill(struct model *m, size_t len); /* both buffers, the same */
size_t model_len(struct model *m);
off_t model_off(struct model *m);
bool model_fd(struct model *m, unsigned *ret_i); /* an open pair, or false */
void model_compare_fd(struct model *m, unsigned i);

/* model_more.c: appends through several descriptors, holes, unlinked files, listings that change,
 * statfs, FIFOs. */
void model_op_append(struct model *m);
void model_op_seek(struct model *m);
void model_op_unlinked(struct model *m);
void model_op_list(struct model *m);
void model_op_statfs(struct model *m);
void model_op_fifo(struct model *m);

/*
 * model_times.c: around one operation of times_every, whether mtime and ctime of each object moved
 * (the same on both sides). The operation sets times_differ where an ordinary filesystem is no
 * model, and times_piped where only its FIFOs are none.
 */
void model_times_begin(struct model *m);
void model_times_end(struct model *m);

/* What one path is on both sides: kind, mode, owner, links, size, content, target, xattrs. */
void model_compare_path(struct model *m, const char *path);
/* Both whole trees. */
void model_compare_tree(struct model *m);

/* Runs call for both sides (side is its variable) and compares value and errno. */
#define BOTH(m, ret, call)                                                                         \
	do {                                                                                       \
		long long got_[SIDES];                                                             \
		int errno_[SIDES];                                                                 \
		for (int side = 0; side < SIDES; side++) {                                         \
			errno = 0;                                                                 \
			got_[side] = (long long)(call);                                            \
			errno_[side] = got_[side] < 0 ? errno : 0;                                 \
		}                                                                                  \
		if (got_[0] != got_[1] || errno_[0] != errno_[1])                                  \
			model_fail((m), "result %lld (%s) on a, %lld (%s) on b", got_[0],          \
				   strerror(errno_[0]), got_[1], strerror(errno_[1]));             \
		(ret) = got_[0];                                                                   \
	} while (0)

#endif
