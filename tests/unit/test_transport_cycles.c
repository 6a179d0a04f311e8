/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects and disconnects over each transport, ever again, without a leak: of descriptors, of
 * memory, and over verbs of what the kernel's list of RDMA resources shows. KVFS_TEST_CYCLES=10000
 * for the long run (over verbs: tests/vm/verbs_cycles.sh, where KVFS_TEST_OTHERS=1 says that other
 * processes use the device meanwhile: then only a leak of many cycles shows in its list).
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

/* What the kernel lists of one kind of RDMA objects, whoever's: it names the thread that made each,
 * which may have ended. */
static unsigned device_objects(const char *kind)
{
	char command[64], line[1024];
	unsigned n = 0;
	FILE *f;

	snprintf(command, sizeof(command), "rdma resource show %s", kind);
	f = popen(command, "re");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		n++;
	ck_assert_int_eq(pclose(f), 0);
	return n;
}

static const char *const device_kinds[] = { "qp", "cq", "mr", "pd", "cm_id" };
#define DEVICE_KINDS (sizeof(device_kinds) / sizeof(device_kinds[0]))

/* At most what other processes of this test have just now. */
static unsigned device_others(void)
{
	return getenv("KVFS_TEST_OTHERS") ? 64 : 0;
}

/* What a pair that is closed must have given back. */
struct held {
	unsigned fds, objects[DEVICE_KINDS]; /* objects: all 0 but over verbs */
	unsigned long pages;
};

static struct held held_now(int kind)
{
	struct held h = { .fds = open_fds(), .pages = mapped_pages() };

	for (size_t i = 0; kinds[kind].ops == &transport_verbs_ops && i < DEVICE_KINDS; i++)
		h.objects[i] = device_objects(device_kinds[i]);
	return h;
}

static void expect_no_more(const struct held *before, int kind, long cycle)
{
	struct held h = held_now(kind);

	ck_assert_msg(h.fds == before->fds, "cycle %ld: %u descriptors, before %u", cycle, h.fds,
		      before->fds);
	if (!UNIT_SANITIZED) /* shadow memory grows */
		ck_assert_msg(h.pages < before->pages + 256, "cycle %ld: %lu pages, before %lu",
			      cycle, h.pages, before->pages);
	for (size_t i = 0; i < DEVICE_KINDS; i++)
		ck_assert_msg(h.objects[i] <= before->objects[i] + device_others(),
			      "cycle %ld: %s: %u, before %u", cycle, device_kinds[i], h.objects[i],
			      before->objects[i]);
	if (cycle % 500 == 0)
		printf("%s: %ld cycles: %u descriptors, %lu pages, %u queue pairs\n",
		       kinds[kind].ops->name, cycle, h.fds, h.pages, h.objects[0]);
}

/* That the kernel's list does show what a pair has. */
static void expect_listed(int kind)
{
	struct held h = held_now(kind);

	if (kinds[kind].ops == &transport_verbs_ops)
		ck_assert_msg(h.objects[0] >= 4 && h.objects[1] >= 4 && h.objects[2] >= 4 &&
			      h.objects[4] >= 4, "the list has qp %u, cq %u, mr %u, cm_id %u",
			      h.objects[0], h.objects[1], h.objects[2], h.objects[4]);
}

static void cycle(int kind, bool first)
{
	struct pair p;

	use_kind(kind);
	pair_open(&p, kinds[kind].ops, kinds[kind].over_tcp, 2, 64 << 10);
	ck_assert_int_eq(pair_post(&p, p.primary, 1, "x", 1, 0, 1), 1);
	ck_assert_uint_eq(pair_next(&p, p.mirror).imm, 1);
	if (first)
		expect_listed(kind);
	pair_close(&p);
}

START_TEST(connects_and_disconnects_without_a_leak)
{
	const char *env = getenv("KVFS_TEST_CYCLES");
	long cycles = env ? strtol(env, NULL, 10) : kinds[_i].inner ? 50 : 300;
	struct held before;

	/* Else an endpoint (2 MiB over verbs) is on the heap from its second time on, in the arena
	 * of whichever thread has it, and a heap that grew once looks like a leak. */
	if (!UNIT_SANITIZED) /* their allocator has no such option */
		ck_assert_int_eq(mallopt(M_MMAP_THRESHOLD, 128 << 10), 1);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 0; i < 20; i++) /* allocators and stacks settle */
		cycle(_i, i == 0);
	before = held_now(_i);
	for (long i = 1; i <= cycles; i++) {
		cycle(_i, false);
		if (i % 500 == 0 || i == cycles)
			expect_no_more(&before, _i, i);
	}
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
