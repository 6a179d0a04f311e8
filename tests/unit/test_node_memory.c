/* SPDX-License-Identifier: Apache-2.0 */
/* What RDMA would lock of a node's memory, and what is said of memory that a device does not take.
 * The device is a registrar that refuses. */
#include "fs/node/node_memory.h"
#include "tests/unit/node_crash.h"
#include "tests/unit/unit_main.h"

#include "common/clock.h"
#include "replication/memory/region.h"

#include <sched.h>

static struct crash_volume volume;
static atomic_int refuse;

static int add(void *ctx, void *base, size_t len, void **ret_handle)
{
	(void)ctx;
	(void)len;
	*ret_handle = base;
	return refuse;
}

static void take_back(void *ctx, void *handle)
{
	(void)ctx;
	(void)handle;
}

static const struct region_registrar_ops registrar = { .add = add, .remove = take_back };

static struct node *node_start(void)
{
	char why[NODE_WHY_BYTES] = "";
	struct node *n = NULL;

	crash_volume_make(&volume, 1, false);
	crash_volume_restart(&volume, UINT_MAX);
	ck_assert_msg(node_open(&volume.opt, volume.path, &volume.media, &n, why) == 0, "%s", why);
	return n;
}

/* kv-region tries. */
static void await_registration(struct node *n, int err, uint64_t least_bytes)
{
	uint64_t deadline = clock_mono_ns() + 10 * NSEC_PER_SEC;
	struct region_stats s;

	do {
		region_pool_stats(n->regions, &s);
		ck_assert_uint_lt(clock_mono_ns(), deadline);
	} while ((s.register_err != err || s.registered_bytes < least_bytes) && sched_yield() == 0);
}

static double figure(struct node *n, const char *name)
{
	struct metrics_snapshot snap;
	const struct metrics_sample *s;
	double value;

	ck_assert_int_eq(metrics_snapshot(n->metrics, &snap), 0);
	s = metrics_find(&snap, name, NULL);
	ck_assert_msg(s != NULL, "no %s", name);
	value = s->is_real ? s->real : (double)s->value;
	metrics_snapshot_free(&snap);
	return value;
}

/* The share of look-ups that find a value's memory registered: not of regions that were ready. */
START_TEST(hit_rate_is_of_registered_memory)
{
	struct node *n = node_start();
	struct region r;
	void *handle;

	ck_assert_double_eq(figure(n, "mr_cache_hit_rate"), 1);
	ck_assert_int_eq(region_get(n->regions, &r), 0);
	refuse = -ENOMEM;
	region_pool_set_registrar(n->regions, &registrar, NULL);
	await_registration(n, -ENOMEM, 0);
	ck_assert(!region_pool_find(n->regions, r.base, 1, &handle));
	ck_assert_double_eq(figure(n, "mr_cache_hit_rate"), 0);
	ck_assert_double_eq(figure(n, "kvfs_mr_misses_total"), 1);
	ck_assert_double_eq(figure(n, "kvfs_mr_hits_total"), 0);
	refuse = 0;
	await_registration(n, 0, REGION_BYTES);
	ck_assert(region_pool_find(n->regions, r.base, 1, &handle));
	ck_assert_double_eq(figure(n, "mr_cache_hit_rate"), 0.5);
	ck_assert_double_eq(figure(n, "kvfs_mr_hits_total"), 1);
	ck_assert_double_ge(figure(n, "kvfs_region_registered_bytes"), REGION_BYTES);
	region_pool_set_registrar(n->regions, NULL, NULL);
	region_put(n->regions, &r);
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

static unsigned lines_of(FILE *f, const char *text)
{
	unsigned count = 0;
	char line[1024];

	rewind(f);
	while (fgets(line, sizeof(line), f))
		count += strstr(line, text) != NULL;
	return count;
}

/* One line, with the remedy, and not another while it stays so. */
START_TEST(refused_registration_is_said_once)
{
	struct node *n = node_start();
	FILE *f = tmpfile();
	int err_fd = dup(STDERR_FILENO);
	struct region r;

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(region_get(n->regions, &r), 0);
	node_ckpt_stop(n); /* this thread in its place */
	refuse = -ENOMEM;
	region_pool_set_registrar(n->regions, &registrar, NULL);
	await_registration(n, -ENOMEM, 0);
	ck_assert_int_ge(dup2(fileno(f), STDERR_FILENO), 0);
	node_memory_attend(n);
	node_memory_attend(n);
	refuse = 0; /* for a moment, as where a region or two still fit */
	await_registration(n, 0, REGION_BYTES);
	node_memory_attend(n);
	refuse = -ENOMEM;
	region_pool_set_registrar(n->regions, &registrar, NULL);
	await_registration(n, -ENOMEM, 0);
	node_memory_attend(n);
	ck_assert_int_ge(dup2(err_fd, STDERR_FILENO), 0);
	ck_assert_uint_eq(lines_of(f, "mr_cache_size="), 1);
	ck_assert_uint_eq(lines_of(f, "can't register memory"), 1);
	close(err_fd);
	fclose(f);
	region_pool_set_registrar(n->regions, NULL, NULL);
	region_put(n->regions, &r);
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

static uint64_t locked(struct options *o, bool *ret_insists)
{
	struct node n = { .opt = o, .arena_bytes = 1ULL << 30 };

	return node_memory_locked_bytes(&n, ret_insists);
}

START_TEST(what_rdma_would_lock)
{
	struct options o;
	bool insists;

	options_init(&o, OPTIONS_MOUNT);
	o.lanes = o.lanes_open = 10;
	ck_assert_uint_eq(locked(&o, &insists), 0); /* no mirrors, nothing to send */
	o.mirrors.count = 2;
	o.mirrors.list[0].kind = ADDR_TCP;
	o.mirrors.list[1].kind = ADDR_SHM;
	ck_assert_uint_eq(locked(&o, &insists), 0);
	ck_assert(!insists);
	o.mirrors.list[0].kind = ADDR_AUTO; /* the arena, and a stage of a MiB and more a lane */
	ck_assert_uint_ge(locked(&o, &insists), (1ULL << 30) + (10 << 20));
	ck_assert_uint_lt(locked(&o, &insists), (1ULL << 30) + (12 << 20));
	ck_assert(!insists);
	o.mirrors.list[1].kind = ADDR_VERBS;
	ck_assert_uint_ge(locked(&o, &insists), (1ULL << 30) + (20 << 20));
	ck_assert(insists);

	options_init(&o, OPTIONS_MIRROR); /* the ring; its arena is not sent from */
	o.ring_bytes = 64 << 20;
	o.listen.count = 1;
	o.listen.list[0].kind = ADDR_TCP;
	ck_assert_uint_eq(locked(&o, &insists), 0);
	o.listen.list[0].kind = ADDR_VERBS;
	ck_assert_uint_ge(locked(&o, &insists), 64 << 20);
	ck_assert_uint_lt(locked(&o, &insists), 70 << 20);
	ck_assert(insists);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("node_memory");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, hit_rate_is_of_registered_memory);
	tcase_add_test(t, refused_registration_is_said_once);
	tcase_add_test(t, what_rdma_would_lock);
	suite_add_tcase(s, t);
	return unit_run(s);
}
