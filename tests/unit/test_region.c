/* SPDX-License-Identifier: Apache-2.0 */
/* The region pool over real memfd memory, and over a back-end and a registrar that can fail. */
#include "replication/memory/region_memory.h"

#include "common/clock.h"
#include "tests/unit/fake_cuda.h"
#include "tests/unit/unit_main.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

	ck_assert_int_eq(region_pool_create(&region_memfd_ops, 8 * REGION_BYTES, 2 *
			 REGION_BYTES, &p), 0);
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

	ck_assert_int_eq(region_memfd_ops.open(NULL, arena, false, &be, &base), 0);
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

static int fake_open(const char *where, uint64_t arena_bytes, uint64_t huge_bytes, void **ret_be,
		     uint8_t **ret_base)
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
	.name = "fake", .open = fake_open, .commit = fake_commit, .decommit = fake_decommit,
	.hugepages = fake_hugepages, .close = free,
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

static const struct region_registrar_ops registrar = { .add = fake_add, .remove = fake_remove };

START_TEST(registers_what_is_there_and_what_comes)
{
	struct region_pool *p;
	struct region r, later;
	void *handle = NULL;

	ck_assert_int_eq(region_pool_create(&region_memfd_ops, 6 * REGION_BYTES, 2 *
			 REGION_BYTES, &p), 0);
	ck_assert_int_eq(region_get(p, &r), 0);
	wait_for(stats(p).ready_bytes == 2 * REGION_BYTES);
	ck_assert_ptr_null(r.registered);
	ck_assert(!region_pool_find(p, r.base, 1, &handle));
	add_fails_after = 1000;
	region_pool_set_registrar(p, &registrar, NULL);
	wait_for(stats(p).registered_bytes == 3 * REGION_BYTES);
	ck_assert(region_pool_find(p, r.base + 77, 100, &handle));
	ck_assert_ptr_eq(handle, r.base + 1);
	ck_assert(!region_pool_find(p, r.base + REGION_BYTES - 1, 2, &handle));
	ck_assert(!region_pool_find(p, &handle, 1, &handle));
	ck_assert(!region_pool_find(p, region_pool_base(p) - 1, 1, &handle));
	ck_assert_int_eq(region_get(p, &later), 0);
	ck_assert_ptr_eq(later.registered, later.base + 1);
	wait_for(stats(p).registered_bytes == 4 * REGION_BYTES);
	ck_assert_uint_eq(stats(p).found, 1);
	region_put(p, &r);
	region_put(p, &later);
	region_pool_set_reserve(p, 0);
	wait_for(registered == 0);
	/* A miss is registered behind the caller's back. */
	ck_assert_int_eq(region_get(p, &r), 0);
	wait_for(registered == 1);
	region_pool_set_registrar(p, NULL, NULL);
	ck_assert_int_eq(registered, 0);
	region_put(p, &r);
	region_pool_destroy(p);
}
END_TEST

/* A device without room for a registration costs no memory and no error, and is asked again. */
START_TEST(goes_on_without_a_registration)
{
	struct region_pool *p;
	struct region r;
	void *handle;

	ck_assert_int_eq(region_pool_create(&region_memfd_ops, 4 * REGION_BYTES, REGION_BYTES, &p),
			 0);
	ck_assert_int_eq(region_get(p, &r), 0);
	add_fails_after = 0;
	region_pool_set_registrar(p, &registrar, NULL);
	wait_for(stats(p).register_err == -EIO);
	ck_assert_int_eq(registered, 0);
	ck_assert(!region_pool_find(p, r.base, 1, &handle));
	ck_assert_uint_ge(stats(p).not_found, 1);
	r.base[0] = 1;
	add_fails_after = 1000;
	wait_for(region_pool_find(p, r.base, 1, &handle));
	wait_for(stats(p).register_err == 0); /* told a moment after the handle is there */
	region_put(p, &r);
	region_pool_destroy(p);
	ck_assert_int_eq(registered, 0);
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

/* More threads than regions: each get waits for what the pool's thread has in hand, and none is
 * lost. */
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

static atomic_int dmabufs, last_dmabuf;

static int fake_add_dmabuf(void *ctx, int fd, uint64_t fd_off, void *base, size_t len, void
			   **ret_handle)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_eq(fd_off + len, (uint64_t)st.st_size);
	last_dmabuf = fd;
	dmabufs++;
	*ret_handle = (uint8_t *)base + 1;
	return 0;
}

static void fake_remove_dmabuf(void *ctx, void *handle)
{
	dmabufs--;
}

