/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints of a store under random operations, each compared (by digest) with a store that
 * replayed the same records up to the checkpoint's LSN. Operations go on between the writer's
 * batches: from its progress callback, so that a seed decides everything, and once from another
 * thread.
 */
#include "fs/store/image.h"

#include "log/ckpt_internal.h"
#include "tests/unit/store_gen.h"
#include "tests/unit/unit_main.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <unistd.h>

#define ARENA (512ULL << 20)

static const uint8_t uuid[16] = "0123456789abcde";

struct world {
	char path[256];
	int dirfd;
	struct ckpt *c;
	struct fixture f, replayed;
	struct gen *g;
	uint64_t frozen_lsn;
	unsigned steps_between;  /* operations after each batch */
	int commit_err;
	unsigned calls, fail_at; /* of changes of media; 0: never */
	struct ckpt_hooks hooks;
};

static struct world w;

static bool fails(struct world *x)
{
	return x->fail_at && ++x->calls >= x->fail_at;
}

static int file_open(void *ctx, int dirfd, const char *name, int flags, mode_t mode)
{
	return fails(ctx) ? -EIO : ckpt_file_ops_system.open(NULL, dirfd, name, flags, mode);
}

static int file_write(void *ctx, int fd, const void *buf, size_t len, off_t off)
{
	return fails(ctx) ? -ENOSPC : ckpt_file_ops_system.write(NULL, fd, buf, len, off);
}

static int file_truncate(void *ctx, int fd, off_t len)
{
	return fails(ctx) ? -EIO : ckpt_file_ops_system.truncate(NULL, fd, len);
}

static int file_fsync(void *ctx, int fd)
{
	return fails(ctx) ? -EIO : ckpt_file_ops_system.fsync(NULL, fd);
}

static int file_rename(void *ctx, int dirfd, const char *from, const char *to)
{
	return fails(ctx) ? -EIO : ckpt_file_ops_system.rename(NULL, dirfd, from, to);
}

static int file_unlink(void *ctx, int dirfd, const char *name)
{
	return ckpt_file_ops_system.unlink(NULL, dirfd, name);
}

static int file_fsync_dir(void *ctx, int dirfd)
{
	return fails(ctx) ? -EIO : ckpt_file_ops_system.fsync_dir(NULL, dirfd);
}

static const struct ckpt_file_ops file_ops = {
	.open = file_open,
	.write = file_write,
	.truncate = file_truncate,
	.fsync = file_fsync,
	.rename = file_rename,
	.unlink = file_unlink,
	.fsync_dir = file_fsync_dir,
};

