/* SPDX-License-Identifier: Apache-2.0 */
/* The region pool over real memfd memory, and over a back-end and a registrar that can fail. */
#include "replication/region.h"

#include "common/clock.h"
#include "tests/unit/unit_main.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WAIT_NS (20 * NSEC_PER_SEC)

/* Waits until cond holds; fails after WAIT_NS. */
#define wait_for(cond)                                             \
	do {                                                       \
		uint64_t deadline_ = clock_mono_ns() + WAIT_NS;    \
		while (!(cond) && clock_mono_ns() < deadline_)     \
			sched_yield();                             \
		ck_assert(cond);                                   \
	} while (0)

static struct region_stats stats(struct region_pool *p)
{
	struct region_stats st;

	region_pool_stats(p, &st);
	return st;
}

/* Pages of [at, at + len) that have memory. */
static size_t resident(const uint8_t *at, size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
	unsigned char *map = malloc(len / page);

	ck_assert_int_eq(mincore((void *)(uintptr_t)at, len, map), 0);
	for (size_t i = 0; i < len / page; i++)
		n += map[i] & 1;
	free(map);
	return n * page;
}

START_TEST(hands_out_the_whole_arena_once)
{
	struct region_pool *p;
	struct region r[5], none;

	ck_assert_int_eq(region_pool_create(&region_memfd_ops, 4 * REGION_BYTES + 1, 0, &p), 0);
	for (int i = 0; i < 5; i++) {
		ck_assert_int_eq(region_get(p, &r[i]), 0);
		ck_assert_uint_eq((uintptr_t)r[i].base % REGION_BYTES, 0);
		ck_assert_ptr_eq(r[i].base, region_pool_base(p) + r[i].index * REGION_BYTES);
		for (int k = 0; k < i; k++)
			ck_assert_uint_ne(r[k].index, r[i].index);
		memset(r[i].base, i, REGION_BYTES);
	}
	ck_assert_int_eq(region_get(p, &none), -ENOMEM);
	ck_assert_uint_eq(stats(p).used_bytes, stats(p).arena_bytes);
	ck_assert_uint_eq(stats(p).misses, 5);
	region_put(p, &r[2]);
	ck_assert_int_eq(region_get(p, &none), 0);
	ck_assert_uint_eq(none.index, r[2].index);
	for (int i = 0; i < 5; i++)
		region_put(p, &r[i]);
	region_pool_destroy(p);
	region_pool_destroy(NULL);
}
END_TEST

START_TEST(keeps_a_reserve_and_gives_memory_back)
{
	struct region_pool *p;
	struct region r[8];

	ck_assert_int_eq(region_pool_create(&region_memfd_ops, 8 * REGION_BYTES, 2 * REGION_BYTES, &p), 0);
	wait_for(stats(p).ready_bytes == 2 * REGION_BYTES);
	ck_assert_int_eq(region_get(p, &r[0]), 0);
	ck_assert_uint_eq(stats(p).hits, 1);
	ck_assert_uint_eq(resident(r[0].base, REGION_BYTES), REGION_BYTES);
	wait_for(stats(p).ready_bytes == 2 * REGION_BYTES);
	for (int i = 1; i < 8; i++)
		ck_assert_int_eq(region_get(p, &r[i]), 0);
	for (int i = 0; i < 8; i++)
		region_put(p, &r[i]);
	/* half of the reserve more may stay, for use that swings */
	wait_for(resident(region_pool_base(p), 8 * REGION_BYTES) == 3 * REGION_BYTES);
	region_pool_set_reserve(p, 0);
	wait_for(resident(region_pool_base(p), 8 * REGION_BYTES) == 0);
	region_pool_set_reserve(p, 100 * REGION_BYTES);
	wait_for(stats(p).ready_bytes == 8 * REGION_BYTES);
	region_pool_destroy(p);
}
END_TEST

START_TEST(spans_segments)
{
	uint64_t arena = REGION_SEGMENT_BYTES + 2 * REGION_BYTES;
	struct region_pool *p;
	void *be;
	uint8_t *base;

	ck_assert_int_eq(region_memfd_ops.open(arena, false, &be, &base), 0);
	for (uint64_t off = REGION_SEGMENT_BYTES - REGION_BYTES; off < arena; off += REGION_BYTES) {
		ck_assert_int_eq(region_memfd_ops.commit(be, off, REGION_BYTES), 0);
		memset(base + off, 1, REGION_BYTES);
		region_memfd_ops.decommit(be, off, REGION_BYTES);
	}
	ck_assert_uint_eq(resident(base + arena - 3 * REGION_BYTES, 3 * REGION_BYTES), 0);
	region_memfd_ops.close(be);
	ck_assert_int_eq(region_pool_create(&region_memfd_ops, 0, 0, &p), -EINVAL);
}
END_TEST

/* A back-end whose commit fails while `broken`, over ordinary memory. */
static atomic_bool broken;
static atomic_int commits;

