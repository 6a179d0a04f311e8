/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_VALUE_TREE_H
#define KVFS_FS_VALUE_TREE_H
/*
 * Radix tree of a value's chunks by index: 512 children a node, but a node's array is only as long
 * as its highest child needs, so that a value of two chunks doesn't pay for 512. Private to the
 * value module.
 *
 * Threads: the store's lock.
 */
#include "fs/store/value.h"

#define VALUE_TREE_HEIGHT_MAX 3 /* 2^27 chunks: VALUE_SIZE_MAX */

/* Makes the nodes down to idx, so that value_tree_insert can't fail. -ENOMEM; what was made stays
 * until value_tree_prune. */
int value_tree_reserve(struct value_node **root, uint8_t *height, uint64_t idx);

/* Frees the nodes on the way to idx that hold nothing. */
void value_tree_prune(struct value_node **root, uint8_t height, uint64_t idx);

void value_tree_insert(struct value_node *root, uint8_t height, struct value_chunk *c);
void value_tree_remove(struct value_node **root, uint8_t height, uint64_t idx);

/* NULL: none. */
struct value_chunk *value_tree_find(const struct value_node *root, uint8_t height, uint64_t idx);

/* The chunk with the lowest index >= idx. NULL: none. */
struct value_chunk *value_tree_next(const struct value_node *root, uint8_t height, uint64_t idx);

#endif