static void setup(void)
{
	const char *tmp = getenv("TMPDIR"), *seed = getenv("KVFS_TEST_SEED");

	memset(&w, 0, sizeof(w));
	snprintf(w.path, sizeof(w.path), "%s/kvfs-image-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(w.path));
	w.dirfd = open(w.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(ckpt_open(w.dirfd, true, uuid, &w.c), 0);
	w.hooks = (struct ckpt_hooks){
		.ops = &file_ops, .ops_ctx = &w, .seg_bytes = 1 << 20, .no_uring = true
	};
	ckpt_set_hooks(w.c, &w.hooks);
	fixture_open(&w.f, ARENA, 100000);
	fixture_open(&w.replayed, ARENA, 100000);
	w.g = gen_create(&w.f, seed ? strtoull(seed, NULL, 10) : 1);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	return remove(path);
}

static void teardown(void)
{
	gen_destroy(w.g);
	fixture_close(&w.f);
	fixture_close(&w.replayed);
	ckpt_close(w.c);
	close(w.dirfd);
	nftw(w.path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void on_frozen(void *ctx, uint64_t lsn)
{
	struct world *x = ctx;

	x->frozen_lsn = lsn;
}

static int on_may_commit(void *ctx, uint64_t lsn)
{
	struct world *x = ctx;

	ck_assert_uint_eq(lsn, x->frozen_lsn);
	return x->commit_err;
}

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
	struct world *x = ctx;

	ck_assert_uint_le(done, total);
	for (unsigned i = 0; i < x->steps_between; i++)
		gen_step(x->g);
}

static const struct image_write_ops write_ops = { on_frozen, on_may_commit, on_progress };

static int write_image(struct ckpt_info *ret_info)
{
	return image_write(store_image(w.f.st), w.c, 1, &write_ops, &w, ret_info);
}

/* The checkpoint holds what replaying up to its LSN gives. */
static void check_image(const struct ckpt_info *info)
{
	uint8_t expect[16], got[16];
	const char *why = "";
	struct fixture loaded;
	int err;

	gen_replay(w.g, &w.replayed, info->lsn);
	store_digest(w.replayed.st, expect);
	fixture_open(&loaded, ARENA, 100000);
	err = image_load(store_image(loaded.st), w.c, info, NULL, NULL, &why);
	ck_assert_msg(!err, "load: %d %s", err, why);
	store_digest(loaded.st, got);
	ck_assert_mem_eq(expect, got, 16);
	store_lock(loaded.st);
	ck_assert_uint_eq(store_lsn_locked(loaded.st), info->lsn);
	store_unlock(loaded.st);
	fixture_close(&loaded);
}

static void steps(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		gen_step(w.g);
}

START_TEST(each_checkpoint_is_exact)
{
	struct ckpt_info info;

	for (unsigned round = 0; round < 12; round++) {
		steps(400);
		w.steps_between = round % 3 * 6;
		ck_assert_int_eq(write_image(&info), 0);
		ck_assert_uint_eq(info.lsn, w.frozen_lsn);
		check_image(&info);
	}
	for (unsigned op = RECORD_NOOP; op < RECORD_OPCODE_END; op++)
		ck_assert_msg(w.g->done[op] > 1, "opcode %u: %u times", op, w.g->done[op]);
}
END_TEST

START_TEST(unchanged_store_writes_nothing)
{
	struct ckpt_info one, two;
	struct ckpt_stats stats;

	steps(500);
	ck_assert_int_eq(write_image(&one), 0);
	ck_assert_uint_eq(image_dirty_bytes(store_image(w.f.st)), 0);
	ck_assert_int_eq(write_image(&two), 0);
	ckpt_stats(w.c, &stats);
	ck_assert_uint_lt(stats.written_bytes, 20000);
	check_image(&two);
}
END_TEST

START_TEST(garbage_is_cleaned)
{
	struct ckpt_info info;
	uint64_t first = 0, bytes_max = 0;

	image_set_limits(store_image(w.f.st), 1 << 20, 1 << 20);
	steps(1000);
	for (unsigned round = 0; round < 24; round++) {
		steps(100);
		w.steps_between = 2;
		ck_assert_int_eq(write_image(&info), 0);
		ck_assert_uint_ge(info.first_seg, first);
		first = info.first_seg;
		if (info.bytes > bytes_max)
			bytes_max = info.bytes;
		if (round % 6 == 5)
			check_image(&info);
	}
	ck_assert_uint_gt(first, 5);
}
END_TEST

static void apply_kept(struct record *r)
{
	ck_assert_int_eq(fixture_apply(&w.f, r), 0);
	gen_keep(w.g, r);
}

enum { FILES = 400, SURVIVORS = 200, FIRST_INO = STORE_ROOT_INO + 1 };

/* After the first batch: every file that is left changes. */
static void change_survivors(void *ctx, uint64_t done, uint64_t total)
{
	unsigned *calls = ctx;

	if ((*calls)++)
		return;
	for (unsigned i = 0; i < SURVIVORS; i++) {
		struct record r = { .opcode = RECORD_WRITE,
				    .ino = FIRST_INO + i,
				    .data = "changed",
				    .data_len = 7 };

		apply_kept(&r);
	}
}

/* What lives in a segment that is being cleaned changes before it was written again. */
START_TEST(objects_change_while_their_segment_is_cleaned)
{
	const struct image_write_ops ops = { .progress = change_survivors };
	struct ckpt_info info;
	unsigned calls = 0;
	char name[16];

	image_set_limits(store_image(w.f.st), 0, 1 << 30);
	for (unsigned i = 0; i < FILES; i++) {
		struct record r = { .opcode = RECORD_CREATE, .ino = FIRST_INO + i };
		struct record data = { .opcode = RECORD_WRITE, .ino = r.ino, .data = w.g->data };

		r.u.create.parent_ino = STORE_ROOT_INO;
		r.u.create.mode = S_IFREG;
		snprintf(name, sizeof(name), "f%u", i);
		record_set_name(&r, name);
		apply_kept(&r);
		data.data_len = i < SURVIVORS ? 100 : 20000;
		apply_kept(&data);
	}
	ck_assert_int_eq(write_image(&info), 0);
	for (unsigned i = SURVIVORS; i < FILES; i++) {
		struct record r = { .opcode = RECORD_SETATTR, .ino = FIRST_INO + i };

		r.u.setattr.valid_mask = RECORD_SET_SIZE;
		apply_kept(&r);
	}
	ck_assert_int_eq(image_write(store_image(w.f.st), w.c, 1, &ops, &calls, &info), 0);
	ck_assert_uint_gt(info.first_seg, 1);
	ck_assert_uint_gt(calls, 1);
	check_image(&info);
	ck_assert_int_eq(write_image(&info), 0);
	check_image(&info);
}
END_TEST

/* Nothing is lost when a checkpoint fails, wherever it does; some go on after the failed
 * one is undone. */
START_TEST(failures_lose_nothing)
{
	struct ckpt_info info;

	image_set_limits(store_image(w.f.st), 1 << 20, 1 << 20);
	for (unsigned n = 1; n < 30; n++) {
		int err;

		steps(150);
		w.calls = 0;
		w.fail_at = n % 12 + 1;
		w.steps_between = 3;
		w.commit_err = n % 7 == 0 ? -EIO : 0;
		err = write_image(&info);
		w.fail_at = 0;
		w.commit_err = 0;
		if (err) {
			ck_assert(err == -EIO || err == -ENOSPC);
			if (n % 3)
				continue;
			steps(20);
			ck_assert_int_eq(write_image(&info), 0);
		}
		check_image(&info);
	}
}
END_TEST

START_TEST(checkpoint_after_loading_is_incremental)
{
	struct ckpt_info one, two;
	struct ckpt_stats stats;
	struct fixture loaded;
	const char *why = "";
	uint8_t expect[16], got[16];

	steps(1500);
	ck_assert_int_eq(write_image(&one), 0);
	fixture_close(&w.f);
	fixture_open(&w.f, ARENA, 100000);
	ck_assert_int_eq(image_load(store_image(w.f.st), w.c, &one, NULL, NULL, &why), 0);
	w.f.lsn = one.lsn;
	w.f.now_ns = 1000000000 + one.lsn * 1000;
	steps(30);
	ck_assert_int_eq(write_image(&two), 0);
	ckpt_stats(w.c, &stats);
	ck_assert_uint_lt(stats.written_bytes * 2, one.bytes);
	check_image(&two);
	for (unsigned round = 0; round < 5; round++) { /* tombstones of what was loaded */
		steps(200);
		ck_assert_int_eq(write_image(&two), 0);
	}
	check_image(&two);
	gen_replay(w.g, &w.replayed, w.f.lsn);
	store_digest(w.replayed.st, expect);
	store_digest(w.f.st, got);
	ck_assert_mem_eq(expect, got, 16);
	fixture_open(&loaded, ARENA, 10);
	ck_assert_int_eq(image_load(store_image(loaded.st), w.c,
				    &(struct ckpt_info){ .first_seg = 1, .last_seg = 0, .lsn = 9 },
				    NULL, NULL, &why),
			 0);
	ck_assert_uint_eq(lookup(&loaded, STORE_ROOT_INO, "x"), 0);
	fixture_close(&loaded);
}
END_TEST

static void *writer_thread(void *arg)
{
	struct ckpt_info *infos = arg;

	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(image_write(store_image(w.f.st), w.c, 1, NULL, NULL, &infos[i]),
				 0);
	return NULL;
}

START_TEST(operations_go_on_in_another_thread)
{
	struct ckpt_info infos[4];
	struct timespec none = { 0 };
	pthread_t thread;

	steps(2000);
	ck_assert_int_eq(pthread_create(&thread, NULL, writer_thread, infos), 0);
	do
		steps(5);
	while (pthread_timedjoin_np(thread, NULL, &none) == ETIMEDOUT);
	check_image(&infos[3]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image");
	TCase *t = tcase_create("all");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, each_checkpoint_is_exact);
	tcase_add_test(t, unchanged_store_writes_nothing);
	tcase_add_test(t, garbage_is_cleaned);
	tcase_add_test(t, objects_change_while_their_segment_is_cleaned);
	tcase_add_test(t, failures_lose_nothing);
	tcase_add_test(t, checkpoint_after_loading_is_incremental);
	tcase_add_test(t, operations_go_on_in_another_thread);
	suite_add_tcase(s, t);
	return unit_run(s);
}
