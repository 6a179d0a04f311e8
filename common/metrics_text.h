/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_COMMON_METRICS_TEXT_H
#define KVFS_COMMON_METRICS_TEXT_H
/* Snapshots as Prometheus reads them: text exposition format 0.0.4. Pure. */
#include "common/metrics.h"

#define METRICS_TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* *ret_text: the caller's, by free(). -ENOMEM. */
int metrics_text(const struct metrics_snapshot *snap, char **ret_text, size_t *ret_len);

#endif
