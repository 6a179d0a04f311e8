/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_ADDR_H
#define KVFS_REPLICATION_ADDR_H
/* ADDR of mirror= and listen=: HOST:PORT, verbs:HOST:PORT, tcp:HOST:PORT,
 * [V6]:PORT, shm:SOCKET. Pure. */
#include <stddef.h>
#include <stdint.h>

enum addr_kind { ADDR_AUTO, ADDR_VERBS, ADDR_TCP, ADDR_SHM };

struct addr {
	enum addr_kind kind;
	char host[256];   /* or the socket's path */
	uint16_t port;    /* 0 for shm */
};

/* -EINVAL with *ret_why a static text naming what is wrong. */
int addr_parse(const char *text, struct addr *ret_addr, const char **ret_why);
void addr_format(const struct addr *a, char *out, size_t cap);

#endif
