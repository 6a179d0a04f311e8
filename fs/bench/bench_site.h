/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_BENCH_SITE_H
#define KVFS_FS_BENCH_SITE_H
/*
 * Where kvfs bench --replication works: a temporary directory with one volume a node, and the
 * mirrors, which are processes of their own (kvfs mirror, this very program). bench_site_close ends
 * the mirrors and removes the directory, whatever state it is in. If this process is killed, the
 * mirrors die with it and the directory stays.
 *
 * Main thread.
 */
#include "fs/node/node.h"

#include <sys/types.h>

#define BENCH_MIRRORS_MAX 2

struct bench_mirror {
	pid_t pid;        /* 0: none */
	struct addr addr; /* where it listens */
};

struct bench_site {
	char path[PATH_MAX]; /* "": none */
	struct bench_mirror mirrors[BENCH_MIRRORS_MAX];
	unsigned mirror_count;
};

/* Waits so many seconds; not 0, at once, when the user wants the end. */
struct bench_pause {
	int (*fn)(void *ctx, double seconds);
	void *ctx;
};

/* A directory below dir with the volumes of a primary and of mirrors: "primary", "mirror1", ….
 * -errno with why: errors of mkdtemp, -ENOSPC, … */
int bench_site_open(struct bench_site *s, const char *dir, unsigned mirrors,
		    char why[NODE_WHY_BYTES]);
/* Removes it; 0 or -errno of what could not be removed. Zeroed or closed is fine. */
int bench_site_close(struct bench_site *s);

void bench_site_volume(const struct bench_site *s, const char *node, char out[PATH_MAX]);

/* Starts the mirrors, listening on a transport of kind, with options (-o, NULL: none) and waits
 * until all listen. -errno with why; -EINTR: the user wants the end. */
int bench_site_start_mirrors(struct bench_site *s, enum addr_kind kind, const char *options,
			     const struct bench_pause *pause, char why[NODE_WHY_BYTES]);
/* Ends them; each has 10 s before it is killed. */
void bench_site_stop_mirrors(struct bench_site *s);

/* bench_mirror.c: the parts of these for one mirror. */
int bench_mirror_start(struct bench_site *s, unsigned i, enum addr_kind kind, const char *options,
		       const struct bench_pause *pause, char why[NODE_WHY_BYTES]);
void bench_mirror_stop(struct bench_mirror *m);

#endif
