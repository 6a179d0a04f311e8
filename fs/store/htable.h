/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_HTABLE_H
#define KVFS_FS_HTABLE_H
/*
 * An intrusive hash table that grows by linear hashing: each insertion splits at most one bucket,
 * so there is no pause to rehash, no helper thread and no grace period, and a member costs 16 bytes
 * (its link and one bucket). Used instead of urcu's rculfhash because every user of the store holds
 * its mutex anyway, and rculfhash's 32 to 48 bytes a member do not fit the store's 256 bytes a key.
 * It never shrinks.
 *
 * Threads: the owner's lock. Nothing here fails: when memory for buckets is short, chains grow
 * longer.
 */
#include <stddef.h>
#include <stdint.h>

struct htable_node {
	struct htable_node *next;
};

#define HTABLE_PARTS_MAX 40
#define HTABLE_FIRST_BUCKETS 1024 /* a power of two */

struct htable {
	uint64_t (*hash)(const struct htable_node *n);
	size_t count, buckets;
	/* part k > 0 has as many buckets as all before it */
	struct htable_node **parts[HTABLE_PARTS_MAX];
};

/* -ENOMEM */
int htable_init(struct htable *h, uint64_t (*hash)(const struct htable_node *n));
/* Makes buckets for count members at once, before the first is added (a hint; no error if memory is
 * short). */
void htable_reserve(struct htable *h, size_t count);
void htable_fini(struct htable *h); /* the members are the owner's */

/* Head of the chain that holds members of this hash (others too). */
struct htable_node *htable_chain(const struct htable *h, uint64_t hash);
void htable_add(struct htable *h, struct htable_node *n);
void htable_del(struct htable *h, struct htable_node *n); /* must be a member */

/* Buckets for walks: 0 .. count - 1, each with its chain. No changes while walking. */
static inline size_t htable_bucket_count(const struct htable *h)
{
	return h->buckets;
}
struct htable_node *htable_bucket(const struct htable *h, size_t i);

#endif
