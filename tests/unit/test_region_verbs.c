/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The region pool's memory registered with an RDMA device, and sent from over verbs: the host's
 * from where it lies; a GPU's, which the device refuses where it knows no dmabuf, as a copy. CUDA
 * is a fake, the device is real: runs in the virtual-machine rig (tests/vm/verbs_contract.sh).
 */
#include "replication/transport/transport_verbs.h"
#include "tests/unit/fake_cuda.h"
#include "tests/unit/transport_pair.h"
#include "tests/unit/unit_main.h"

#include <sched.h>

#define VALUE_BYTES 4096

static struct region_stats stats(struct region_pool *p)
{
	struct region_stats st;

	region_pool_stats(p, &st);
	return st;
}

/* Until the pool's thread has tried to register the region. */
static void wait_tried(struct region_pool *pool)
{
	uint64_t deadline_ns = pair_deadline();

	while (stats(pool).registered_bytes == 0 && stats(pool).register_err == 0) {
		ck_assert_uint_lt(clock_mono_ns(), deadline_ns);
		sched_yield();
	}
}

/* A value in the region arrives at the mirror. */
static void send_from(struct pair *p, uint8_t *value)
{
	uint64_t bytes;

	for (int i = 0; i < VALUE_BYTES; i++)
		value[i] = (uint8_t)(i * 31 + i / 256);
	ck_assert_int_eq(pair_post(p, p->primary, 0, value, VALUE_BYTES, 0, 1), 1);
	ck_assert_uint_eq(pair_next_of(p, p->mirror, TRANSPORT_EVENT_NOTICE).imm, 1);
	ck_assert_int_eq(memcmp(p->ops->window(p->mirror, &bytes), value, VALUE_BYTES), 0);
}

/* err: what registering gives. */
static void run_in(const struct region_backend_ops *be, const char *where, int err)
{
	struct region_pool *pool;
	struct region_stats st;
	struct region r;
	struct pair p;

	ck_assert_int_eq(region_pool_create_in(be, where, 2 * REGION_BYTES, 0, 0, &pool), 0);
	ck_assert_int_eq(region_get(pool, &r), 0);
	pair_open_from(&p, &transport_verbs_ops, true, 2, 64 << 10, pool);
	wait_tried(pool);
	send_from(&p, r.base);
	st = stats(pool);
	ck_assert_int_eq(st.register_err, err);
	ck_assert_uint_eq(st.registered_bytes, err ? 0 : REGION_BYTES);
	ck_assert_uint_eq(st.found, err ? 0 : 1);
	ck_assert_uint_eq(st.not_found, err ? 1 : 0);
	pair_close(&p);
	region_put(pool, &r);
	region_pool_destroy(pool);
}

START_TEST(the_hosts_memory_is_sent_from_where_it_lies)
{
	run_in(&region_memfd_ops, NULL, 0);
}
END_TEST

/* rxe knows no dmabuf. */
START_TEST(a_gpus_memory_that_the_device_refuses_is_copied)
{
	gpu_setup();
	run_in(&region_gpu_ops, "0", -EOPNOTSUPP);
	ck_assert_int_gt(gpu.exported, 0);
	ck_assert_int_eq(gpu.allocated, 0);
	ck_assert_int_eq(gpu.attached, 0);
}
END_TEST

int main(void)
{
	char text[VERBS_TEXT_BYTES];
	Suite *s;
	TCase *t;

	if (verbs_available(NULL, text, sizeof(text)) != 0) {
		printf("found %s\n", text);
		return 77;
	}
	s = suite_create("region_verbs");
	t = tcase_create("device");
	tcase_set_timeout(t, 60);
	tcase_add_test(t, the_hosts_memory_is_sent_from_where_it_lies);
	tcase_add_test(t, a_gpus_memory_that_the_device_refuses_is_copied);
	suite_add_tcase(s, t);
	return unit_run(s);
}
