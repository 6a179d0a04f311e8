/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_RECORD_INTERNAL_H
#define KVFS_LOG_RECORD_INTERNAL_H
/* What record.c and record_decode.c share. */
#include <stddef.h>
#include <stdint.h>

#define RECORD_OFFSET_MAX (1ULL << 43) /* no value reaches beyond this */
#define RECORD_RENAME_EXCHANGE 2U      /* RENAME_EXCHANGE of renameat2(2) */

/* Bytes of opcode's fixed part; 0 also for what is no opcode. */
size_t record_fixed_bytes(unsigned opcode);

#endif
