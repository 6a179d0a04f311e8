/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_BENCH_ENGINE_H
#define KVFS_FS_BENCH_ENGINE_H
/*
 * The engine without FUSE, for kvfs bench --replication: a whole primary (store, log, commit queue,
 * links) in this process, and puts and gets as the FUSE handlers do them, by callers that wait for
 * the answer.
 *
 * A put replaces a key's value by one WRITE record; a create is CREATE and WRITE, the second when
 * the first is acknowledged.
 *
 * Threads: open and close from the main thread; the operations from any, each with its own caller.
 */
#include "fs/bench/bench.h"
#include "fs/bench/bench_keys.h"
#include "fs/node/node.h"
#include "replication/primary/primary.h"

#include <semaphore.h>

struct bench_engine;

/* Who waits for an answer: one thread, one operation at a time. It looks for the mirrors' answers
 * itself, as the threads of a mount's requests do (replication/primary/primary.h). */
struct bench_caller {
	sem_t answered;
	int err; /* written before answered is posted */
	struct primary_helper helper;
};
int bench_caller_init(struct bench_caller *c, struct bench_engine *e);
/* By the thread itself, after its last operation. */
void bench_caller_leave(struct bench_caller *c);
void bench_caller_destroy(struct bench_caller *c);

/*
 * Opens volume as a primary with opt's mirrors (opt outlives the engine), and waits until
 * opt->min_mirrors of them are live, to opt->connect_s. media as of node_open: NULL but in tests.
 * -errno with why.
 */
int bench_engine_open(const struct options *opt, const char *volume, const struct node_media *media,
		      struct bench_engine **ret_e, char why[NODE_WHY_BYTES]);
/* Commits what is queued, makes the last checkpoint, ends. NULL is fine. */
void bench_engine_close(struct bench_engine *e);
struct node *bench_engine_node(struct bench_engine *e);

/* 0, -ENOENT, -EEXIST, -ENOSPC (arena), -EIO (not acknowledged in time), -ENOMEM. Block until
 * answered; bytes is at most RECORD_DATA_MAX. */
int bench_engine_put(struct bench_engine *e, struct bench_caller *c, uint64_t key, const void *buf,
		     size_t bytes);
int bench_engine_create(struct bench_engine *e, struct bench_caller *c, uint64_t key,
			const void *buf, size_t bytes);
/* Key from becomes key to, which is not there. */
int bench_engine_rename(struct bench_engine *e, struct bench_caller *c, uint64_t from, uint64_t to);
/* Copies the value to buf; blocks until that is committed. */
int bench_engine_get(struct bench_engine *e, struct bench_caller *c, uint64_t key, void *buf,
		     size_t cap, uint64_t *ret_bytes);

/*
 * prepare makes cfg's keys, and touches all memory between the nodes once. run has threads run
 * cfg's load on e for cfg->seconds (cfg->dir is not used). sleep waits so long and returns early,
 * not 0, when all is to end. 0 or -errno of the start; errors of operations are counted.
 */
int bench_clients_prepare(struct bench_engine *e, const struct bench_config *cfg,
			  int (*sleep)(void *ctx, double seconds), void *ctx);
int bench_clients_run(struct bench_engine *e, const struct bench_config *cfg,
		      struct bench_keys *keys, int (*sleep)(void *ctx, double seconds), void *ctx,
		      struct bench_result *ret_result);

#endif
