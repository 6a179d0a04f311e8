/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_COMMON_UNITS_H
#define KVFS_COMMON_UNITS_H
/* Sizes as people write and read them: powers of 1024, K M G T with or without iB or B. Pure. */
#include <stddef.h>
#include <stdint.h>

/* "64M", "1.5GiB", "4096". -EINVAL, -ERANGE. */
int units_parse_size(const char *text, uint64_t *ret_bytes);

/* Whole decimal number in [min, max], nothing else. -EINVAL, -ERANGE. */
int units_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value);

/* "1.50 GiB", "512 B". Returns out. */
#define UNITS_TEXT_BYTES 24
char *units_format_size(uint64_t bytes, char out[UNITS_TEXT_BYTES]);

#endif
