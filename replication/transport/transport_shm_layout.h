/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_TRANSPORT_SHM_LAYOUT_H
#define KVFS_REPLICATION_TRANSPORT_SHM_LAYOUT_H
/*
 * The memory that the two ends of the shm transport share. Each end makes one inbox (a memfd) and
 * maps the other's:
 *
 *   inbox := head (4096) | ring of lane 0 | ring of lane 1 | … | window
 *
 * In an inbox the owner writes sleeping and tail, the peer everything else; both can write all of
 * it, so neither believes an index, a place or a length that it reads here. What must be right is
 * kept in private memory. One machine, one build: native byte order.
 */
#include "replication/transport/transport.h"

#include <assert.h>
#include <stdatomic.h>

#define SHM_MAGIC 0x6B765348U /* "kvSH" */
#define SHM_FORMAT_VERSION 2U
#define SHM_MAGIC_LANE 0x6B765352U /* "kvSR" */
#define SHM_LINE 64
#define SHM_PAGE 4096U

struct shm_head {
	_Alignas(SHM_LINE) _Atomic uint32_t sleeping; /* owner sleeps on this word (futex) */
	_Alignas(SHM_LINE) _Atomic uint32_t closed;   /* peer closed its endpoint */
};
static_assert(sizeof(struct shm_head) <= SHM_PAGE, "layout");

struct shm_entry {
	_Atomic uint64_t off;
	_Atomic uint64_t len_imm; /* len in the upper half */
};
static_assert(sizeof(struct shm_entry) == 16, "layout");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "shared between processes");

/* Notices to the inbox's owner on one lane; indices count from when it was made, modulo 2^32. */
struct shm_ring {
	_Alignas(SHM_LINE) _Atomic uint32_t head;    /* peer: entries published */
	_Alignas(SHM_LINE) _Atomic uint32_t tail;    /* owner: entries taken, that is credits */
	_Alignas(SHM_LINE) _Atomic uint32_t waiting; /* peer: wake me when tail moves */
	_Atomic uint32_t down;                       /* peer: nothing more comes here */
	_Alignas(SHM_LINE) struct shm_entry entry[TRANSPORT_CREDITS];
};
static_assert((TRANSPORT_CREDITS & (TRANSPORT_CREDITS - 1)) == 0, "index by mask");

static inline struct shm_ring *shm_ring_at(uint8_t *inbox, unsigned lane)
{
	return (struct shm_ring *)(inbox + SHM_PAGE) + lane;
}

static inline uint64_t shm_window_off(unsigned lanes)
{
	uint64_t end = SHM_PAGE + lanes * sizeof(struct shm_ring);

	return (end + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE;
}

static inline uint64_t shm_inbox_bytes(unsigned lanes, uint64_t window_bytes)
{
	return shm_window_off(lanes) + window_bytes;
}

/* Set-up, on the control socket. Primary: hello; mirror: hello with inbox and life line; primary:
 * hello with inbox; mirror: hello. lanes 0: given up. */
struct shm_hello {
	uint32_t magic;
	uint32_t version;
	uint32_t lanes;
	uint32_t zero;
	uint64_t window_bytes;
};
static_assert(sizeof(struct shm_hello) == 24, "layout");

/* A lane is made anew: what its sender writes of the lane's two rings is zero again. On the control
 * socket; primary, then mirror. */
struct shm_lane_hello {
	uint32_t magic;
	uint32_t version;
	uint32_t lane;
	uint32_t generation;
};
static_assert(sizeof(struct shm_lane_hello) == 16, "layout");

#endif