static const struct region_registrar_ops dmabuf_registrar = {
	.add = fake_add, .remove = fake_remove_dmabuf, .add_dmabuf = fake_add_dmabuf,
};

START_TEST(gpu_memory_is_registered_as_dmabuf)
{
	struct region_pool *p;
	struct region r;
	uint8_t byte = 0;

	gpu_setup();
	ck_assert_int_eq(region_pool_create_in(&region_gpu_ops, "0", 4 * REGION_BYTES, 0, 0,
			 &p), 0);
	ck_assert_int_eq(gpu.allocated, 0); /* the one of the trial is back */
	region_pool_set_registrar(p, &dmabuf_registrar, NULL);
	ck_assert_int_eq(region_get(p, &r), 0);
	wait_for(dmabufs == 1);
	ck_assert_int_eq(registered, 0); /* never by its address */
	ck_assert_int_eq(gpu.allocated, 1);
	ck_assert_uint_eq(gpu.bytes, REGION_BYTES);
	memset(r.base, 7, REGION_BYTES); /* the processor's copy goes into the device's memory */
	ck_assert_int_eq(pread(last_dmabuf, &byte, 1, REGION_BYTES - 1), 1);
	ck_assert_int_eq(byte, 7);
	region_put(p, &r);
	region_pool_destroy(p);
	ck_assert_int_eq(gpu.allocated, 0);
	ck_assert_int_eq(gpu.attached, 0);
	ck_assert_int_eq(dmabufs, 0);
}
END_TEST

START_TEST(gpu_memory_is_refused_with_its_cause)
{
	struct region_memory m = { .ops = &region_gpu_ops };
	struct region_pool *p = NULL;

	gpu_setup();
	gpu.no_dmabuf = 1;
	ck_assert_int_eq(region_pool_create_in(&region_gpu_ops, NULL, REGION_BYTES, 0, 0, &p),
			 -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(region_memory_why(&m, -EOPNOTSUPP), "dmabuf"));
	gpu_setup();
	gpu.refuse_export = 1;
	ck_assert_int_eq(region_pool_create_in(&region_gpu_ops, NULL, REGION_BYTES, 0, 0, &p),
			 -EOPNOTSUPP);
	gpu_setup();
	gpu.fail_alloc_after = 0;
	ck_assert_int_eq(region_pool_create_in(&region_gpu_ops, NULL, REGION_BYTES, 0, 0, &p),
			 -ENOMEM);
	ck_assert_int_eq(region_pool_create_in(&region_gpu_ops, "3", REGION_BYTES, 0, 0,
			 &p), -ENODEV);
	ck_assert_int_eq(gpu.allocated, 0);
	ck_assert_int_eq(gpu.attached, 0);
	region_gpu_use(NULL);
	if (access("/dev/nvidia0", F_OK) != 0) {
		ck_assert_int_eq(region_pool_create_in(&region_gpu_ops, NULL, REGION_BYTES, 0, 0,
		&p), -ENOENT);
		ck_assert_ptr_nonnull(strstr(region_memory_why(&m, -ENOENT), "libcuda"));
	}
	ck_assert_ptr_null(p);
}
END_TEST

static atomic_int refusals;

static int refuse_dmabuf(void *ctx, int fd, uint64_t fd_off, void *base, size_t len,
			 void **ret_handle)
{
	(void)ctx;
	(void)fd;
	(void)fd_off;
	(void)base;
	(void)len;
	(void)ret_handle;
	refusals++;
	return -EOPNOTSUPP;
}

/* A device, or a registrar, that takes no dmabuf: the memory is used all the same, without a
 * handle, and the device is not asked again, neither for what is there nor for what comes. */
START_TEST(gpu_memory_without_dmabuf_of_the_device)
{
	static const struct region_registrar_ops refusing = {
		.add = fake_add, .remove = fake_remove_dmabuf, .add_dmabuf = refuse_dmabuf,
	};
	struct region_pool *p;
	struct region r;
	void *handle;

	gpu_setup();
	ck_assert_int_eq(region_pool_create_in(&region_gpu_ops, NULL, 4 * REGION_BYTES, 0, 0,
			 &p), 0);
	ck_assert_int_eq(region_get(p, &r), 0);
	registered = 0;
	add_fails_after = 1000;
	refusals = 0;
	region_pool_set_registrar(p, _i ? &refusing : &registrar, NULL);
	wait_for(stats(p).register_err == -EOPNOTSUPP); /* kv-region has looked */
	/* and has made two more regions ready since: it registers before it gives one out */
	region_pool_set_reserve(p, 2 * REGION_BYTES);
	wait_for(stats(p).ready_bytes == 2 * REGION_BYTES);
	ck_assert(!region_pool_find(p, r.base, 1, &handle));
	ck_assert_int_eq(registered, 0);
	ck_assert_int_eq(refusals, _i ? 1 : 0);
	ck_assert_int_eq(stats(p).register_err, -EOPNOTSUPP);
	region_put(p, &r);
	region_pool_destroy(p);
	ck_assert_int_eq(gpu.allocated, 0);
}
END_TEST

