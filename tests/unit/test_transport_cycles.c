/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects and disconnects over each transport, ever again, without a leak: of descriptors, of
 * memory, and over verbs of what the kernel's list of RDMA resources shows. KVFS_TEST_CYCLES=10000
 * for the long run (over verbs: tests/vm/verbs_cycles.sh).
 */
#include "tests/unit/transport_kinds.h"

#include <malloc.h>

/* Of what can be touched: an arena of malloc's is reserved as a whole. Not by /proc/self/statm,
 * which under qemu-user is qemu's own. */
static unsigned long mapped_pages(void)
{
	unsigned long pages = 0, from, to;
	char line[512], access;
	FILE *f = fopen("/proc/self/maps", "r");

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %c", &from, &to, &access) == 3 && access == 'r')
			pages += (to - from) / 4096;
	fclose(f);
	ck_assert_uint_gt(pages, 0);
	return pages;
}

/* What the kernel lists as this process's of one kind of RDMA objects. */
static unsigned device_objects(const char *kind)
{
	char command[64], own[32], line[1024];
	unsigned n = 0;
	FILE *f;

	snprintf(command, sizeof(command), "rdma resource show %s", kind);
	snprintf(own, sizeof(own), " pid %d ", (int)getpid());
	f = popen(command, "re");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, own) != NULL;
	ck_assert_int_eq(pclose(f), 0);
	return n;
}

static const char *const device_kinds[] = { "qp", "cq", "mr", "pd", "cm_id" };
#define DEVICE_KINDS (sizeof(device_kinds) / sizeof(device_kinds[0]))

/* Over another transport than verbs: all 0. */
static void count_objects(int kind, unsigned ret_objects[DEVICE_KINDS])
{
	for (size_t i = 0; i < DEVICE_KINDS; i++)
		ret_objects[i] = kinds[kind].ops == &transport_verbs_ops ?
					 device_objects(device_kinds[i]) : 0;
}

/* That the list does show what a pair has. */
static void expect_objects(int kind)
{
	unsigned objects[DEVICE_KINDS];

	count_objects(kind, objects);
	if (kinds[kind].ops == &transport_verbs_ops)
		ck_assert_msg(objects[0] >= 4 && objects[1] >= 4 && objects[2] >= 4 &&
			      objects[4] >= 4, "no queue pairs, regions or ids in the list");
}

START_TEST(connects_and_disconnects_without_a_leak)
{
	const char *env = getenv("KVFS_TEST_CYCLES");
	long cycles = env ? strtol(env, NULL, 10) : kinds[_i].inner ? 50 : 300;
	unsigned objects[DEVICE_KINDS], after[DEVICE_KINDS];
	unsigned long pages = 0;
	unsigned fds = 0;

	/* Else an endpoint (2 MiB over verbs) is on the heap from its second time on, in the arena
	 * of whichever thread has it, and a heap that grew once looks like a leak. */
	if (!UNIT_SANITIZED) /* their allocator has no such option */
		ck_assert_int_eq(mallopt(M_MMAP_THRESHOLD, 128 << 10), 1);
	for (long i = 0; i < cycles + 20; i++) {
		struct pair p;

		if (i == 20) { /* allocators and stacks have settled */
			fds = open_fds();
			pages = mapped_pages();
			count_objects(_i, objects);
		}
		use_kind(_i);
		pair_open(&p, kinds[_i].ops, kinds[_i].over_tcp, 2, 64 << 10);
		ck_assert_int_eq(pair_post(&p, p.primary, 1, "x", 1, 0, 1), 1);
		ck_assert_uint_eq(pair_next(&p, p.mirror).imm, 1);
		if (i == 20)
			expect_objects(_i);
		pair_close(&p);
	}
	count_objects(_i, after);
	for (size_t i = 0; i < DEVICE_KINDS; i++)
		ck_assert_msg(after[i] == objects[i], "%s: %u, before %u", device_kinds[i],
			      after[i], objects[i]);
	ck_assert_uint_eq(open_fds(), fds);
	if (!UNIT_SANITIZED) /* shadow memory grows */
		ck_assert_uint_lt(mapped_pages(), pages + 256);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("transport_cycles");
	TCase *t = tcase_create("cycles");
	int first = kinds_first(), end = kinds_end();

	tcase_set_timeout(t, 600);
	tcase_add_loop_test(t, connects_and_disconnects_without_a_leak, first, end);
	suite_add_tcase(s, t);
	return unit_run(s);
}
