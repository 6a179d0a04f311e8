/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_MODEL_H
#define KVFS_TESTS_MODEL_H
/*
 * The model test: the same random operations on two directories (a kvfs mount and an ordinary
 * filesystem), results compared after each. Single-threaded.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

enum { SIDE_A, SIDE_B, SIDES };

#define MODEL_FDS 8
#define MODEL_IO_MAX (160 * 1024)
#define MODEL_FILE_MAX (400 * 1024)

struct model {
	int root[SIDES];
	const char *dir[SIDES];
	uint64_t seed, random, step;
	bool xattr;
	int fds[SIDES][MODEL_FDS]; /* pairs, -1: closed */
	char what[512];            /* the operation under way, for the report */
	uint8_t buf[SIDES][MODEL_FILE_MAX + 1];
};

uint64_t model_random(struct model *m);
uint64_t model_below(struct model *m, uint64_t n); /* 0 .. n - 1 */

/* Prints what differs with seed, step and operation, and exits with 1. */
void model_fail(struct model *m, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));

/* One random operation on both sides, results compared. */
void model_step(struct model *m);
void model_close_all(struct model *m);

/* What one path is on both sides: kind, mode, owner, links, size, content, target, xattrs. */
void model_compare_path(struct model *m, const char *path);
/* Both whole trees. */
void model_compare_tree(struct model *m);

#endif