static int fake_open(uint64_t arena_bytes, bool want_hugepages, void **ret_be, uint8_t **ret_base)
{
	*ret_base = aligned_alloc(REGION_BYTES, arena_bytes);
	*ret_be = *ret_base;
	return *ret_base ? 0 : -ENOMEM;
}

static int fake_commit(void *be, uint64_t off, uint64_t len)
{
	commits++;
	return broken ? -ENOMEM : 0;
}

static void fake_decommit(void *be, uint64_t off, uint64_t len)
{
	commits--;
}

static bool fake_hugepages(void *be)
{
	return false;
}

static const struct region_backend_ops fake_ops = {
	"fake", fake_open, fake_commit, fake_decommit, fake_hugepages, free,
};

START_TEST(survives_a_machine_without_memory)
{
	struct region_pool *p;
	struct region r;

	broken = true;
	ck_assert_int_eq(region_pool_create(&fake_ops, 4 * REGION_BYTES, 2 * REGION_BYTES, &p), 0);
	ck_assert_int_eq(region_get(p, &r), -ENOMEM);
	ck_assert_uint_eq(stats(p).used_bytes, 0);
	wait_for(commits > 1); /* the thread tried once; it must not go on and on */
	ck_assert_int_le(commits, 4);
	broken = false;
	ck_assert_int_eq(region_get(p, &r), 0);
	region_pool_set_reserve(p, 2 * REGION_BYTES);
	wait_for(stats(p).ready_bytes == 2 * REGION_BYTES);
	region_put(p, &r);
	region_pool_destroy(p);
}
END_TEST

static atomic_int registered, add_fails_after = 1000;

static int fake_add(void *ctx, void *base, size_t len, void **ret_handle)
{
	if (registered >= add_fails_after)
		return -EIO;
	registered++;
	*ret_handle = (uint8_t *)base + 1;
	return 0;
}

static void fake_remove(void *ctx, void *handle)
{
	registered--;
}

static const struct region_registrar_ops registrar = { fake_add, fake_remove };

START_TEST(registers_what_is_there_and_what_comes)
{
	struct region_pool *p;
	struct region r, later;

	ck_assert_int_eq(region_pool_create(&region_memfd_ops, 6 * REGION_BYTES, 2 * REGION_BYTES, &p), 0);
	ck_assert_int_eq(region_get(p, &r), 0);
	wait_for(stats(p).ready_bytes == 2 * REGION_BYTES);
	ck_assert_ptr_null(r.registered);
	add_fails_after = 1;
	ck_assert_int_eq(region_pool_set_registrar(p, &registrar, NULL), -EIO);
	ck_assert_int_eq(registered, 0);
	add_fails_after = 1000;
	ck_assert_int_eq(region_pool_set_registrar(p, &registrar, NULL), 0);
	ck_assert_int_eq(registered, 3);
	ck_assert_ptr_eq(region_pool_handle(p, r.base + 77), r.base + 1);
	ck_assert_int_eq(region_get(p, &later), 0);
	ck_assert_ptr_eq(later.registered, later.base + 1);
	wait_for(registered == 4);
	region_put(p, &r);
	region_put(p, &later);
	region_pool_set_reserve(p, 0);
	wait_for(registered == 0);
	ck_assert_int_eq(region_get(p, &r), 0);
	ck_assert_int_eq(registered, 1);
	ck_assert_int_eq(region_pool_set_registrar(p, NULL, NULL), 0);
	ck_assert_int_eq(registered, 0);
	region_put(p, &r);
	region_pool_destroy(p);
}
END_TEST

#define CHURN_THREADS 3
#define CHURN_ROUNDS 400

static void *churn(void *arg)
{
	struct region_pool *p = arg;
	struct region r;

	for (int i = 0; i < CHURN_ROUNDS; i++) {
		while (region_get(p, &r) < 0)
			sched_yield();
		for (size_t k = 0; k < REGION_BYTES; k += REGION_BYTES / 4)
			r.base[k] = (uint8_t)i;
		region_put(p, &r);
	}
	return NULL;
}

/* More threads than regions: each get waits for what the pool's thread has in hand, and none is lost. */
START_TEST(is_shared_by_threads)
{
	struct region_pool *p;
	pthread_t t[CHURN_THREADS];

	ck_assert_int_eq(region_pool_create(&region_memfd_ops, 2 * REGION_BYTES, 0, &p), 0);
	for (int i = 0; i < CHURN_THREADS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, churn, p), 0);
	for (int i = 0; i < CHURN_THREADS; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_eq(stats(p).used_bytes, 0);
	ck_assert_uint_eq(stats(p).hits + stats(p).misses, CHURN_THREADS * CHURN_ROUNDS);
	region_pool_destroy(p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("region");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, hands_out_the_whole_arena_once);
	tcase_add_test(t, keeps_a_reserve_and_gives_memory_back);
	tcase_add_test(t, spans_segments);
	tcase_add_test(t, survives_a_machine_without_memory);
	tcase_add_test(t, registers_what_is_there_and_what_comes);
	tcase_add_test(t, is_shared_by_threads);
	suite_add_tcase(s, t);
	return unit_run(s);
}
