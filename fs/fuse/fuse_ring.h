/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_FUSE_RING_H
#define KVFS_FS_FUSE_RING_H
/*
 * Requests over io_uring (Linux 6.14 and later, where the module parameter fuse.enable_uring is Y):
 * one ring and one thread "kv-ring-N" a processor, which serves the requests of the clients that
 * run there. A request then costs one system call of ours and no wake-up of another processor.
 * Without it, and for what the kernel still sends through /dev/fuse (FORGET, INTERRUPT), the
 * workers of fuse_workers.c read the device.
 *
 * A ring's thread takes all requests that are there, runs their handlers, drives the commit queue
 * once for all of them, and gives the answers and the wait for the next requests to the kernel in
 * one call. An answer from another thread (the commit point moved there) is left on the ring's
 * list, and its thread woken. Handlers that may wait for log room run in threads of their own
 * ("kv-wait-N"), so that reads and deletes go on.
 */
#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <sys/uio.h>

struct fs;
struct fuse_rings;

/* Whether the kernel offers it. If not, fs->rings_why says what is missing. */
bool fuse_rings_offered(struct fs *fs);

/*
 * The rings and their threads, which wait for fuse_rings_begin(). After fuse_session_mount(),
 * before the first request is read: answers of the session go through us from here on. -errno: the
 * kernel can't, nothing is changed. Main.
 */
int fuse_rings_create(struct fs *fs, struct fuse_rings **ret_rings);

/* When the INIT request is answered: gives the entries to the kernel, waits for all rings. The
 * number of them; -errno: the kernel goes on with /dev/fuse. Main. */
int fuse_rings_begin(struct fuse_rings *rings);

/* Ends the threads: when the mount is gone, or at once if now. Main. */
void fuse_rings_stop(struct fuse_rings *rings, bool now);

/* Frees the rings: nobody will answer a request any more. NULL is fine. */
void fuse_rings_destroy(struct fuse_rings *rings);

/* Whether the calling thread drives the commit queue itself when it has run all requests
 * that are there. */
bool fuse_ring_drives_later(void);

/* Whether the calling thread is a ring's and handles a request that has changed nothing yet: it is
 * not to wait, the caller answers with any error, which nobody sees, and the request is handled
 * once more by a thread that may wait. */
bool fuse_ring_put_off(void);

/* Before the calling thread, if it is a ring's, waits for anything but requests: others look for
 * acknowledgements then. */
void fuse_ring_may_block(void);

#endif
