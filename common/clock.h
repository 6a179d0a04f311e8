/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_COMMON_CLOCK_H
#define KVFS_COMMON_CLOCK_H
/*
 * Time. clock_mono_ns for deadlines and durations, clock_real_ns for timestamps that users see.
 * Any thread.
 */
#include <stdint.h>

#define NSEC_PER_SEC 1000000000ULL
#define NSEC_PER_MSEC 1000000ULL
#define NSEC_PER_USEC 1000ULL

uint64_t clock_mono_ns(void);
uint64_t clock_real_ns(void); /* since 1970; never goes back within a process */

#endif
