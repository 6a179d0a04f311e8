/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_RESOLVE_H
#define KVFS_REPLICATION_RESOLVE_H
/* The addresses behind HOST:PORT. Any thread. The caller frees the list: freeaddrinfo(3). */
#include "replication/transport/addr.h"

#include <netdb.h>
#include <stdatomic.h>

/* To connect to. Takes as long as the resolver does; *cancel (NULL: nothing) ends the wait within
 * 100 ms. -ENXIO: the name can't be resolved; -ECANCELED, -ENOMEM. */
int resolve_host(const struct addr *a, const atomic_bool *cancel, struct addrinfo **ret_list);

/* To listen at. May block on the resolver. -ENXIO. */
int resolve_listen(const struct addr *a, struct addrinfo **ret_list);

#endif
