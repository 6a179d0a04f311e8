/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_CKPT_IO_H
#define KVFS_LOG_CKPT_IO_H
/*
 * Asynchronous appending to segment files: a handful of aligned buffers, registered with one
 * io_uring; O_DIRECT where the filesystem takes it. What is missing is done without, silently: no
 * O_DIRECT (the page cache), no room to register (plain ring writes), no io_uring (pwrite). Every
 * write is reaped and its result checked; the first error sticks and each later call returns it.
 *
 * Also the table of durability points: tests put another one in to stop the store at the n-th.
 *
 * Threads: one at a time. Waits are for the disk only, as long as the block layer lets a request
 * live.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Each returns 0 (open: the descriptor) or -errno. */
struct ckpt_file_ops {
	int (*open)(void *ctx, int dirfd, const char *name, int flags, mode_t mode);
	int (*write)(void *ctx, int fd, const void *buf, size_t len, off_t off); /* all of it */
	int (*truncate)(void *ctx, int fd, off_t len);
	int (*fsync)(void *ctx, int fd); /* data and length */
	int (*rename)(void *ctx, int dirfd, const char *from, const char *to);
	int (*unlink)(void *ctx, int dirfd, const char *name);
	int (*fsync_dir)(void *ctx, int dirfd);
	/* A write over io_uring, of len bytes, ended with res (bytes or -errno): what it is to have
	 * ended with. NULL: that. For tests. */
	int (*wrote)(void *ctx, int fd, size_t len, off_t off, int res);
};

extern const struct ckpt_file_ops ckpt_file_ops_system;

/* How to work; all zero but ops is the default. For tests, and for measuring one
 * way against another. */
struct ckpt_hooks {
	const struct ckpt_file_ops *ops;
	void *ops_ctx;
	uint64_t seg_bytes;  /* 0: CKPT_SEG_BYTES */
	bool no_uring;       /* as if io_uring were forbidden: every write is ops->write */
	bool no_register;    /* as if the memlock limit were too low */
	bool no_direct;
};

struct ckpt_io;
struct ckpt_io_file;

/* hooks must outlive it. -ENOMEM. */
int ckpt_io_create(const struct ckpt_hooks *hooks, struct ckpt_io **ret_io);
/* Waits for what is in flight; all files must be closed. NULL is fine. */
void ckpt_io_destroy(struct ckpt_io *io);

bool ckpt_io_is_uring(const struct ckpt_io *io);
bool ckpt_io_is_direct(const struct ckpt_io *io); /* of the files opened so far */

/* A page-aligned buffer of CKPT_BLOCK_BYTES_MAX; blocks until a write of an earlier
 * one is through. */
int ckpt_io_buffer_get(struct ckpt_io *io, uint8_t **ret_buf);

/* Makes the new file name. -EEXIST and open(2)'s. */
int ckpt_io_file_open(struct ckpt_io *io, int dirfd, const char *name, struct ckpt_io_file **ret_f);

/* Appends len bytes (whole pages) at the front of buf, which goes back to the pool by itself. */
int ckpt_io_write(struct ckpt_io *io, struct ckpt_io_file *f, uint8_t *buf, size_t len);

/* Tells the page cache, where one is used, to begin writing f out; does not wait. */
void ckpt_io_file_start_sync(struct ckpt_io_file *f);

/* Waits for f's writes, sets the exact length, syncs and closes. f is gone in every case. */
int ckpt_io_file_finish(struct ckpt_io *io, struct ckpt_io_file *f);
/* Waits for f's writes and closes; what it holds is to be removed. NULL is fine. */
void ckpt_io_file_discard(struct ckpt_io *io, struct ckpt_io_file *f);

#endif
