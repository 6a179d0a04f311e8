/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_FUSE_DOUBT_H
#define KVFS_FS_FUSE_DOUBT_H
/*
 * Changes that were answered with EIO because no mirror acknowledged them in time: the store has
 * them, and they may yet commit, but the kernel believes they failed and would keep its names,
 * attributes and pages for a day. This tells it to ask again. From the thread "kv-doubt" alone and
 * without locks: the kernel may wait for a directory's lock that another request holds.
 */
#include "common/metrics.h"
#include "replication/commit/op.h"

#include <fuse_lowlevel.h>

struct doubt;

/* Starts the thread; told (may be NULL) counts what the kernel was told. -ENOMEM, -EAGAIN. */
int doubt_create(struct metric *told, struct doubt **ret_d);
void doubt_set_session(struct doubt *d, struct fuse_session *se); /* once, when it is mounted */

/* While requests are answered: the kernel is told nothing more, and what it is being told, which
 * may wait for such an answer, is waited for. Bounded. NULL is fine. */
void doubt_quiet(struct doubt *d);

/* Ends the thread, before the session goes; NULL is fine. 0, or -ETIMEDOUT: the kernel keeps it in
 * a notification (a request that nobody answers any more holds the lock); thread, d and the session
 * must then stay. */
int doubt_destroy(struct doubt *d);

/* op, whose head is a sealed record, was answered with an error. Copies what it needs; never
 * blocks. Any thread. */
void doubt_note(struct doubt *d, const struct op *op);

#endif
