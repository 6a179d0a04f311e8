/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_METRICS_HTTP_INTERNAL_H
#define KVFS_FS_METRICS_HTTP_INTERNAL_H
/* The metrics endpoint's socket, apart from what is said over it. */
#include "fs/node/options.h"

/* A listening socket at host and port. -errno with why: -EADDRINUSE, -EADDRNOTAVAIL, … Blocks while
 * a host name is resolved. */
int metrics_http_listen(const char *host, unsigned port, int *ret_fd, char why[OPTIONS_WHY_BYTES]);

#endif
