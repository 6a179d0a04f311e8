/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_COMMON_IO_H
#define KVFS_COMMON_IO_H
/* Whole reads and writes, and the durability points on files. All block. 0 or -errno. Any
 * thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* All len bytes, across short transfers and EINTR. io_pread_full: -ENODATA at end of file. */
int io_pread_full(int fd, void *buf, size_t len, off_t off);
int io_pwrite_full(int fd, const void *buf, size_t len, off_t off);
int io_write_full(int fd, const void *buf, size_t len);

/* The names in directory dirfd are durable. */
int io_fsync_dir(int dirfd);

/* Replaces (or makes) file name in dirfd so that after a crash either the old or the whole new one
 * is there: written as name.tmp, fsynced, renamed, directory fsynced. */
int io_replace_file(int dirfd, const char *name, const void *data, size_t len, mode_t mode);

/* Last in main(): whether what was printed has arrived. -errno of the write that did not; -EIO
 * where it was an earlier one, whose cause is not known any more. */
int io_flush_stdout(void);

/*
 * First call of main(), whatever process started us. Descriptors 0, 1 and 2 that are closed become
 * /dev/null: else the first file opened is "stderr", and a message ends up in it. A file above the
 * limit (RLIMIT_FSIZE) is EFBIG, not a signal. Where there is no /dev/null they become empty files
 * in memory. Exits with 1 and a line when no descriptor can be had.
 */
void io_process_init(void);

/* Whether accept(2) failed with err (an errno) for want of descriptors or memory: the caller stays
 * at the door, so that who polls for it at once finds it again and again. */
bool io_accept_lacks(int err);

#endif
