/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_LOAD_FORMAT_H
#define KVFS_REPLICATION_LOAD_FORMAT_H
/*
 * A mirror's load as it tells its primary a few times a second. Nothing depends on its arrival: the
 * newest replaces all before it, and a lost one is not sent again. All integers are big-endian, no
 * implicit padding. It fits one datagram of every transport and one slot of the primary's window.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define LOAD_MAGIC 0x4B564C44U /* "KVLD" */
#define LOAD_VERSION 1

struct repl_load {
	uint32_t magic;
	uint16_t version;
	uint16_t zero;
	uint64_t epoch;         /* of the session */
	uint64_t sequence;      /* from 1, rises with each of a session; some never arrive */
	uint64_t apply_lag;     /* most records received and not executed since the one before */
	uint32_t node_id;       /* the mirror's */
	uint32_t cpu_permille;  /* of one processor, the mirror's process: may exceed 1000 */
	uint32_t log_permille;  /* of the log's active pool in use */
	uint32_t ring_permille; /* most of the ring in use since the one before */
	uint32_t period_ms;     /* the next comes about then */
	uint32_t checksum;      /* CRC32C with this field zero */
	uint32_t zero2[2];
} __attribute__((packed));
static_assert(sizeof(struct repl_load) == 64, "load");
static_assert(offsetof(struct repl_load, epoch) == 8, "load");
static_assert(offsetof(struct repl_load, node_id) == 32, "load");
static_assert(offsetof(struct repl_load, checksum) == 52, "load");

#endif
