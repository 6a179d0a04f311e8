/* SPDX-License-Identifier: Apache-2.0 */
/* Linear hashing: see htable.h. */
#include "fs/store/htable.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Part k > 0 begins at bucket HTABLE_FIRST_BUCKETS << (k - 1). */
static unsigned part_of(size_t i)
{
	if (i < HTABLE_FIRST_BUCKETS)
		return 0;
	return 64 - (unsigned)__builtin_clzl(i / HTABLE_FIRST_BUCKETS);
}

static size_t part_first(unsigned part)
{
	return part ? (size_t)HTABLE_FIRST_BUCKETS << (part - 1) : 0;
}

static size_t part_buckets(unsigned part)
{
	return part ? part_first(part) : HTABLE_FIRST_BUCKETS;
}

static struct htable_node **bucket_at(const struct htable *h, size_t i)
{
	unsigned part = part_of(i);

	return &h->parts[part][i - part_first(part)];
}

/* Buckets below the split point are addressed by one more bit of the hash than those
 * not yet split. */
static size_t index_of(const struct htable *h, uint64_t hash)
{
	size_t base = (size_t)1 << (63 - __builtin_clzl(h->buckets));
	size_t i = hash & (base * 2 - 1);

	return i < h->buckets ? i : i - base;
}

int htable_init(struct htable *h, uint64_t (*hash)(const struct htable_node *n))
{
	memset(h, 0, sizeof(*h));
	h->parts[0] = calloc(HTABLE_FIRST_BUCKETS, sizeof(struct htable_node *));
	if (!h->parts[0])
		return -ENOMEM;
	h->hash = hash;
	h->buckets = HTABLE_FIRST_BUCKETS;
	return 0;
}

void htable_fini(struct htable *h)
{
	for (unsigned k = 0; k < HTABLE_PARTS_MAX; k++)
		free(h->parts[k]);
	memset(h, 0, sizeof(*h));
}

struct htable_node *htable_chain(const struct htable *h, uint64_t hash)
{
	return *bucket_at(h, index_of(h, hash));
}

struct htable_node *htable_bucket(const struct htable *h, size_t i)
{
	return *bucket_at(h, i);
}

/* Memory for bucket i. */
static int bucket_ensure(struct htable *h, size_t i)
{
	unsigned part = part_of(i);

	if (part >= HTABLE_PARTS_MAX)
		return -ENOMEM;
	if (!h->parts[part])
		h->parts[part] = calloc(part_buckets(part), sizeof(struct htable_node *));
	return h->parts[part] ? 0 : -ENOMEM;
}

void htable_reserve(struct htable *h, size_t count)
{
	for (unsigned k = 1; h->count == 0 && k < HTABLE_PARTS_MAX && h->buckets < count; k++) {
		if (bucket_ensure(h, part_first(k)))
			return;
		h->buckets = part_first(k) + part_buckets(k);
	}
	if (h->count == 0 && h->buckets > count && count > HTABLE_FIRST_BUCKETS)
		h->buckets = count;
}

/* Makes bucket number h->buckets and moves to it what belongs there from its one source. */
static void split_one(struct htable *h)
{
	size_t added = h->buckets;
	size_t base = (size_t)1 << (63 - __builtin_clzl(added));
	struct htable_node **from, **to;

	if (bucket_ensure(h, added))
		return;
	h->buckets++;
	from = bucket_at(h, added - base);
	to = bucket_at(h, added);
	while (*from) {
		struct htable_node *n = *from;

		if ((h->hash(n) & (base * 2 - 1)) == added) {
			*from = n->next;
			n->next = *to;
			*to = n;
		} else {
			from = &n->next;
		}
	}
}

void htable_add(struct htable *h, struct htable_node *n)
{
	struct htable_node **b;

	if (h->count >= h->buckets)
		split_one(h);
	b = bucket_at(h, index_of(h, h->hash(n)));
	n->next = *b;
	*b = n;
	h->count++;
}

void htable_del(struct htable *h, struct htable_node *n)
{
	struct htable_node **b = bucket_at(h, index_of(h, h->hash(n)));

	while (*b != n) {
		assert(*b);
		b = &(*b)->next;
	}
	*b = n->next;
	n->next = NULL;
	h->count--;
}
