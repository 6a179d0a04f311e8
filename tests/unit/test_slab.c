/* SPDX-License-Identifier: Apache-2.0 */
/* The slab allocator: classes, reuse of memory across classes, a full arena, threads. */
#include "fs/store/slab.h"

#include "tests/unit/unit_main.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS_MAX (1U << 20)

static struct region_pool *pool;
static struct slab *slab;
static struct slot **slots;
static size_t slots_used;

static void open_slab(uint64_t arena_bytes)
{
	ck_assert_int_eq(region_pool_create(&region_memfd_ops, arena_bytes, 0, &pool), 0);
	slab = slab_create(pool);
	ck_assert_ptr_nonnull(slab);
	slots = calloc(SLOTS_MAX, sizeof(*slots));
	slots_used = 0;
}

static void close_slab(void)
{
	slab_destroy(slab);
	slab_destroy(NULL);
	region_pool_destroy(pool);
	free(slots);
}

/* Allocates len bytes until the arena is full; the number. */
static size_t fill(size_t len)
{
	size_t n = 0;

	while (slots_used < SLOTS_MAX && slab_alloc(slab, len, &slots[slots_used]) == 0) {
		memset(slots[slots_used]->data, (int)n, len);
		slots_used++;
		n++;
	}
	return n;
}

static void drop(size_t every)
{
	size_t kept = 0;

	for (size_t i = 0; i < slots_used; i++) {
		if (i % every == 0)
			slot_put(slab, slots[i]);
		else
			slots[kept++] = slots[i];
	}
	slots_used = kept;
}

static struct slab_stats stats(void)
{
	struct slab_stats st;

	slab_stats(slab, &st);
	return st;
}

START_TEST(has_classes_that_waste_little)
{
	uint64_t wanted = 0, got = 0;
	size_t classes = 1;

	ck_assert_uint_eq(slab_class_bytes(1), 64);
	ck_assert_uint_eq(slab_class_bytes(64), 64);
	ck_assert_uint_eq(slab_class_bytes(65), 80);
	ck_assert_uint_eq(slab_class_bytes(SLAB_SLOT_MAX), SLAB_SLOT_MAX);
	for (size_t len = 2; len <= SLAB_SLOT_MAX; len++) {
		size_t cap = slab_class_bytes(len);

		if (cap < len || (len > 64 && cap > len + len / 4 + 1))
			ck_abort_msg("%zu bytes get %zu", len, cap);
		classes += cap != slab_class_bytes(len - 1);
		if (len >= 1024) {
			wanted += len;
			got += cap;
		}
	}
	ck_assert_uint_eq(classes, 41);
	ck_assert_uint_lt((got - wanted) * 1000, wanted * 125); /* mean waste under 12.5 % */
}
END_TEST

START_TEST(gives_slots_that_do_not_overlap)
{
	open_slab(128ULL << 20);
	for (size_t len = 1; len <= SLAB_SLOT_MAX; len += 1 + len / 7) {
		for (int i = 0; i < 3; i++) {
			struct slot *slot;

			ck_assert_int_eq(slab_alloc(slab, len, &slot), 0);
			ck_assert_uint_eq(slot->cap, slab_class_bytes(len));
			ck_assert_uint_eq(slot->refs, 1);
			ck_assert_uint_eq((uintptr_t)slot->data % (slot->cap >= 8192 ? 64 : 8), 0);
			memset(slot->data, (int)slots_used, slot->cap);
			slots[slots_used++] = slot;
		}
	}
	for (size_t i = 0; i < slots_used; i++)
		for (uint32_t k = 0; k < slots[i]->cap; k++)
			if (slots[i]->data[k] != (uint8_t)i)
				ck_abort_msg("slot %zu was overwritten at %u", i, k);
	drop(1);
	ck_assert_uint_eq(stats().used_bytes, 0);
	close_slab();
}
END_TEST

START_TEST(counts_references)
{
	struct slot *slot, *again;

	open_slab(REGION_BYTES);
	ck_assert_int_eq(slab_alloc(slab, 100, &slot), 0);
	ck_assert(!slot_is_shared(slot));
	slot_get(slot);
	ck_assert(slot_is_shared(slot));
	slot_put(slab, slot);
	ck_assert(!slot_is_shared(slot));
	ck_assert_uint_eq(stats().used_bytes, 112);
	slot_put(slab, slot);
	slot_put(slab, NULL);
	ck_assert_uint_eq(stats().used_bytes, 0);
	ck_assert_int_eq(slab_alloc(slab, 100, &again), 0);
	ck_assert_ptr_eq(again, slot);
	slot_put(slab, again);
	close_slab();
}
END_TEST

START_TEST(says_what_can_be_written)
{
	uint64_t available, arena = 256ULL << 20, written;

	open_slab(arena);
	available = slab_available_bytes(slab);
	ck_assert_uint_gt(available, arena - arena / 50);
	written = fill(SLAB_SLOT_MAX) * SLAB_SLOT_MAX;
	ck_assert_uint_gt(written, available - available / 50);
	ck_assert_uint_le(written, available);
	ck_assert_uint_eq(slab_available_bytes(slab), 0);
	drop(2);
	ck_assert_uint_eq(slab_available_bytes(slab) % SLAB_SLOT_MAX, 0);
	available = slab_available_bytes(slab);
	ck_assert_uint_eq(fill(SLAB_SLOT_MAX) * SLAB_SLOT_MAX, available);
	close_slab();
}
END_TEST

