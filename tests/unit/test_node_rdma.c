/* SPDX-License-Identifier: Apache-2.0 */
/* What ports of RDMA devices count, as a node's figures: from a tree as the kernel's /sys/class. */
#include "fs/node/node.h"
#include "tests/unit/unit_main.h"

#include <stdlib.h>
#include <sys/stat.h>

static char root[] = "/tmp/kvfs-sys-XXXXXX";
static struct options opt;
static struct node node;

static void collect(void *ctx)
{
	node_rdma_collect(ctx);
}

static void setup(void)
{
	char why[OPTIONS_WHY_BYTES];

	memcpy(root + sizeof(root) - 7, "XXXXXX", 6);
	ck_assert_ptr_nonnull(mkdtemp(root));
	verbs_sys_use(root);
	options_init(&opt, OPTIONS_MOUNT);
	ck_assert_int_eq(options_set(&opt, "mirror=a:1", OPTIONS_COMMAND, why), 0);
	node = (struct node){ .opt = &opt, .metrics = metrics_create() };
	ck_assert_int_eq(metrics_add_collector(node.metrics, collect, &node), 0);
}

static void teardown(void)
{
	char command[64];

	metrics_remove_collector(node.metrics, &node);
	metrics_destroy(node.metrics);
	verbs_sys_use(NULL);
	snprintf(command, sizeof(command), "rm -rf %s", root);
	ck_assert_int_eq(system(command), 0);
}

static void count(const char *dev, unsigned port, const char *name, unsigned value)
{
	char command[400];

	snprintf(command, sizeof(command),
		 "d=%s/infiniband/%s/ports/%u/hw_counters; mkdir -p $d && echo %u >$d/%s", root,
		 dev, port, value, name);
	ck_assert_int_eq(system(command), 0);
}

/* The series' value; UINT64_MAX: there is none. */
static uint64_t figure(const char *dev, const char *port)
{
	struct metrics_snapshot snap;
	uint64_t value = UINT64_MAX;

	ck_assert_int_eq(metrics_snapshot(node.metrics, &snap), 0);
	for (unsigned i = 0; i < snap.count; i++)
		if (strcmp(snap.samples[i].def->name, "kvfs_rdma_port_retries_total") == 0 &&
		    strcmp(snap.samples[i].values[0], dev) == 0 &&
		    strcmp(snap.samples[i].values[1], port) == 0)
			value = snap.samples[i].value;
	metrics_snapshot_free(&snap);
	return value;
}

START_TEST(each_port_that_counts)
{
	count("mlx5_0", 1, "packet_seq_err", 3);
	count("mlx5_0", 1, "local_ack_timeout_err", 4);
	count("mlx5_0", 1, "out_of_sequence", 50); /* what its peers sent again */
	count("mlx5_0", 2, "lifespan", 10);
	node_rdma_attend(&node);
	ck_assert_uint_eq(figure("mlx5_0", "1"), 7);
	ck_assert_uint_eq(figure("mlx5_0", "2"), UINT64_MAX);
	count("mlx5_0", 1, "packet_seq_err", 5);
	ck_assert_uint_eq(figure("mlx5_0", "1"), 9);
	count("rxe0", 1, "completer_retry_err", 2); /* it comes while we run */
	node_rdma_attend(&node);
	ck_assert_uint_eq(figure("rxe0", "1"), 2);
	ck_assert_uint_eq(figure("mlx5_0", "1"), 9);
	ck_assert_uint_eq(node.rdma.count, 2);
}
END_TEST

START_TEST(only_the_port_that_is_chosen)
{
	char why[OPTIONS_WHY_BYTES];

	count("mlx5_0", 1, "packet_seq_err", 3);
	count("mlx5_0", 2, "packet_seq_err", 4);
	count("mlx5_1", 2, "packet_seq_err", 5);
	ck_assert_int_eq(options_set(&opt, "rdma_device=mlx5_0:2", OPTIONS_COMMAND, why), 0);
	node_rdma_attend(&node);
	ck_assert_uint_eq(figure("mlx5_0", "2"), 4);
	ck_assert_uint_eq(node.rdma.count, 1);
}
END_TEST

/* Nothing of this node's goes by it. */
START_TEST(none_without_a_way)
{
	char why[OPTIONS_WHY_BYTES];

	options_init(&opt, OPTIONS_MOUNT);
	ck_assert_int_eq(options_set(&opt, "mirror=tcp:a:1", OPTIONS_COMMAND, why), 0);
	count("mlx5_0", 1, "packet_seq_err", 3);
	node_rdma_attend(&node);
	ck_assert_uint_eq(node.rdma.count, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("node_rdma");
	TCase *c = tcase_create("all");

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, each_port_that_counts);
	tcase_add_test(c, only_the_port_that_is_chosen);
	tcase_add_test(c, none_without_a_way);
	suite_add_tcase(s, c);
	return unit_run(s);
}
