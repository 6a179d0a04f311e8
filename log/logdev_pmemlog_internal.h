/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_LOGDEV_PMEMLOG_INTERNAL_H
#define KVFS_LOG_LOGDEV_PMEMLOG_INTERNAL_H
/* What logdev_pmemlog.c (pools in use) and logdev_pmemlog_create.c share. No other file knows
 * libpmemlog. */
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* logdev_pmemlog.c */
int pool_path(int dirfd, const char *name, char path[PATH_MAX]);

/*
 * Shutdown-state tracking asks the NVDIMM for its dirty-shutdown count, which virtual machines
 * lack; pools made with it can't be opened there. The setting is the process's, so it is made
 * before each create and open.
 */
void pool_sds_off(void);

bool pool_on_tmpfs(int fd);

/*
 * On tmpfs msync(2) does nothing, but its two system calls are three quarters of an append. The
 * library's only switch is a variable of the environment, for the whole process and read when the
 * first pool is opened: a pool opened later on another filesystem is then fsynced by us after each
 * append (must_sync).
 */
void pool_msync_off_on_tmpfs(int dirfd);

/* logdev_pmemlog_create.c: logdev_ops' create. */
int pmemlog_dev_create(int dirfd, const char *name, uint64_t size_bytes);

#endif
