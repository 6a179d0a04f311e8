/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_METRICS_JSON_H
#define KVFS_FS_METRICS_JSON_H
/* A snapshot as JSON, for the control socket's "metrics" and kvfs top. Times stay in
 * nanoseconds. */
#include "common/metrics.h"

#include <jansson.h>

/*
 * An array of one object for each series: "name", "labels" (as in the text format), "values" (of
 * the labels), and "value", or for a histogram "count", "sum" and "buckets": [upper bound, values]
 * of those that have any, the bound -1 for the last. NULL: no memory.
 */
json_t *metrics_json(const struct metrics_snapshot *snap);

#endif
