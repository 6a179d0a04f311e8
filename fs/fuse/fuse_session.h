/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_FUSE_SESSION_H
#define KVFS_FS_FUSE_SESSION_H
/*
 * The mount: the FUSE session, its flags, and the worker threads "kv-fuse-N" that all read from one
 * device fd.
 *
 * Life: fs_create → (fs_recover_orphans) → fs_mount → fs_serve → fs_unmount → fs_stop → fs_destroy,
 * all from the main thread, but fs_unmount also from the control thread. Requests waiting for the
 * commit point refer to the session: the commit queue must be gone before fs_destroy.
 */
#include "fs/fuse/fuse_ops.h"

int fs_create(struct node *n, struct fs **ret_fs);

/* Frees what a crash left unlinked but not freed; returns how many. Primary, before fs_serve. */
unsigned fs_recover_orphans(struct fs *fs);

/* The first mount of a new volume by an ordinary user gives its root directory to that user: it is
 * root's else, and they could make nothing in it. Primary, before fs_serve. */
void fs_own_root(struct fs *fs);

/* mountpoint: absolute, checked by mountpoint_check(). -errno with why filled. */
int fs_mount(struct fs *fs, const char *mountpoint, char why[NODE_WHY_BYTES]);

/* Starts the workers. */
int fs_serve(struct fs *fs);

/* Takes the mount away. -EBUSY: in use, and lazy is false. 0 also when it is gone already. */
int fs_unmount(struct fs *fs, bool lazy);

/* Ends the workers: at once when the mount is gone, else after grace_ns. Bounded. */
void fs_stop(struct fs *fs, uint64_t grace_ns);
void fs_destroy(struct fs *fs); /* NULL is fine */

#endif
