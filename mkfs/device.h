/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_MKFS_DEVICE_H
#define KVFS_MKFS_DEVICE_H
/*
 * Devices that a volume is made on: a /dev/pmemN, which gets a file system first, and device-DAXes
 * for the log pools. Nothing here asks for -f: what a device holds is told, the caller decides. All
 * block. 0 or -errno with a sentence in *ret_why (common/because.h). One thread.
 */
#include "log/volume_place.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Looks at a block device: ret_bytes its size, ret_holds (cap bytes) what it holds, "" where that
 * is surely nothing (storage_signature).
 * -ENOTDIR not persistent memory with DAX, -EBUSY in use, errors of open.
 */
int device_block_inspect(const char *path, uint64_t *ret_bytes, char *ret_holds, size_t cap,
			 const char **ret_why);

/* What is free in the file system that device_block_make makes on so many bytes; a little less than
 * true. */
uint64_t device_block_room(uint64_t bytes);

/* Makes ext4 there, whatever it held, mounts it privately with DAX. -ENOENT: no mke2fs. */
int device_block_make(const char *path, struct volume_place *ret_place, const char **ret_why);

/* Takes the signature away, so that nothing looks like a file system. Unmounted before. Best
 * effort. */
void device_block_wipe(const char *path);

/*
 * Looks at a device-DAX: its size, and whether its beginning holds anything (*ret_holds is a word
 * for it, "" for none). -ENODEV: no device-DAX; -EBUSY: a pool that is open; errors of open.
 */
int device_dax_inspect(const char *path, uint64_t *ret_bytes, const char **ret_holds, const char
		       **ret_why);

#endif
