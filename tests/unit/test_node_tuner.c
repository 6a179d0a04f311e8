/* SPDX-License-Identifier: Apache-2.0 */
/* The tuner over a node, its pure parts: options to settings and back, and what is read of a
 * machine made of files. The rest runs on a mount: tests/shell/tune.sh. */
#include "common/clock.h"
#include "fs/node/node_tuner_internal.h"
#include "replication/memory/region.h"
#include "replication/transport/transport.h"
#include "tests/unit/unit_main.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct options opt;
static struct node node = { .opt = &opt, .arena_bytes = 1ULL << 30 };

static void setup(void)
{
	options_init(&opt, OPTIONS_MOUNT);
	opt.lanes = 2;
	opt.mirrors.count = 1;
	opt.mirrors.list[0].kind = ADDR_TCP;
}

static void set(const char *list)
{
	char why[OPTIONS_WHY_BYTES] = "";

	options_init(&opt, OPTIONS_MOUNT);
	ck_assert_msg(options_set_list(&opt, list, OPTIONS_COMMAND, why) == 0, "%s", why);
	ck_assert_msg(options_finish(&opt, why) == 0, "%s", why);
}

START_TEST(options_are_the_static_settings)
{
	static const struct { unsigned lanes, poll_us; uint64_t cache; } cases[] = {
		{ 2, 0, 64 << 20 },  { 3, 20, 0 },		{ 40, 1000, 1ULL << 30 },
		{ 7, 51, 100 << 20 }, { 1, 1000000, 1ULL << 40 },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct node_knobs k;

		opt.lanes = cases[i].lanes;
		opt.poll_us = cases[i].poll_us;
		opt.mr_cache_bytes = cases[i].cache;
		k = node_tuner_values(&node, node_tuner_static(&node));
		ck_assert_uint_eq(k.links.lanes, cases[i].lanes);
		ck_assert_uint_eq(k.links.poll_us, cases[i].poll_us);
		ck_assert_uint_eq(k.links.batch, PRIMARY_BATCH_MAX);
		ck_assert_uint_eq(k.reserve_bytes, cases[i].cache);
	}
}
END_TEST

START_TEST(other_levels_are_the_ladders)
{
	struct tuner_settings s;
	struct node_knobs k;

	opt.lanes = 3;
	s = node_tuner_static(&node);
	s.level[TUNER_KNOB_LANES]++;
	s.level[TUNER_KNOB_RESERVE] = 2;
	k = node_tuner_values(&node, s);
	ck_assert_uint_eq(k.links.lanes, 4);
	ck_assert_uint_eq(k.reserve_bytes, 256 << 20);
	ck_assert_uint_eq(k.links.poll_us, opt.poll_us);
}
END_TEST

/* A model's levels stand for the options' own values: with others it is another machine's. */
START_TEST(options_are_conditions)
{
	uint32_t first = node_tuner_conditions(&node, 4);

	ck_assert_uint_eq(node_tuner_conditions(&node, 4), first);
	ck_assert_uint_ne(node_tuner_conditions(&node, 8), first);
	opt.poll_us++; /* the same level */
	ck_assert_uint_ne(node_tuner_conditions(&node, 4), first);
	opt.poll_us--;
	opt.mr_cache_bytes += 1 << 20;
	ck_assert_uint_ne(node_tuner_conditions(&node, 4), first);
}
END_TEST

START_TEST(transports_are_told_apart)
{
	struct link_stats links[3] = {
		{ .state = LINK_LIVE, .transport = "tcp" },
		{ .state = LINK_LIVE, .transport = "shm" },
		{ .state = LINK_RESYNC, .transport = "shm" },
	};

	ck_assert_double_eq(node_tuner_transports(links, 3), TUNER_OVER_TCP + TUNER_OVER_SHM);
	memcpy(links[0].transport, "verbs", 6);
	ck_assert_double_eq(node_tuner_transports(links, 3), TUNER_OVER_VERBS + TUNER_OVER_SHM);
	links[2].state = LINK_LIVE;
	ck_assert_double_eq(node_tuner_transports(links, 3), TUNER_OVER_VERBS + 2 * TUNER_OVER_SHM);
	ck_assert_double_eq(node_tuner_transports(links, 0), 0);
}
END_TEST

