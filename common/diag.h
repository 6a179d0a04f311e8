/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_COMMON_DIAG_H
#define KVFS_COMMON_DIAG_H
/*
 * Messages for people: one line each, "kvfs: text" on stderr; in a daemon also to the journal
 * (syslog), with the priority. Below main and the FUSE boundary nothing logs above debug. Any
 * thread; never fails.
 */
#include <stdbool.h>

enum diag_level { DIAG_ERROR, DIAG_WARN, DIAG_INFO, DIAG_DEBUG };

/* program: the prefix ("kvfs", "mkfs.kvfs"); a string that stays. Default level: info. */
void diag_init(const char *program);
void diag_set_level(enum diag_level level);
void diag_to_syslog(bool on); /* a daemon whose stderr is gone */

void diag_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void diag_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void diag_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void diag_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