START_TEST(memory_option)
{
	static const char *const wrong[] = { "numa", "numa:", "numa:x", "numa:99999", "devdax",
		"devdax:dax0.0",
					     "host:1", "gpu:x", "gpux", "disk" };
	char why[REGION_MEMORY_WHY_BYTES];
	struct region_memory m;

	ck_assert_int_eq(region_memory_parse(NULL, &m, why), 0);
	ck_assert_ptr_eq(m.ops, &region_memfd_ops);
	ck_assert_int_eq(region_memory_parse("numa:0", &m, why), 0);
	ck_assert_ptr_eq(m.ops, &region_numa_ops);
	ck_assert_str_eq(m.where, "0");
	ck_assert_int_eq(region_memory_parse("devdax:/dev/dax0.0", &m, why), 0);
	ck_assert_ptr_eq(m.ops, &region_devdax_ops);
	ck_assert_str_eq(m.where, "/dev/dax0.0");
	ck_assert_int_eq(region_memory_parse("gpu", &m, why), 0);
	ck_assert_ptr_null(m.where);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		ck_assert_int_eq(region_memory_parse(wrong[i], &m, why), -EINVAL);
		ck_assert_msg(strstr(why, wrong[i]) && strstr(why, "numa:NODE"), "%s", why);
	}
}
END_TEST

START_TEST(memory_of_a_node)
{
	struct region_memory m = { .ops = &region_numa_ops, .where = "0" };
	struct region_pool *p = NULL;
	struct region r;
	int node = -1;

	ck_assert_int_eq(region_pool_create_in(&region_numa_ops, "1023", REGION_BYTES, 0, 0, &p),
			 -ENODEV);
	ck_assert_int_eq(region_pool_create_in(&region_devdax_ops, "/dev/null", REGION_BYTES, 0, 0,
			 &p), -ENODEV);
	ck_assert_int_eq(region_pool_create_in(&region_devdax_ops, "/dev/dax-none",
			 REGION_BYTES, 0, 0, &p),
			 -ENOENT);
	if (region_memory_bytes(&m) == 0)
		return; /* a kernel without NUMA */
	ck_assert_int_eq(region_pool_create_in(&region_numa_ops, "0", 2 * REGION_BYTES, 0, 0,
			 &p), 0);
	ck_assert_int_eq(region_get(p, &r), 0);
	memset(r.base, 1, REGION_BYTES);
	ck_assert_int_eq(syscall(SYS_get_mempolicy, &node, NULL, 0, r.base, MPOL_F_NODE |
			 MPOL_F_ADDR), 0);
	ck_assert_int_eq(node, 0);
	region_put(p, &r);
	region_pool_destroy(p);
}
END_TEST

START_TEST(locked_memory_is_checked)
{
	struct rlimit limit = { .rlim_cur = 1 << 20, .rlim_max = 1 << 20 };
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = { 0 };
	char why[REGION_MEMORY_WHY_BYTES] = "";

	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	ck_assert_int_eq(syscall(SYS_capset, &header, none), 0);
	ck_assert_int_eq(region_memlock_check(1 << 20, why), 0);
	ck_assert_int_eq(region_memlock_check(2 << 20, why), -ENOMEM);
	ck_assert_msg(strstr(why, "LimitMEMLOCK=infinity") && strstr(why, "1.00 MiB"), "%s", why);
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
	tcase_add_test(t, goes_on_without_a_registration);
	tcase_add_test(t, is_shared_by_threads);
	tcase_add_test(t, gpu_memory_is_registered_as_dmabuf);
	tcase_add_test(t, gpu_memory_is_refused_with_its_cause);
	tcase_add_loop_test(t, gpu_memory_without_dmabuf_of_the_device, 0, 2);
	tcase_add_test(t, memory_option);
	tcase_add_test(t, memory_of_a_node);
	tcase_add_test(t, locked_memory_is_checked);
	suite_add_tcase(s, t);
	return unit_run(s);
}
