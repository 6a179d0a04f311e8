/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_DIAL_H
#define KVFS_REPLICATION_DIAL_H
/* Control connections: TCP for tcp:, verbs: and bare addresses, a Unix socket for shm:. Any
 * thread. */
#include "replication/repl_format.h"
#include "replication/transport/addr.h"

#include <stdatomic.h>
#include <stddef.h>

/*
 * Connects within the deadline (name look-up not counted: the resolver has its own). *cancel ends
 * either wait within 100 ms. -ETIMEDOUT, -ECANCELED, -ECONNREFUSED, -EHOSTUNREACH, -ENXIO (the
 * host's name can't be resolved), and connect(2)'s others.
 */
int dial_connect(const struct addr *a, uint64_t deadline_ns, const atomic_bool *cancel,
		 int *ret_fd);

/* What dial_connect's error says, a static string. */
const char *dial_error(int err);

/* A listening, non-blocking socket. A stale socket file is replaced, a live one is -EADDRINUSE.
 * *ret_port is 0 for shm. -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -ENAMETOOLONG, and others of
 * bind(2). */
int dial_listen(const struct addr *a, int *ret_fd, uint16_t *ret_port);

/* The transport an address asks for; an address without a prefix takes tcp. */
enum repl_transport dial_transport(const struct addr *a);

/* The interface that has a connected socket's own address, IF_NAMESIZE bytes; "": a Unix socket,
 * or it can't be told. */
void dial_interface(int fd, char *out);

/* The peer of a connected socket, for messages. */
void dial_peer_text(int fd, char *out, size_t cap);

#endif
