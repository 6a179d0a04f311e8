/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_OPTIONS_INTERNAL_H
#define KVFS_FS_OPTIONS_INTERNAL_H
/*
 * What the parts of options.h share.
 *
 * options_table.c  the table, defaults, --help
 * options_set.c    one option: NAME or NAME=VALUE
 * options.c        lists, files, what only holds for all together
 */
#include "fs/node/options.h"

enum option_kind {
	KIND_FLAG, KIND_SIZE, KIND_UINT, KIND_CHOICE, KIND_ADDR, KIND_MEMORY, KIND_DEVICE,
	KIND_METRICS,
};

struct option_def {
	const char *name;
	enum option_kind kind;
	unsigned roles;
	size_t field;
	uint64_t min, max;
	const char *choices;  /* KIND_CHOICE: names by value, separated by '|' */
	const char *arg;
	const char *help;
};

/* NULL: there is none at index and behind. */
const struct option_def *option_at(size_t index);

#endif
