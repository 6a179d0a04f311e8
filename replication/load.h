/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_LOAD_H
#define KVFS_REPLICATION_LOAD_H
/* A mirror's load, decoded (load_format.h has the meaning of each member). Pure; any thread. */
#include "replication/load_format.h"

#define LOAD_PERMILLE_MAX 1000000U /* a thousand processors */

struct load {
	uint64_t epoch, sequence, apply_lag;
	uint32_t node_id, cpu_permille, log_permille, ring_permille, period_ms;
};

void load_encode(const struct load *l, void *out); /* sizeof(struct repl_load) bytes */

/* -EBADMSG: not one, torn, or its values can't be. */
int load_decode(const void *in, size_t len, struct load *ret_load);

#endif