START_TEST(lanes_are_opened_ahead)
{
	ck_assert_uint_eq(node_tuner_lanes_open(&node), 4);
	opt.lanes = 10;
	ck_assert_uint_eq(node_tuner_lanes_open(&node), 20);
	opt.lanes = 30;
	ck_assert_uint_eq(node_tuner_lanes_open(&node), 40);
	opt.tuner = OPTIONS_OFF;
	ck_assert_uint_eq(node_tuner_lanes_open(&node), 30);
	opt.lanes_open = 35; /* as the operator says, also without the tuner */
	ck_assert_uint_eq(node_tuner_lanes_open(&node), 35);
}
END_TEST

/* What is usual depends on the transport; somebody's word counts more. */
START_TEST(lanes_are_usual_with_a_transport)
{
	static const struct { const char *options; unsigned lanes, open; } cases[] = {
		{ "mirror=tcp:a:1", 2, 4 },
		{ "mirror=shm:/a", 2, 4 },
		{ "mirror=verbs:a:1", 20, 40 },
		{ "mirror=verbs:a:1,mirror=tcp:b:1", 2, 40 }, /* for the first */
		{ "mirror=verbs:a:1,lanes=2", 2, 40 },
		{ "mirror=verbs:a:1,lanes=2,lanes_open=4", 2, 4 },
		{ "mirror=verbs:a:1,lanes_open=10", 10, 10 },
		{ "mirror=verbs:a:1,lanes=30", 30, 40 },
		{ "mirror=verbs:a:1,tuner=off", 20, 20 },
		{ "mirror=tcp:a:1,lanes=10", 10, 20 },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		set(cases[i].options);
		ck_assert_msg(opt.lanes == cases[i].lanes, "%s: %u lanes", cases[i].options,
			      opt.lanes);
		ck_assert_msg(node_tuner_lanes_open(&node) == cases[i].open, "%s: %u open",
			      cases[i].options, node_tuner_lanes_open(&node));
	}
}
END_TEST

static void put(const char *root, const char *path, const char *text);

/* What policies are judged against is what a mount over RDMA has, and may. */
START_TEST(the_card_judges_a_verbs_mount)
{
	struct tuner_settings own;
	struct tuner_bounds b, shipped;

	set("mirror=verbs:a:1");
	own = node_tuner_static(&node);
	ck_assert(tuner_settings_equal(own, tuner_settings_shipped));
	ck_assert_uint_eq(opt.lanes,
			  tuner_knob_value(TUNER_KNOB_LANES, own.level[TUNER_KNOB_LANES]));
	ck_assert_uint_eq(opt.poll_us,
			  tuner_knob_value(TUNER_KNOB_POLL, own.level[TUNER_KNOB_POLL]));
	ck_assert_int_eq(region_pool_create(&region_memfd_ops, 64 << 20, 0, &node.regions), 0);
	node.arena_bytes = 4ULL << 30;
	node_tuner_bounds(&node, &b);
	node.arena_bytes = 1ULL << 30;
	region_pool_destroy(node.regions);
	/* of the links, which there are none of here */
	b.hi[TUNER_KNOB_LANES] = tuner_knob_level(TUNER_KNOB_LANES, node_tuner_lanes_open(&node));
	tuner_bounds_shipped(&shipped);
	ck_assert_mem_eq(&b, &shipped, sizeof(b));
}
END_TEST

/* An address without a prefix: verbs where there is a device. A link that has to take tcp after all
 * opens no more than is usual there; one that gets RDMA later all that the tuner may want. */
