/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_LOGDEV_MEM_H
#define KVFS_LOG_LOGDEV_MEM_H
/*
 * A model of the log medium for tests: pools in this process's memory, known by dirfd (any number,
 * -1 too) and name. They outlive close, so that a crash can be played by closing and opening again;
 * with logdev_fault.h around it the stored bytes are those that were durable at the crash.
 * Stored bytes above used() are kept over a rewind, as on a real medium. Table calls: any thread.
 */
#include "log/logdev.h"

extern const struct logdev_ops logdev_mem_ops;

/* The stored bytes of a pool, to damage them; NULL when there is none. Not while others use it. */
uint8_t *logdev_mem_bytes(int dirfd, const char *name);

/* Sets used() of a closed pool as a medium that lost or kept bytes would: at most its capacity. */
void logdev_mem_set_used(int dirfd, const char *name, uint64_t used);

/* Forgets all pools. None may be open. */
void logdev_mem_reset(void);

#endif