/* In an arena that keys of several sizes left in pieces, too. */
START_TEST(says_what_large_values_can_take_in_pieces)
{
	static const size_t sizes[] = { 300, 1000, 5000, 20000, 40000, SLAB_SLOT_MAX };
	size_t n = sizeof(sizes) / sizeof(sizes[0]), i = 0;
	uint64_t available, free_bytes;

	open_slab(96ULL << 20);
	while (slab_alloc(slab, sizes[(i / 512 + i) % n], &slots[slots_used]) == 0) {
		slots_used++;
		i++;
	}
	/* every other one, and all of a stretch, in which whole pages come free */
	for (i = 0; i < slots_used; i++) {
		if (i % 2 && i < slots_used * 3 / 4)
			continue;
		slot_put(slab, slots[i]);
		slots[i] = NULL;
	}
	available = slab_available_bytes(slab);
	free_bytes = slab_free_bytes(slab);
	ck_assert_uint_gt(available, 0);
	ck_assert_uint_lt(available, free_bytes - free_bytes / 10);
	ck_assert_uint_eq(fill(SLAB_SLOT_MAX) * SLAB_SLOT_MAX, available);
	ck_assert_uint_eq(slab_available_bytes(slab), 0);
	ck_assert_uint_gt(slab_free_bytes(slab), 0);
	drop(1);
	ck_assert_uint_eq(stats().used_bytes, 0);
	ck_assert_uint_gt(slab_available_bytes(slab), 94ULL << 20);
	close_slab();
}
END_TEST

START_TEST(reuses_memory_for_other_sizes)
{
	static const size_t sizes[] = { 100, SLAB_SLOT_MAX, 5000, 1000, 40000, 64, SLAB_SLOT_MAX };
	uint64_t arena = 48ULL << 20, free_bytes;

	open_slab(arena);
	free_bytes = stats().free_region_bytes;
	ck_assert_uint_eq(free_bytes, arena);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t n = fill(sizes[i]);

		ck_assert_uint_gt(n * (slab_class_bytes(sizes[i]) + 8), arena - arena / 20);
		ck_assert_uint_eq(stats().free_region_bytes, 0);
		drop(1);
		ck_assert_uint_eq(stats().used_bytes, 0);
		ck_assert_uint_eq(stats().free_slot_bytes, 0);
		ck_assert_uint_eq(stats().free_region_bytes, free_bytes);
	}
	close_slab();
}
END_TEST

START_TEST(gives_a_larger_slot_when_there_is_no_other)
{
	struct slot *slot;

	open_slab(2 * REGION_BYTES);
	fill(SLAB_SLOT_MAX);
	ck_assert_int_eq(slab_alloc(slab, 1, &slot), -ENOSPC);
	slot_put(slab, slots[--slots_used]);
	ck_assert_int_eq(slab_alloc(slab, 1, &slot), 0);
	ck_assert_uint_eq(slot->cap, SLAB_SLOT_MAX);
	slot_put(slab, slot);
	close_slab();
}
END_TEST

struct churner {
	pthread_t thread;
	uint64_t rng;
	uint64_t allocs;
};

#define CHURN_SLOTS 256
#define CHURN_ROUNDS 60000

static void *churn(void *arg)
{
	struct churner *c = arg;
	struct slot *own[CHURN_SLOTS] = { 0 };

	for (int i = 0; i < CHURN_ROUNDS; i++) {
		struct slot **s;

		c->rng = c->rng * 6364136223846793005ULL + 1442695040888963407ULL;
		s = &own[c->rng >> 40 & (CHURN_SLOTS - 1)];
		if (*s) {
			if ((*s)->data[0] != (uint8_t)(uintptr_t)c)
				return c;
			slot_put(slab, *s);
			*s = NULL;
			continue;
		}
		if (slab_alloc(slab, 1 + (c->rng >> 20) % (1ULL << (c->rng >> 59)) % SLAB_SLOT_MAX,
			       s) < 0)
			continue;
		(*s)->data[0] = (uint8_t)(uintptr_t)c;
		c->allocs++;
	}
	for (int i = 0; i < CHURN_SLOTS; i++)
		slot_put(slab, own[i]);
	return NULL;
}

START_TEST(is_shared_by_threads)
{
	struct churner c[3];

	open_slab(32ULL << 20);
	for (int i = 0; i < 3; i++) {
		c[i].rng = (uint64_t)i + 1;
		c[i].allocs = 0;
		ck_assert_int_eq(pthread_create(&c[i].thread, NULL, churn, &c[i]), 0);
	}
	for (int i = 0; i < 3; i++) {
		void *bad;

		pthread_join(c[i].thread, &bad);
		ck_assert_ptr_null(bad);
		ck_assert_uint_gt(c[i].allocs, CHURN_ROUNDS / 4);
	}
	ck_assert_uint_eq(stats().used_bytes, 0);
	ck_assert_uint_eq(stats().free_region_bytes, 32ULL << 20);
	close_slab();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("slab");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 120); /* valgrind */
	tcase_add_test(t, has_classes_that_waste_little);
	tcase_add_test(t, gives_slots_that_do_not_overlap);
	tcase_add_test(t, counts_references);
	tcase_add_test(t, says_what_can_be_written);
	tcase_add_test(t, says_what_large_values_can_take_in_pieces);
	tcase_add_test(t, reuses_memory_for_other_sizes);
	tcase_add_test(t, gives_a_larger_slot_when_there_is_no_other);
	tcase_add_test(t, is_shared_by_threads);
	suite_add_tcase(s, t);
	return unit_run(s);
}
