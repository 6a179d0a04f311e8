/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_SERVE_H
#define KVFS_FS_SERVE_H
/* The life of the daemon behind kvfs mount and kvfs mirror: opens everything, serves,
 * ends in order. */
#include "fs/node/options.h"

#include <limits.h>

struct serve_args {
	struct options opt;
	char volume[PATH_MAX];
	char mountpoint[PATH_MAX]; /* "": a mirror without a view */
	bool foreground;
};

/*
 * Reads the command line of kvfs mount or kvfs mirror (also as mount(8) passes it) and the
 * configuration files. Returns -1 with ret_args filled, or an exit code: help was printed, or one
 * line said what is wrong.
 */
int serve_parse(enum options_role role, int argc, char **argv, struct serve_args *ret_args);

/* Runs in the daemon (daemon_launch); returns its exit code. */
int serve_run(void *args);

#endif
