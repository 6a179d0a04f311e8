/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store stops at every n-th call that changes media, for every n, and is opened again. Two ways
 * in which a machine may go down: all that was asked for reached the medium, or only what had been
 * synced did (unsynced files are empty, unsynced names and removals undone). Either way the
 * checkpoint before or the new one must be there in full, and the next one must succeed.
 */
#include "tests/unit/ckpt_fixture.h"
#include "tests/unit/crash_files.h"
#include "tests/unit/unit_main.h"

#include <limits.h>

/* Checkpoints of 20 items more each; the third drops the first's segments. Stops at
 * the first error. */
static unsigned int workload(struct ckpt *c)
{
	unsigned int done = 0;

	for (; done < 4; done++) {
		struct ckpt_info info;
		struct ckpt_writer *w;
		uint64_t first_new;

		if (ckpt_begin(c, done + 1, 1, &w) != 0)
			break;
		first_new = ckpt_writer_seg(w);
		if (fixture_add(w, done * 20, done * 20 + 20) != 0) {
			ckpt_abort(w);
			break;
		}
		if (ckpt_commit(w, done == 2 ? first_new : 0, 0, &info) != 0)
			break;
	}
	return done;
}

/* Item numbers that the checkpoint of this LSN holds; see workload. */
static unsigned int first_item(uint64_t lsn)
{
	return lsn < 3 ? 0 : 40;
}

/* Everything listed must read in full, and the newest be no older than what was acknowledged. */
static void check_reopened(struct ckpt_fixture *fx, unsigned int acknowledged)
{
	struct ckpt_info infos[2], info;
	int n = ckpt_list(fx->c, infos);
	uint64_t newest = n > 0 ? infos[0].lsn : 0;
	uint64_t first_seg;

	ck_assert_int_ge(n, acknowledged > 0 ? 1 : 0);
	ck_assert_uint_ge(newest, acknowledged);
	ck_assert_uint_le(newest, acknowledged + 1);
	for (int i = 0; i < n; i++)
		fixture_expect(fx, &infos[i], first_item(infos[i].lsn),
			       (unsigned int)infos[i].lsn * 20);
	if (acknowledged >= 2)
		ck_assert_int_eq(n, 2);
	first_seg = n > 0 ? infos[0].first_seg : 0;
	fixture_commit(fx, 9, (unsigned int)newest * 20, (unsigned int)newest * 20 + 5, 0, &info);
	ck_assert(first_seg == 0 || info.first_seg == first_seg);
	fixture_expect(fx, &info, newest ? first_item(newest) : 0, (unsigned int)newest * 20 + 5);
	ck_assert_uint_eq(fixture_count(fx, CKPT_NAME_TMP), 0);
}

static int remove_one(void *ctx, const char *name, enum ckpt_name_kind kind, uint64_t number)
{
	(void)kind;
	(void)number;
	return unlinkat(ckpt_dirfd(ctx), name, 0) == 0 ? 0 : -errno;
}

/* False once stop_at is beyond the workload's end. Leaves the directory empty. */
static bool crash_at(struct ckpt_fixture *fx, unsigned int stop_at, bool lose_unsynced, bool uring)
{
	struct crash k = { .dirfd = fx->dirfd, .stop_at = stop_at, .lose_unsynced = lose_unsynced };
	struct ckpt_hooks hooks = { .ops = &crash_file_ops, .ops_ctx = &k, .seg_bytes = 12000,
				    .no_uring = !uring, .no_direct = true };
	struct ckpt_stats stats;
	unsigned int acknowledged;
	bool crashed;

	ckpt_set_hooks(fx->c, &hooks);
	acknowledged = workload(fx->c);
	crashed = crash_happened(&k);
	ckpt_stats(fx->c, &stats);
	if (stats.io_uring && !crashed)
		ck_assert_uint_gt(k.uring_writes, 10);
	crash_power_cut(&k, ckpt_dirfd(fx->c));
	fixture_reopen(fx);
	k.stop_at = UINT_MAX;
	k.change_count = 0;
	ckpt_set_hooks(fx->c, &hooks);
	check_reopened(fx, acknowledged);
	k.lose_unsynced = false;
	crash_power_cut(&k, ckpt_dirfd(fx->c));
	ck_assert_int_eq(ckpt_dir_each(fx->c, remove_one, fx->c), 0);
	return crashed;
}

/* _i / 2: over io_uring, where it is allowed. */
START_TEST(stops_anywhere)
{
	struct ckpt_fixture fx;
	unsigned int n = 1;

	fixture_open(&fx);
	while (crash_at(&fx, n, _i % 2 == 1, _i / 2 == 1))
		n++;
	ck_assert_uint_gt(n, 60);
	fixture_close(&fx);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ckpt_crash");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, stops_anywhere, 0, 4);
	suite_add_tcase(s, t);
	return unit_run(s);
}