START_TEST(lanes_of_an_address_without_a_prefix)
{
	char root[] = "/tmp/kvfs-test-XXXXXX", command[64];
	struct primary_config cfg = { .lanes = 0 };

	ck_assert_ptr_nonnull(mkdtemp(root));
	verbs_sys_use(root);
	set("mirror=a:1");
	ck_assert_uint_eq(opt.lanes, 2);
	ck_assert_uint_eq(opt.poll_us, 0);
	node_tuner_lanes(&node, &cfg);
	ck_assert_uint_eq(primary_lanes_open(&cfg, &transport_tcp_ops), 4);
	ck_assert_uint_eq(primary_lanes_open(&cfg, &transport_verbs_ops), 40);
	put(root, "/infiniband/rxe0/ports/1/state", "4: ACTIVE\n");
	put(root, "/infiniband/rxe0/ports/1/gid_attrs/types/0", "RoCE v2\n");
	put(root, "/infiniband/rxe0/ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:0a4d:0001\n");
	put(root, "/infiniband_verbs/uverbs0/ibdev", "rxe0\n");
	set("mirror=a:1");
	ck_assert_uint_eq(opt.lanes, 20);
	ck_assert_uint_eq(opt.poll_us, 50);
	node_tuner_lanes(&node, &cfg);
	ck_assert_uint_eq(primary_lanes_open(&cfg, &transport_verbs_ops), 40);
	ck_assert_uint_eq(primary_lanes_open(&cfg, &transport_tcp_ops), 4);
	cfg.lanes_ahead = false;
	ck_assert_uint_eq(primary_lanes_open(&cfg, &transport_tcp_ops), 2);
	verbs_sys_use(NULL);
	snprintf(command, sizeof(command), "rm -rf %s", root);
	ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(the_arena_bounds_the_reserve)
{
	struct tuner_bounds b;

	ck_assert_int_eq(region_pool_create(&region_memfd_ops, 64 << 20, 0, &node.regions), 0);
	node_tuner_bounds(&node, &b); /* a quarter of 1 GiB */
	ck_assert_uint_eq(tuner_knob_value(TUNER_KNOB_RESERVE, b.hi[TUNER_KNOB_RESERVE]), 256);
	opt.mr_cache_bytes = 512 << 20; /* as the operator says */
	node_tuner_bounds(&node, &b);
	ck_assert_uint_eq(tuner_knob_value(TUNER_KNOB_RESERVE, b.hi[TUNER_KNOB_RESERVE]), 512);
	region_pool_destroy(node.regions);
}
END_TEST

static int refuse(void *be, uint64_t off, uint64_t len)
{
	return off >= 2 * REGION_BYTES ? -ENOMEM : region_memfd_ops.commit(be, off, len);
}

/* A reserve that found no memory isn't raised again because it gave back what it had got. */
START_TEST(a_refusal_bounds_the_reserve_for_a_while)
{
	struct region_backend_ops refusing = region_memfd_ops;
	struct region_stats stats;
	struct region_look look;
	struct tuner_bounds b;

	refusing.commit = refuse;
	opt.mr_cache_bytes = 64 << 20;
	ck_assert_int_eq(region_pool_create(&refusing, 64 << 20, 3 * REGION_BYTES, &node.regions),
			 0);
	do
		region_pool_look(node.regions, &look);
	while (!look.commit_err); /* to Check's limit */
	region_pool_set_reserve(node.regions, 0);
	do { /* until all of it went back */
		region_pool_look(node.regions, &look);
		region_pool_stats(node.regions, &stats);
	} while (look.commit_err || stats.ready_bytes > 0);
	node_tuner_bounds(&node, &b);
	ck_assert_uint_eq(tuner_knob_value(TUNER_KNOB_RESERVE, b.hi[TUNER_KNOB_RESERVE]), 64);
	region_pool_destroy(node.regions);
}
END_TEST

static void put(const char *root, const char *path, const char *text)
{
	char full[512], *at;
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (at = strchr(full + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = '\0';
		(void)mkdir(full, 0700);
		*at = '/';
	}
	f = fopen(full, "w");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

START_TEST(a_machine_with_a_card)
{
	char root[] = "/tmp/kvfs-test-XXXXXX", command[64];
	struct tuner_snapshot snap = { 0 };
	struct node_tuner_machine m;
	uint64_t retries;

	ck_assert_ptr_nonnull(mkdtemp(root));
	put(root, "/proc/stat", "cpu  100 20 30 5000 7 3 2 0 0 0\nintr 1\n");
	put(root, "/sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)\n");
	put(root, "/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "1000\n");
	put(root, "/sys/class/infiniband/mlx5_0/device/current_link_speed", "16.0 GT/s PCIe\n");
	put(root, "/sys/class/infiniband/mlx5_0/device/current_link_width", "16\n");
	node_tuner_machine_open(&m, root, NULL);
	node_tuner_machine_read(&m, &snap);
	ck_assert_uint_eq(snap.have, 1U << TUNER_MACHINE_NS | 1U << TUNER_LINK_BYTES);
	ck_assert_uint_eq(snap.counter[TUNER_LINK_BYTES], 4000);
	ck_assert_uint_eq(snap.counter[TUNER_MACHINE_NS],
			  155 * NSEC_PER_SEC / (uint64_t)sysconf(_SC_CLK_TCK));
	ck_assert_double_eq(snap.gauge[TUNER_LINK_CAPACITY], 12.5e9);
	ck_assert_double_eq_tol(snap.gauge[TUNER_PCIE_CAPACITY], 31.5e9, 0.1e9);
	ck_assert_double_gt(snap.gauge[TUNER_CPUS], 0);
	ck_assert(!node_tuner_machine_retries(&m, &retries));
	put(root, "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/packet_seq_err", "3\n");
	put(root, "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/local_ack_timeout_err", "4\n");
	put(root, "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "50\n");
	ck_assert(node_tuner_machine_retries(&m, &retries));
	ck_assert_uint_eq(retries, 7);
	snprintf(command, sizeof(command), "rm -rf %s", root);
	ck_assert_int_eq(system(command), 0);
}
END_TEST

/* Pinned to some processors, what runs on the others is nobody's load. */
START_TEST(own_processors_alone)
{
	char root[] = "/tmp/kvfs-test-XXXXXX", command[64];
	struct tuner_snapshot snap = { 0 };
	struct node_tuner_machine m;

	ck_assert_ptr_nonnull(mkdtemp(root));
	put(root, "/proc/stat", "cpu  900 0 90 5000 7 0 9 0 0 0\ncpu0 100 1 2 50 7 3 4 0 0 0\n"
				"cpu1 700 0 0 9 9 9 9 0 0 0\ncpu2 10 1 1 50 7 1 1 0 0 0\nintr 5\n");
	node_tuner_machine_open(&m, root, NULL);
	CPU_ZERO(&m.set);
	CPU_SET(0, &m.set);
	CPU_SET(2, &m.set);
	node_tuner_machine_read(&m, &snap);
	ck_assert_uint_eq(snap.counter[TUNER_MACHINE_NS],
			  124 * NSEC_PER_SEC / (uint64_t)sysconf(_SC_CLK_TCK));
	snprintf(command, sizeof(command), "rm -rf %s", root);
	ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(a_machine_without_a_card)
{
	struct tuner_snapshot snap = { 0 };
	struct node_tuner_machine m;

	node_tuner_machine_open(&m, "/nowhere", NULL);
	node_tuner_machine_read(&m, &snap);
	ck_assert_uint_eq(snap.have, 0); /* missing, not zero */
	ck_assert_double_eq(snap.gauge[TUNER_LINK_CAPACITY], 0);
}
END_TEST

/* Mirrors over tcp: what their interfaces say; memory from bytes moved. */
START_TEST(bytes_moved_and_interfaces)
{
	char root[] = "/tmp/kvfs-test-XXXXXX", command[64];
	struct node_tuner_machine m = { .root = root, .memory_bytes = 8e9 };
	struct node_tuner_traffic t = { 0 };
	struct link_stats links[3] = {
		{ .state = LINK_LIVE, .transport = "tcp", .interface = "eth0", .sent_bytes = 500 },
		{ .state = LINK_LIVE, .transport = "tcp", .interface = "eth0", .sent_bytes = 700 },
		{ .state = LINK_LIVE, .transport = "shm", .sent_bytes = 900 },
	};
	struct tuner_snapshot one = { 0 }, two = { 0 }, three = { 0 };

	ck_assert_ptr_nonnull(mkdtemp(root));
	put(root, "/sys/class/net/eth0/speed", "10000\n");
	put(root, "/sys/class/net/eth0/statistics/tx_bytes", "1000\n");
	node_tuner_traffic_read(&t, &m, links, 3, 100, 10, &one);
	put(root, "/sys/class/net/eth0/statistics/tx_bytes", "6000\n");
	for (unsigned i = 0; i < 3; i++)
		links[i].sent_bytes += 1000;
	node_tuner_traffic_read(&t, &m, links, 3, 1100, 60, &two);
	ck_assert_uint_eq(two.counter[TUNER_MEM_BYTES] - one.counter[TUNER_MEM_BYTES],
			  4 * 1000 + 2 * 50 + 3 * 2 * 1000);
	ck_assert_double_eq(two.gauge[TUNER_MEM_CAPACITY], 8e9);
	ck_assert_uint_eq(two.counter[TUNER_LINK_BYTES] - one.counter[TUNER_LINK_BYTES], 5000);
	ck_assert_double_eq(two.gauge[TUNER_LINK_CAPACITY], 1.25e9);
	ck_assert_uint_eq(two.estimated, 1U << TUNER_MEM_BYTES);
	/* No counter: what we sent over it, as an estimate. */
	put(root, "/sys/class/net/eth1/speed", "1000\n");
	memcpy(links[1].interface, "eth1", 5);
	node_tuner_traffic_read(&t, &m, links, 3, 1100, 60, &one);
	links[0].sent_bytes += 10;
	links[1].sent_bytes += 20;
	links[2].sent_bytes += 40;
	node_tuner_traffic_read(&t, &m, links, 3, 1100, 60, &three);
	ck_assert_uint_eq(three.counter[TUNER_LINK_BYTES] - one.counter[TUNER_LINK_BYTES], 30);
	ck_assert_uint_eq(three.estimated, 1U << TUNER_MEM_BYTES | 1U << TUNER_LINK_BYTES);
	ck_assert_double_eq(three.gauge[TUNER_LINK_CAPACITY], 1.375e9);
	snprintf(command, sizeof(command), "rm -rf %s", root);
	ck_assert_int_eq(system(command), 0);
}
END_TEST

/* Over RDMA the device's counters tell what was sent again, from when a link goes by it; where it
 * has none, that nothing was put off does not mean that nothing was lost. */
START_TEST(retries_are_counted_or_missing)
{
	static const char counter[] =
		"/sys/class/infiniband/rxe0/ports/1/hw_counters/completer_retry_err";
	char root[] = "/tmp/kvfs-test-XXXXXX", command[64];
	struct link_stats link = { .state = LINK_LIVE, .transport = "tcp" };
	struct node_tuner_traffic t = { 0 };
	struct tuner_snapshot snap = { 0 };
	struct node_tuner_machine m;

	ck_assert_ptr_nonnull(mkdtemp(root));
	put(root, "/sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE\n");
	node_tuner_machine_open(&m, root, NULL);
	node_tuner_retries_read(&t, &m, &link, 1, 5, &snap);
	ck_assert_uint_eq(snap.have, 1U << TUNER_RETRIES);
	ck_assert_uint_eq(snap.counter[TUNER_RETRIES], 5);
	memcpy(link.transport, "verbs", 6);
	snap.have = 0;
	node_tuner_retries_read(&t, &m, &link, 1, 5, &snap);
	ck_assert_uint_eq(snap.have, 0);
	put(root, counter, "100\n"); /* before it was ours */
	node_tuner_retries_read(&t, &m, &link, 1, 5, &snap);
	ck_assert_uint_eq(snap.have, 1U << TUNER_RETRIES);
	ck_assert_uint_eq(snap.counter[TUNER_RETRIES], 5);
	put(root, counter, "130\n");
	node_tuner_retries_read(&t, &m, &link, 1, 6, &snap);
	ck_assert_uint_eq(snap.counter[TUNER_RETRIES], 36);
	put(root, counter, "2\n"); /* the driver was loaded anew */
	node_tuner_retries_read(&t, &m, &link, 1, 6, &snap);
	ck_assert_uint_eq(snap.counter[TUNER_RETRIES], 36);
	snprintf(command, sizeof(command), "rm -rf %s", root);
	ck_assert_int_eq(system(command), 0);
}
END_TEST

/* Loopback has no speed, shm no link, and RDMA counters are for links over RDMA. */
START_TEST(links_without_a_load)
{
	struct node_tuner_machine m = { .root = "/nowhere" };
	struct node_tuner_traffic t = { 0 };
	struct link_stats link = { .state = LINK_LIVE, .transport = "shm" };
	struct tuner_snapshot snap = { .have = 1U << TUNER_LINK_BYTES };

	snap.gauge[TUNER_LINK_CAPACITY] = snap.gauge[TUNER_PCIE_CAPACITY] = 1;
	memcpy(link.transport, "verbs", 6);
	node_tuner_traffic_read(&t, &m, &link, 1, 0, 0, &snap);
	ck_assert_uint_ne(snap.have & 1U << TUNER_LINK_BYTES, 0);
	ck_assert_double_eq(snap.gauge[TUNER_PCIE_CAPACITY], 1);
	memcpy(link.transport, "shm", 4);
	node_tuner_traffic_read(&t, &m, &link, 1, 0, 0, &snap);
	ck_assert_uint_eq(snap.have, 1U << TUNER_MEM_BYTES);
	ck_assert_double_eq(snap.gauge[TUNER_LINK_CAPACITY], 0);
	memcpy(link.interface, "lo", 3);
	node_tuner_traffic_read(&t, &m, &link, 1, 0, 0, &snap);
	ck_assert_double_eq(snap.gauge[TUNER_LINK_CAPACITY], 0);
}
END_TEST

START_TEST(memory_is_measured)
{
	struct node_tuner_machine m = { .root = "" };

	node_tuner_machine_measure(&m);
	ck_assert_double_gt(m.memory_bytes, 50e6);
	ck_assert_double_lt(m.memory_bytes, 2e12);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("node_tuner");
	TCase *c = tcase_create("all");

	tcase_add_checked_fixture(c, setup, NULL);
	tcase_add_test(c, options_are_the_static_settings);
	tcase_add_test(c, other_levels_are_the_ladders);
	tcase_add_test(c, options_are_conditions);
	tcase_add_test(c, transports_are_told_apart);
	tcase_add_test(c, lanes_are_opened_ahead);
	tcase_add_test(c, lanes_are_usual_with_a_transport);
	tcase_add_test(c, the_card_judges_a_verbs_mount);
	tcase_add_test(c, lanes_of_an_address_without_a_prefix);
	tcase_add_test(c, the_arena_bounds_the_reserve);
	tcase_add_test(c, a_refusal_bounds_the_reserve_for_a_while);
	tcase_add_test(c, a_machine_with_a_card);
	tcase_add_test(c, own_processors_alone);
	tcase_add_test(c, a_machine_without_a_card);
	tcase_add_test(c, bytes_moved_and_interfaces);
	tcase_add_test(c, retries_are_counted_or_missing);
	tcase_add_test(c, links_without_a_load);
	tcase_add_test(c, memory_is_measured);
	suite_add_tcase(s, c);
	return unit_run(s);
}
