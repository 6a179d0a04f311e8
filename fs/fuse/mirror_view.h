/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_MIRROR_VIEW_H
#define KVFS_FS_MIRROR_VIEW_H
/*
 * Keeps the kernel's pages of a mirror's read-only view coherent: names and attributes are asked
 * for each time (timeouts 0), pages of changed inodes are dropped by notification, from the thread
 * "kv-inval" alone and without locks (the kernel may wait for a page lock that a reader holds,
 * whose request a handler must answer).
 *
 * Threads: view_wants_locked, view_note, view_flush, view_note_resync from "kv-mirror".
 */
#include "fs/fuse/fuse_ops.h"

int view_create(struct fs *fs, struct view **ret_view); /* starts the thread */
/* While requests are answered: tells nothing more, and joins the thread, which may wait for such
 * an answer. Bounded. NULL is fine. Main, as view_destroy. */
void view_stop(struct view *v);
/* When nobody calls any more. NULL is fine. 0, or -ETIMEDOUT: the kernel keeps the thread (a
 * request that nobody answers any more holds a page); v and the session must then stay. */
int view_destroy(struct view *v);

/* Whether r changed bytes of an inode the kernel knows. Under the store's lock. */
bool view_wants_locked(struct view *v, struct store *st, const struct record *r);
void view_note(struct view *v, uint64_t ino);
void view_flush(struct view *v);        /* what was noted is to be sent now */
/* reference counts were lost: from now on every change is told */
void view_note_resync(struct view *v);

#endif
