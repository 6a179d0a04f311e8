/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_MKFS_STORAGE_H
#define KVFS_MKFS_STORAGE_H
/* What lies under a directory or in a device: file system, DAX, signature, free memory. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Type and source of the file system that dirfd is on, from /proc/self/mountinfo; "unknown". */
void storage_fs_name(int dirfd, char *type, size_t type_cap, char *source, size_t source_cap);

/* Whether files made in the directory are DAX, by making an unnamed one. False when unknown. */
bool storage_new_files_are_dax(int dirfd);

bool storage_is_tmpfs(int dirfd);

/*
 * What libblkid finds in path: the name of a file system, partition table or other signature. ""
 * only where it is sure that there is none: what it can't tell, since there are several or path
 * can't be read, is named as such.
 */
void storage_signature(const char *path, char *ret_holds, size_t cap);

/* MemAvailable; UINT64_MAX when it can't be read. */
uint64_t storage_memory_available(void);

#endif
