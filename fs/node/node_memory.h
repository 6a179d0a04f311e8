/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_NODE_MEMORY_H
#define KVFS_FS_NODE_MEMORY_H
/* A node's memory; private to node*.c, but for what a test asks. */
#include "fs/node/node.h"

/*
 * arena_bytes and inodes_max, from the options and what there is. -EINVAL; -ENOMEM: more than there
 * is, or more than may be locked where an address insists on RDMA; with why filled.
 */
int node_memory_size(struct node *n, char *why);

/* The region pool's size for arena_bytes. */
uint64_t node_memory_pool_bytes(const struct node *n);

/*
 * Most that RDMA would lock: the arena and the lanes' stages of a primary with mirrors that it can
 * reach so, the ring of a mirror; 0: no address allows it. insists: one allows nothing else. Pure.
 */
uint64_t node_memory_locked_bytes(const struct node *n, bool *ret_insists);

/* Pool, slab and store; spare: with addresses beyond the pool's size, and no limit yet. -ENOMEM,
 * errors of the memory's back-end, with why filled. Blocks: a GPU's driver is loaded, an RDMA
 * device opened. */
int node_memory_open(struct node *n, bool spare, char *why);
void node_memory_close(struct node *n);

/* An empty store on the node's slab, without a limit of inodes: what was acknowledged once is
 * taken, at recovery and on a mirror. inodes= is for what a primary is asked from then on. NULL: no
 * memory. */
struct store *node_memory_store(struct node *n);

/* Values may take the arena (a mirror's: a little more), or what addresses there are: while a state
 * is loaded, and for what a mirror must follow. Any thread. */
void node_memory_limit(struct node *n, bool on);

/* Says once what an RDMA device refuses to register. kv-ckpt, now and then. */
void node_memory_attend(struct node *n);

#endif
