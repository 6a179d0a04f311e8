/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_COMMON_CRC32C_H
#define KVFS_COMMON_CRC32C_H
/* CRC32C (Castagnoli, RFC 3720 appendix B.4), by ISA-L. Pure. */
#include <stddef.h>
#include <stdint.h>

/* Checksum of len bytes, going on from crc (0 to begin): crc32c(crc32c(0, a), b) is that of a
 * followed by b. */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);

#endif
