/* SPDX-License-Identifier: Apache-2.0 */
/* The slab allocator: classes, reuse of memory across classes, a full arena, threads. */
#include "fs/store/slab.h"

#include "tests/unit/unit_main.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__has_feature)
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define POISONS 1
/* Every byte, not only some. */
static bool poisoned(uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!__asan_address_is_poisoned(p + i))
			return false;
	return true;
}
#else
#define POISONS 0
static bool poisoned(uint8_t *p, size_t len)
{
	return false;
}
#endif

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

/* Where there is room for one only, all of the larger slot; else a part of it. */
START_TEST(gives_of_a_larger_slot_when_there_is_no_other)
{
	struct slot *slot, *last;

	open_slab(2 * REGION_BYTES);
	fill(SLAB_SLOT_MAX);
	ck_assert_int_eq(slab_alloc(slab, 1, &slot), -ENOSPC);
	last = slots[--slots_used];
	slot_put(slab, last);
	ck_assert_int_eq(slab_alloc(slab, 40000, &slot), 0);
	ck_assert_ptr_eq(slot, last);
	ck_assert_uint_eq(slot->cap, SLAB_SLOT_MAX);
	slot_put(slab, slot);
	ck_assert_int_eq(slab_alloc(slab, 1, &slot), 0);
	ck_assert_uint_eq(slot->cap, 64);
	ck_assert_int_eq(slab_alloc(slab, SLAB_SLOT_MAX, &last), -ENOSPC);
	ck_assert_uint_gt(fill(64), SLAB_SLOT_MAX / 80);
	drop(1);
	slot_put(slab, slot);
	ck_assert_uint_eq(stats().used_bytes, 0);
	ck_assert_uint_eq(stats().free_region_bytes, 2 * REGION_BYTES);
	close_slab();
}
END_TEST

/* Every other chunk is free: smaller values find nearly all of that, and give it back whole. */
START_TEST(small_values_take_what_large_ones_left_in_pieces)
{
	static const size_t sizes[] = { 64, 100, 1000, 1024, 3000, 8192, 9000, 16000 };
	uint64_t arena = 24ULL << 20, available;

	open_slab(arena);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct slot **large = slots;
		size_t n, large_used, got;

		fill(SLAB_SLOT_MAX);
		drop(2);
		available = slab_available_bytes(slab);
		ck_assert_uint_gt(available, arena / 3);
		large_used = slots_used;
		slots += slots_used;
		slots_used = 0;
		n = fill(sizes[i]);
		got = n * (slab_class_bytes(sizes[i]) + 8);
		/* what is left over of a chunk of 64 KiB counts for more where they are few */
		ck_assert_msg(got > available * (sizes[i] < 8192 ? 9 : 7) / 10,
			      "%zu bytes: %zu of %lu", sizes[i], got, available);
		for (size_t k = 0; k < slots_used; k++) {
			ck_assert_uint_eq(slots[k]->cap, slab_class_bytes(sizes[i]));
			ck_assert_uint_eq((uintptr_t)slots[k]->data %
						  (slots[k]->cap >= 8192 ? 64 : 8), 0);
		}
		ck_assert_uint_eq(stats().used_bytes, large_used * SLAB_SLOT_MAX +
						      n * slab_class_bytes(sizes[i]));
		ck_assert_uint_eq(slab_available_bytes(slab), 0);
		drop(1);
		ck_assert_uint_eq(slab_available_bytes(slab), available);
		slots = large;
		slots_used = large_used;
		drop(1);
		ck_assert_uint_eq(stats().free_region_bytes, arena);
	}
	close_slab();
}
END_TEST

/* For AddressSanitizer a free slot is none, and one that is handed out is whole; so also in a
 * larger one and behind it. */
START_TEST(free_slots_are_poisoned)
{
	struct slot *host, *a, *b;

	open_slab(REGION_BYTES);
	fill(SLAB_SLOT_MAX);
	host = slots[--slots_used];
	slot_put(slab, host);
	ck_assert(poisoned(host->data + 8, SLAB_SLOT_MAX - 8));
	ck_assert_int_eq(slab_alloc(slab, 1000, &a), 0);
	ck_assert_int_eq(slab_alloc(slab, 1000, &b), 0);
	ck_assert(a->data > host->data && b->data < host->data + SLAB_SLOT_MAX);
	memset(a->data, 1, a->cap);
	memset(b->data, 2, b->cap);
	slot_put(slab, a);
	ck_assert(poisoned(a->data + 8, 1016));
	ck_assert(!poisoned(b->data, b->cap));
	slot_put(slab, b);
	ck_assert(poisoned(host->data + 8, SLAB_SLOT_MAX - 8));
	ck_assert_int_eq(slab_alloc(slab, SLAB_SLOT_MAX, &a), 0);
	ck_assert_ptr_eq(a, host);
	memset(a->data, 3, a->cap);
	slot_put(slab, a);
	close_slab();
}
END_TEST

/* A model: what the slab must say of itself, from an array of what was taken. */
struct taken {
	struct slot *slot;
	uint64_t mark;
};

#define MODEL_SLOTS 60000
#define MODEL_ARENA (24ULL << 20)

struct model {
	struct taken taken[MODEL_SLOTS];
	size_t used;
	uint64_t bytes, rng;
	unsigned refused;
};

