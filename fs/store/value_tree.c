/* SPDX-License-Identifier: Apache-2.0 */
/* The radix tree of value_tree.h. Height h holds indexes below 512^h; it never shrinks but by being
 * emptied. */
#include "fs/store/value_tree.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FANOUT_SHIFT 9
#define FANOUT (1U << FANOUT_SHIFT)
#define NODE_MIN_CHILDREN 4U

struct value_node {
	uint16_t count;    /* children that are not NULL */
	uint16_t children; /* length of the array */
	void *child[];     /* struct value_node, at the lowest level struct value_chunk */
};

static unsigned child_index(uint64_t idx, unsigned level)
{
	return (unsigned)(idx >> (level * FANOUT_SHIFT)) & (FANOUT - 1);
}

static bool fits(uint8_t height, uint64_t idx)
{
	return idx >> (height * FANOUT_SHIFT) == 0;
}

/* Makes *link a node with a place for child i. */
static int node_ensure(struct value_node **link, unsigned i)
{
	struct value_node *node = *link;
	unsigned old = node ? node->children : 0, want = old ? old : NODE_MIN_CHILDREN;

	if (i < old)
		return 0;
	while (want <= i)
		want *= 2;
	node = realloc(node, sizeof(*node) + want * sizeof(node->child[0]));
	if (!node)
		return -ENOMEM;
	if (!*link)
		node->count = 0;
	memset(&node->child[old], 0, (want - old) * sizeof(node->child[0]));
	node->children = (uint16_t)want;
	*link = node;
	return 0;
}

/* One level more above the root. */
static int height_grow(struct value_node **root, uint8_t *height)
{
	struct value_node *top = NULL;

	if (*root) {
		if (node_ensure(&top, 0) < 0)
			return -ENOMEM;
		top->child[0] = *root;
		top->count = 1;
		*root = top;
	}
	++*height;
	return 0;
}

int value_tree_reserve(struct value_node **root, uint8_t *height, uint64_t idx)
{
	struct value_node **link = root;

	while (!fits(*height, idx))
		if (height_grow(root, height) < 0)
			return -ENOMEM;
	assert(*height <= VALUE_TREE_HEIGHT_MAX);
	for (unsigned level = *height; level-- > 0;) {
		unsigned i = child_index(idx, level);

		if (node_ensure(link, i) < 0)
			return -ENOMEM;
		if (level == 0)
			break;
		if (!(*link)->child[i]) {
			struct value_node *node = NULL;

			if (node_ensure(&node, child_index(idx, level - 1)) < 0)
				return -ENOMEM;
			(*link)->child[i] = node;
			(*link)->count++;
		}
		link = (struct value_node **)&(*link)->child[i];
	}
	return 0;
}

static void node_prune(struct value_node **link, unsigned level, uint64_t idx)
{
	struct value_node *node = *link;
	unsigned i = child_index(idx, level);

	if (!node)
		return;
	if (level > 0 && i < node->children && node->child[i]) {
		node_prune((struct value_node **)&node->child[i], level - 1, idx);
		if (!node->child[i])
			node->count--;
	}
	if (node->count == 0) {
		free(node);
		*link = NULL;
	}
}

void value_tree_prune(struct value_node **root, uint8_t height, uint64_t idx)
{
	if (height > 0 && fits(height, idx))
		node_prune(root, height - 1U, idx);
}

/* The leaf node of idx, NULL when there is none. */
static struct value_node *leaf_of(const struct value_node *node, uint8_t height, uint64_t idx)
{
	assert(height > 0);
	if (!fits(height, idx))
		return NULL;
	for (unsigned level = height - 1U; node && level > 0; level--) {
		unsigned i = child_index(idx, level);

		node = i < node->children ? node->child[i] : NULL;
	}
	if (!node || child_index(idx, 0) >= node->children)
		return NULL;
	return (struct value_node *)(uintptr_t)node;
}

void value_tree_insert(struct value_node *root, uint8_t height, struct value_chunk *c)
{
	struct value_node *leaf = leaf_of(root, height, c->idx);

	assert(leaf && !leaf->child[child_index(c->idx, 0)]);
	leaf->child[child_index(c->idx, 0)] = c;
	leaf->count++;
}

void value_tree_remove(struct value_node **root, uint8_t height, uint64_t idx)
{
	struct value_node *leaf = leaf_of(*root, height, idx);

	assert(leaf && leaf->child[child_index(idx, 0)]);
	leaf->child[child_index(idx, 0)] = NULL;
	leaf->count--;
	node_prune(root, height - 1U, idx);
}

struct value_chunk *value_tree_find(const struct value_node *root, uint8_t height, uint64_t idx)
{
	const struct value_node *leaf = leaf_of(root, height, idx);

	return leaf ? leaf->child[child_index(idx, 0)] : NULL;
}

static struct value_chunk *node_next(const struct value_node *node, unsigned level, uint64_t idx)
{
	unsigned first = child_index(idx, level);

	for (unsigned i = first; i < node->children; i++) {
		struct value_chunk *c;

		if (!node->child[i])
			continue;
		if (level == 0)
			return node->child[i];
		c = node_next(node->child[i], level - 1, i == first ? idx : 0);
		if (c)
			return c;
	}
	return NULL;
}

struct value_chunk *value_tree_next(const struct value_node *root, uint8_t height, uint64_t idx)
{
	if (!root || !fits(height, idx))
		return NULL;
	return node_next(root, height - 1U, idx);
}
