/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_FUSE_FALLOCATE_H
#define KVFS_FS_FUSE_FALLOCATE_H
/* fallocate(2) of much takes a while: see fuse_fallocate.c. */
#include <stdbool.h>
#include <stdint.h>

#define FS_RESERVE_BYTES (16ULL << 20) /* of one record: 40 ms of the store's lock, if cold */

/* Whether it is done in pieces, and is no work for a thread that others wait for. */
bool fs_fallocate_is_long(uint32_t mode, uint64_t length);

#endif
