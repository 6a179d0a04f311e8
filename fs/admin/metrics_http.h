/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_METRICS_HTTP_H
#define KVFS_FS_METRICS_HTTP_H
/*
 * The metrics endpoint: GET /metrics, as Prometheus reads it, by libmicrohttpd in a thread of its
 * own ("kv-metrics"). Opened early, so that a wrong address is said before anything is served;
 * started once the node can be asked. At most METRICS_HTTP_CONNECTIONS at a time, each idle for
 * metrics_http_limits.idle_s at most, and with request_s for a whole request: who sends a byte now
 * and then doesn't keep a place.
 */
#include "common/metrics.h"
#include "fs/node/options.h"

#define METRICS_HTTP_CONNECTIONS 16
#define METRICS_HTTP_PORTS                                                                         \
	32 /* without metrics=: the first free one from OPTIONS_METRICS_PORT on */

struct metrics_http;

struct metrics_http_limits {
	unsigned idle_s, request_s; /* request_s: from the one before, or the connection's begin */
};
extern const struct metrics_http_limits metrics_http_usual;

/*
 * Binds as o says; *ret_h NULL when it says off. Without a given address the next free port is
 * taken, and a machine where none can be had is not an error: *ret_h NULL, why filled. -errno with
 * why: a given address that can't be had. Blocks while a host name is resolved.
 */
int metrics_http_open(const struct options_metrics *o, struct metrics_http **ret_h,
		      char why[OPTIONS_WHY_BYTES]);

/* Serves m's snapshots from now on. limits: metrics_http_usual but in tests. -errno: no thread, no
 * memory. */
int metrics_http_start(struct metrics_http *h, struct metrics *m,
		       const struct metrics_http_limits *limits);

const char *metrics_http_address(const struct metrics_http *h); /* HOST:PORT, numeric */

void metrics_http_stop(struct metrics_http *h); /* joins the thread; NULL is fine */

#endif