static uint64_t model_random(struct model *m, uint64_t below)
{
	m->rng = m->rng * 6364136223846793005ULL + 1442695040888963407ULL;
	return (m->rng >> 33) % below;
}

/* The first and the last bytes, and some between. */
static void mark(const struct taken *t, bool check)
{
	for (uint32_t at = 0; at < t->slot->cap; at += at < 64 ? 8 : 4096) {
		uint32_t off = at + 8 > t->slot->cap ? t->slot->cap - 8 : at;

		if (!check)
			memcpy(t->slot->data + off, &t->mark, 8);
		else if (memcmp(t->slot->data + off, &t->mark, 8) != 0)
			ck_abort_msg("a slot of %u bytes was overwritten at %u", t->slot->cap,
				     off);
	}
	if (!check)
		memcpy(t->slot->data + t->slot->cap - 8, &t->mark, 8);
	else
		ck_assert_mem_eq(t->slot->data + t->slot->cap - 8, &t->mark, 8);
}

static void model_take(struct model *m, size_t len)
{
	struct taken *t = &m->taken[m->used];
	int err = m->used < MODEL_SLOTS ? slab_alloc(slab, len, &t->slot) : -ENOSPC;

	if (err) {
		ck_assert_int_eq(err, -ENOSPC);
		m->refused++;
		return;
	}
	ck_assert_uint_ge(t->slot->cap, slab_class_bytes(len));
	ck_assert_uint_eq(atomic_load(&t->slot->refs), 1);
	ck_assert_uint_eq((uintptr_t)t->slot->data % (t->slot->cap >= 8192 ? 64 : 8), 0);
	t->mark = model_random(m, UINT32_MAX) << 32 | m->used;
	mark(t, false);
	m->bytes += t->slot->cap;
	m->used++;
}

static void model_give(struct model *m, size_t i)
{
	mark(&m->taken[i], true);
	m->bytes -= m->taken[i].slot->cap;
	slot_put(slab, m->taken[i].slot);
	m->taken[i] = m->taken[--m->used];
}

static void model_check(struct model *m)
{
	uint64_t by_cap[SLAB_SLOT_MAX / 16 + 1] = { 0 };
	struct slab_stats st = stats();

	for (size_t i = 0; i < m->used; i++) {
		mark(&m->taken[i], true);
		by_cap[m->taken[i].slot->cap / 16]++;
	}
	ck_assert_uint_eq(st.used_bytes, m->bytes);
	ck_assert_uint_le(st.used_bytes + st.free_slot_bytes + st.free_region_bytes, MODEL_ARENA);
	for (unsigned c = 0; c < st.classes; c++) {
		const struct slab_class_stats *cs = &st.class_stats[c];

		ck_assert_uint_eq(cs->used_slots, by_cap[cs->slot_bytes / 16]);
		ck_assert_uint_le(cs->used_slots, cs->slots);
	}
}

/* What is said to be available is exactly what large values get. */
static void model_check_available(struct model *m)
{
	size_t used = m->used, n = slab_available_bytes(slab) / SLAB_SLOT_MAX;

	for (size_t i = 0; i < n; i++)
		model_take(m, SLAB_SLOT_MAX);
	ck_assert_uint_eq(m->used, used + n);
	model_take(m, SLAB_SLOT_MAX);
	ck_assert_uint_eq(m->used, used + n);
	while (m->used > used)
		model_give(m, m->used - 1);
}

/* Takes and gives by chance; each phase has another mix of sizes, and another aim: from nearly
 * nothing to more than there is. */
START_TEST(model)
{
	static const size_t mixes[] = { 64, 1024, 4096, 20000, SLAB_SLOT_MAX };
	struct model *m = calloc(1, sizeof(*m));

	ck_assert_ptr_nonnull(m);
	m->rng = (uint64_t)_i + 1;
	open_slab(MODEL_ARENA);
	for (unsigned phase = 0; phase < 60; phase++) {
		size_t mix = mixes[model_random(m, 5)], low = model_random(m, 2) ? 1 : mix / 2 + 1;
		uint64_t aim = model_random(m, 7) * MODEL_ARENA / 5;

		for (unsigned step = 0; step < 3000; step++) {
			bool takes = m->bytes < aim ? model_random(m, 4) : !model_random(m, 4);

			if (takes)
				model_take(m, low + model_random(m, mix - low + 1));
			else if (m->used)
				model_give(m, model_random(m, m->used));
		}
		model_check(m);
		if (phase % 4 == 0)
			model_check_available(m);
	}
	ck_assert_uint_gt(m->refused, 100);
	while (m->used)
		model_give(m, model_random(m, m->used));
	model_check(m);
	ck_assert_uint_eq(stats().free_region_bytes, MODEL_ARENA);
	free(m);
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

/* _i: in a full arena, of which every other chunk was free. */
START_TEST(is_shared_by_threads)
{
	struct churner c[3];

	open_slab(32ULL << 20);
	if (_i) {
		fill(SLAB_SLOT_MAX);
		drop(2);
	}
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
	drop(1);
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
	tcase_add_test(t, gives_of_a_larger_slot_when_there_is_no_other);
	tcase_add_test(t, small_values_take_what_large_ones_left_in_pieces);
	if (POISONS)
		tcase_add_test(t, free_slots_are_poisoned);
	tcase_add_loop_test(t, model, 0, 4);
	tcase_add_loop_test(t, is_shared_by_threads, 0, 2);
	suite_add_tcase(s, t);
	return unit_run(s);
}
