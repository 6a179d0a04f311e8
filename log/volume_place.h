/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_VOLUME_PLACE_H
#define KVFS_LOG_VOLUME_PLACE_H
/*
 * Where a volume lies: a directory, or a block device of persistent memory (/dev/pmemN) with a DAX
 * file system whose top directory is the volume. Such a file system is mounted privately: at no
 * path, only as a descriptor of this process. It ends with the last descriptor, so also with a
 * killed process; nothing is left to be unmounted. Whoever holds struct volume_place owns the
 * mount. Several processes may hold one each (they share the file system); the volume's lock keeps
 * them apart.
 *
 * And what a log pool can lie on beside a file: a device-DAX (/dev/daxX.Y).
 *
 * Any thread. 0 or -errno, with a sentence in *ret_why (common/because.h).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct volume_place {
	int dirfd;   /* the volume's directory */
	int mountfd; /* the private mount; -1: an ordinary directory */
};
#define VOLUME_PLACE_NONE { .dirfd = -1, .mountfd = -1 }

/*
 * Opens path's directory. -ENOENT, -ENOTDIR (also a block device without DAX), -EACCES, -ENODATA
 * (the device holds no file system), -ENODEV (mounted, but without DAX), errors of mounting.
 */
int volume_place_open(const char *path, struct volume_place *ret_place, const char **ret_why);
void volume_place_close(struct volume_place *p); /* also one that was never opened */

bool volume_place_is_block(const char *path);

/* True for a block device whose driver offers DAX (/dev/pmemN in mode fsdax). */
bool volume_block_has_dax(const char *path);

/*
 * The private mount of a block device's file system, ext4 or xfs; with dax, -ENODEV when files
 * there would not be DAX. Needs CAP_SYS_ADMIN (-EPERM).
 */
int volume_block_mount(const char *path, bool dax, struct volume_place *ret_place,
		       const char **ret_why);

/* True when stores to a mapping of fd (read-write) are durable by cache flushes: a file that statx
 * says is DAX and that can be mapped with MAP_SYNC, or a device-DAX. */
bool volume_fd_is_dax(int fd);

/* A device-DAX by descriptor: its size, and the alignment of mappings. False: it is none. */
bool volume_devdax(int fd, uint64_t *ret_bytes, uint64_t *ret_align);

#endif
