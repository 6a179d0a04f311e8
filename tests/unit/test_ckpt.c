/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints through the public interface: what is written comes back, and only when
 * it is whole. */
#include "log/ckpt_internal.h"

#include "tests/unit/ckpt_fixture.h"
#include "tests/unit/unit_main.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct ckpt_fixture fx;

static void setup(void)
{
	fixture_open(&fx);
}

static void teardown(void)
{
	fixture_close(&fx);
}

START_TEST(empty_volume)
{
	struct ckpt_info info, infos[2];

	ck_assert_int_eq(ckpt_list(fx.c, infos), 0);
	ck_assert_int_eq(ckpt_pin(fx.c, &info), -ENOENT);
	fixture_commit(&fx, 7, 0, 0, 0, &info);
	ck_assert_uint_eq(info.number, 1);
	ck_assert(info.last_seg < info.first_seg);
	ck_assert_uint_eq(info.bytes, 0);
	ck_assert_int_eq(ckpt_list(fx.c, infos), 1);
	ck_assert_uint_eq(infos[0].lsn, 7);
	fixture_expect(&fx, &info, 0, 0);
}
END_TEST

/* Sizes 0 to the largest, in several segments and blocks, by every way of writing. */
START_TEST(round_trip)
{
	static const struct ckpt_hooks ways[] = {
		{ .seg_bytes = 0 },
		{ .seg_bytes = 300000 },
		{ .seg_bytes = 3 << 20, .no_uring = true },
		{ .seg_bytes = 3 << 20, .no_register = true },
		{ .seg_bytes = 3 << 20, .no_direct = true },
		{ .seg_bytes = 3 << 20, .no_uring = true, .no_direct = true },
	};
	struct ckpt_info info, infos[2];
	struct ckpt_stats stats;

	ckpt_set_hooks(fx.c, &ways[_i]);
	fixture_commit(&fx, 100, 0, 200, 0, &info);
	fixture_expect(&fx, &info, 0, 200);
	ckpt_stats(fx.c, &stats);
	ck_assert_uint_eq(stats.total_count, 1);
	ck_assert_uint_eq(stats.written_bytes, info.bytes);
	ck_assert(!(ways[_i].no_uring && stats.io_uring));
	ck_assert(!(ways[_i].no_direct && stats.direct_io));
	fixture_reopen(&fx);
	ck_assert_int_eq(ckpt_list(fx.c, infos), 1);
	ck_assert_uint_eq(infos[0].next_ino, 1100);
	ck_assert_uint_eq(infos[0].epoch, 3);
	fixture_expect(&fx, &infos[0], 0, 200);
}
END_TEST

START_TEST(small_is_small)
{
	struct ckpt_info info;

	fixture_commit(&fx, 1, 1, 2, 0, &info);
	ck_assert_uint_eq(info.first_seg, 1);
	ck_assert_uint_eq(info.last_seg, 1);
	ck_assert_uint_le(info.bytes, 2 * CKPT_PAGE_BYTES);
}
END_TEST

/* Each adds to the run; two stay; what only older ones named goes. */
START_TEST(incremental)
{
	struct ckpt_info info, infos[2];

	for (unsigned int i = 0; i < 5; i++)
		fixture_commit(&fx, i + 1, i * 10, i * 10 + 10, 0, &info);
	ck_assert_uint_eq(info.first_seg, 1);
	ck_assert_uint_eq(info.last_seg, 5);
	fixture_expect(&fx, &info, 0, 50);
	ck_assert_int_eq(ckpt_list(fx.c, infos), 2);
	ck_assert_uint_eq(infos[0].number, 5);
	ck_assert_uint_eq(infos[1].number, 4);
	fixture_expect(&fx, &infos[1], 0, 40);

	fixture_commit(&fx, 6, 50, 60, 4, &info);
	fixture_expect(&fx, &info, 30, 60);
	ck_assert_uint_eq(fixture_count(&fx, CKPT_NAME_SEG), 6); /* number 5 still names all */
	fixture_commit(&fx, 7, 60, 60, 0, &info);
	ck_assert_uint_eq(info.first_seg, 4);
	ck_assert_uint_eq(fixture_count(&fx, CKPT_NAME_SEG), 3);
	ck_assert_uint_eq(fixture_count(&fx, CKPT_NAME_MANIFEST), 2);
	fixture_commit(&fx, 8, 0, 0, 7, &info); /* all dropped */
	ck_assert(info.last_seg < info.first_seg);
	fixture_commit(&fx, 9, 90, 95, 0, &info);
	ck_assert_uint_eq(info.first_seg, 7);
	fixture_expect(&fx, &info, 90, 95);
}
END_TEST

START_TEST(commit_refuses_a_wrong_run)
{
	struct ckpt_info info, infos[2];
	struct ckpt_writer *w;

	fixture_commit(&fx, 1, 0, 10, 0, &info);
	fixture_commit(&fx, 2, 10, 20, 2, &info);
	w = fixture_begin(&fx, 3, 20, 30);
	ck_assert_int_eq(ckpt_commit(w, 1, 0, &info), -EINVAL);
	w = fixture_begin(&fx, 3, 20, 30);
	ck_assert_int_eq(ckpt_commit(w, 99, 0, &info), -EINVAL);
	ck_assert_int_eq(ckpt_list(fx.c, infos), 2);
	ck_assert_uint_eq(fixture_count(&fx, CKPT_NAME_SEG), 2);
	fixture_expect(&fx, &infos[0], 10, 20);
}
END_TEST

START_TEST(writer_seg_is_where_the_next_goes)
{
	struct ckpt_hooks h = { .seg_bytes = 50000 };
	struct ckpt_writer *w;
	struct iovec iov = { "0123456789", 10 };
	uint64_t seg, expect, last = 0;
	uint32_t bytes;

	ckpt_set_hooks(fx.c, &h);
	w = fixture_begin(&fx, 1, 0, 0);
	for (int i = 0; i < 20000; i++) {
		expect = ckpt_writer_seg(w);
		ck_assert_int_eq(ckpt_writer_add(w, 1, &iov, 1, &seg, &bytes), 0);
		ck_assert_uint_eq(seg, expect);
		ck_assert_uint_eq(bytes, 14);
		ck_assert(seg == last || seg == last + 1);
		last = seg;
	}
	ck_assert_uint_gt(last, 4);
	ckpt_abort(w);
	ck_assert_uint_eq(fixture_count(&fx, CKPT_NAME_SEG), 0);
}
END_TEST

START_TEST(one_writer_and_item_limits)
{
	struct ckpt_writer *w = fixture_begin(&fx, 1, 0, 0), *w2;
	struct iovec iov = { malloc(CKPT_ITEM_BYTES_MAX + 1), CKPT_ITEM_BYTES_MAX + 1 };
	struct ckpt_info info = { .number = 77 };
	uint64_t seg;
	uint32_t bytes;

	ck_assert_int_eq(ckpt_begin(fx.c, 1, 1, &w2), -EBUSY);
	ck_assert_int_eq(ckpt_wipe(fx.c), -EBUSY);
	ck_assert_int_eq(ckpt_writer_add(w, 1, &iov, 1, &seg, &bytes), -EMSGSIZE);
	ck_assert_int_eq(ckpt_commit(w, 0, 0, &info), -EMSGSIZE);
	ck_assert_uint_eq(info.number, 77);
	free(iov.iov_base);
}
END_TEST

START_TEST(pins_keep_files)
{
	struct ckpt_info pinned, info;

	fixture_commit(&fx, 1, 0, 10, 0, &info);
	ck_assert_int_eq(ckpt_pin(fx.c, &pinned), 0);
	for (unsigned int i = 0; i < 4; i++)
		fixture_commit(&fx, 2 + i, 10, 20, 2 + i, &info);
	ck_assert_uint_eq(fixture_count(&fx, CKPT_NAME_MANIFEST), 3);
	fixture_expect(&fx, &pinned, 0, 10);
	ck_assert_int_eq(ckpt_wipe(fx.c), -EBUSY);
	ckpt_unpin(fx.c, &pinned);
	fixture_commit(&fx, 9, 20, 30, 0, &info);
	ck_assert_uint_eq(fixture_count(&fx, CKPT_NAME_MANIFEST), 2);
	ck_assert_int_eq(ckpt_read(fx.c, &pinned, NULL, NULL, NULL), -ENOENT);
	ck_assert_int_eq(ckpt_wipe(fx.c), 0);
	ck_assert_uint_eq(fixture_count(&fx, CKPT_NAME_SEG), 0);
}
END_TEST

START_TEST(leftovers_go_at_begin)
{
	static const char *const junk[] = { "seg-00000000000000ff", "manifest.tmp", "x.tmp" };
	struct ckpt_info info;

	fixture_commit(&fx, 1, 0, 10, 0, &info);
	for (size_t i = 0; i < 3; i++)
		close(openat(ckpt_dirfd(fx.c), junk[i], O_CREAT | O_WRONLY, 0600));
	fixture_reopen(&fx);
	ck_assert_uint_eq(fixture_count(&fx, CKPT_NAME_TMP), 2); /* opening changes nothing */
	fixture_commit(&fx, 2, 10, 20, 0, &info);
	ck_assert_uint_eq(fixture_count(&fx, CKPT_NAME_TMP), 0);
	ck_assert_uint_eq(info.last_seg, 2);
	ck_assert_uint_eq(fixture_count(&fx, CKPT_NAME_SEG), 2);
	fixture_expect(&fx, &info, 0, 20);
}
END_TEST

/* Each byte of the headers and items matters, and the padding's too (sampled). */
START_TEST(damage_is_found)
{
	struct ckpt_info info, infos[2];
	uint64_t bad;

	fixture_commit(&fx, 1, 1, 4, 0, &info);
	for (off_t off = 0; off < (off_t)info.bytes; off += off % 4096 < 100 ? 1 : 61) {
		fixture_flip(&fx, "seg-0000000000000001", off);
		bad = 0;
		ck_assert_msg(ckpt_read(fx.c, &info, NULL, NULL, &bad) == -EBADMSG, "byte %ld",
			      (long)off);
		ck_assert_uint_eq(bad, 1);
		fixture_flip(&fx, "seg-0000000000000001", off);
	}
	ck_assert_int_eq(ckpt_read(fx.c, &info, NULL, NULL, &bad), 0);
	for (off_t off = 0; off < 152; off++) { /* either copy of the manifest will do ... */
		fixture_flip(&fx, "manifest-0000000000000001", off);
		ck_assert_int_eq(ckpt_list(fx.c, infos), 1);
		fixture_flip(&fx, "manifest-0000000000000001", off + 152);
		ck_assert_int_eq(ckpt_list(fx.c, infos), 0); /* ... but not none */
		fixture_flip(&fx, "manifest-0000000000000001", off);
		ck_assert_int_eq(ckpt_list(fx.c, infos), 1);
		fixture_flip(&fx, "manifest-0000000000000001", off + 152);
	}
	ck_assert_int_eq(unlinkat(ckpt_dirfd(fx.c), "seg-0000000000000001", 0), 0);
	ck_assert_int_eq(ckpt_read(fx.c, &info, NULL, NULL, &bad), -EBADMSG);
}
END_TEST

/* The newest turns out damaged: the next one goes on from the one before, in its numbers. */
START_TEST(damaged_is_not_built_upon)
{
	struct ckpt_info info, infos[2];

	fixture_commit(&fx, 1, 0, 10, 0, &info);
	fixture_commit(&fx, 2, 10, 20, 0, &info);
	fixture_flip(&fx, "seg-0000000000000002", 5000);
	ck_assert_int_eq(ckpt_read(fx.c, &info, NULL, NULL, NULL), -EBADMSG);
	fixture_commit(&fx, 3, 20, 30, 0, &info);
	ck_assert_uint_eq(info.number, 3);
	ck_assert_uint_eq(info.last_seg, 2);
	ck_assert_int_eq(ckpt_list(fx.c, infos), 2);
	ck_assert_uint_eq(infos[1].number, 1);
	ck_assert_int_eq(ckpt_read(fx.c, &infos[0], NULL, NULL, NULL), 0);
	ck_assert_int_eq(ckpt_read(fx.c, &infos[1], NULL, NULL, NULL), 0);
}
END_TEST

START_TEST(other_volume_is_refused)
{
	static const uint8_t other[16] = { 9 };
	struct ckpt_info info, infos[2];
	struct ckpt *c;

	fixture_commit(&fx, 1, 0, 10, 0, &info);
	ck_assert_int_eq(ckpt_open(fx.dirfd, false, other, &c), 0);
	ck_assert_int_eq(ckpt_list(c, infos), 0);
	ckpt_close(c);
}
END_TEST

/* As a resync does: the files by name, the manifest last, into another directory. */
START_TEST(copied_files_load)
{
	struct ckpt_fixture to;
	struct ckpt_info info, infos[2];
	char name[CKPT_NAME_BYTES];

	fixture_commit(&fx, 1, 0, 10, 0, &info);
	fixture_commit(&fx, 2, 10, 20, 0, &info);
	fixture_open(&to);
	for (uint64_t seg = info.first_seg; seg <= info.last_seg; seg++) {
		ck_assert_int_eq(ckpt_seg_name(seg, name, sizeof(name)), 0);
		fixture_copy(&fx, &to, name);
	}
	ck_assert_int_eq(ckpt_manifest_name(info.number, name, sizeof(name)), 0);
	fixture_copy(&fx, &to, name);
	ck_assert_int_eq(ckpt_list(to.c, infos), 1);
	fixture_expect(&to, &infos[0], 0, 20);
	fixture_commit(&to, 3, 20, 30, 0, &info);
	fixture_expect(&to, &info, 0, 30);
	fixture_close(&to);
	ck_assert_int_eq(ckpt_seg_name(1, name, 10), -ENAMETOOLONG);
}
END_TEST

/* Fails in the middle of a checkpoint larger than the room; the one before stays, and
 * room is back. */
static void expect_failure(int expected)
{
	struct ckpt_info info, infos[2];
	struct ckpt_writer *w;
	struct iovec iov = { calloc(1, 1 << 20), 1 << 20 };
	uint64_t seg;
	uint32_t bytes;
	int err = 0;

	fixture_commit(&fx, 1, 1, 10, 0, &info);
	w = fixture_begin(&fx, 2, 0, 0);
	for (int i = 0; i < 40 && !err; i++)
		err = ckpt_writer_add(w, 1, &iov, 1, &seg, &bytes);
	if (err)
		ck_assert_int_eq(err, expected);
	ck_assert_int_eq(ckpt_commit(w, 0, 0, &info), expected);
	ck_assert_uint_eq(fixture_count(&fx, CKPT_NAME_SEG), 1);
	ck_assert_int_eq(ckpt_list(fx.c, infos), 1);
	fixture_expect(&fx, &infos[0], 1, 10);
	fixture_commit(&fx, 3, 10, 20, 0, &info);
	fixture_expect(&fx, &info, 1, 20);
	free(iov.iov_base);
}

START_TEST(file_size_limit)
{
	struct ckpt_hooks h = { .no_uring = _i & 1, .no_direct = (_i & 2) != 0 };
	struct rlimit old, limit;

	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
	limit = (struct rlimit){ 8 << 20, old.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ckpt_set_hooks(fx.c, &h);
	expect_failure(-EFBIG);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
}
END_TEST

START_TEST(full_disk)
{
	struct ckpt_hooks h = { .no_uring = _i & 1 };
	char opts[] = "size=16m";

	ck_assert_int_eq(ckpt_wipe(fx.c), 0);
	ckpt_close(fx.c);
	if (mount("tmpfs", fx.path, "tmpfs", 0, opts) == 0) {
		close(fx.dirfd);
		fx.dirfd = open(fx.path, O_RDONLY | O_DIRECTORY);
		ck_assert_int_eq(ckpt_open(fx.dirfd, true, fixture_uuid, &fx.c), 0);
		ckpt_set_hooks(fx.c, &h);
		expect_failure(-ENOSPC);
		ckpt_close(fx.c);
		close(fx.dirfd);
		ck_assert_int_eq(umount(fx.path), 0);
		fx.dirfd = open(fx.path, O_RDONLY | O_DIRECTORY);
	}
	ck_assert_int_eq(ckpt_open(fx.dirfd, true, fixture_uuid, &fx.c), 0);
}
END_TEST

/* A filesystem without O_DIRECT: some say so at open, some at the first write. */
static int refuse_open(void *ctx, int dirfd, const char *name, int flags, mode_t mode)
{
	int fd = ckpt_file_ops_system.open(NULL, dirfd, name, flags, mode);

	if (fd < 0 || !(flags & O_DIRECT) || *(int *)ctx != 0)
		return fd;
	close(fd);
	return -EINVAL;
}

static int refuse_write(void *ctx, int fd, const void *buf, size_t len, off_t off)
{
	if (*(int *)ctx != 0 && (fcntl(fd, F_GETFL) & O_DIRECT))
		return -EINVAL;
	return ckpt_file_ops_system.write(NULL, fd, buf, len, off);
}

START_TEST(direct_refused)
{
	struct ckpt_file_ops ops = ckpt_file_ops_system;
	int at_write = _i;
	struct ckpt_hooks h = { .ops = &ops, .ops_ctx = &at_write, .no_uring = _i == 1,
				.seg_bytes = 300000 };
	struct ckpt_stats stats;
	struct ckpt_info info;

	ops.open = refuse_open;
	ops.write = refuse_write;
	ckpt_set_hooks(fx.c, &h);
	fixture_commit(&fx, 1, 0, 100, 0, &info);
	fixture_expect(&fx, &info, 0, 100);
	ckpt_stats(fx.c, &stats);
	ck_assert(!stats.direct_io || at_write);
}
END_TEST

/* As a container's filter does. */
static void forbid_uring(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = 4, .filter = code };

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog), 0);
}

START_TEST(uring_forbidden)
{
	struct ckpt_stats stats;
	struct ckpt_info info;

	forbid_uring();
	fixture_commit(&fx, 1, 0, 100, 0, &info);
	fixture_expect(&fx, &info, 0, 100);
	ckpt_stats(fx.c, &stats);
	ck_assert(!stats.io_uring);
}
END_TEST

/* Little memory may be locked: the root's right to is given up for a while. */
START_TEST(memlock_too_low)
{
	struct rlimit old, none = { 1 << 20, 0 }; /* enough for the ring, not for the buffers */
	struct ckpt_info info;

	ck_assert_int_eq(getrlimit(RLIMIT_MEMLOCK, &old), 0);
	none.rlim_max = old.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &none), 0);
	if (geteuid() == 0) {
		ck_assert_int_eq(fchown(ckpt_dirfd(fx.c), 65534, 65534), 0);
		ck_assert_int_eq(fchown(fx.dirfd, 65534, 65534), 0);
		ck_assert_int_eq(seteuid(65534), 0);
	}
	fixture_commit(&fx, 1, 0, 100, 0, &info);
	fixture_expect(&fx, &info, 0, 100);
	if (getuid() == 0)
		ck_assert_int_eq(seteuid(0), 0);
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &old), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ckpt");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, empty_volume);
	tcase_add_loop_test(t, round_trip, 0, 6);
	tcase_add_test(t, small_is_small);
	tcase_add_test(t, incremental);
	tcase_add_test(t, commit_refuses_a_wrong_run);
	tcase_add_test(t, writer_seg_is_where_the_next_goes);
	tcase_add_test(t, one_writer_and_item_limits);
	tcase_add_test(t, pins_keep_files);
	tcase_add_test(t, leftovers_go_at_begin);
	tcase_add_test(t, damage_is_found);
	tcase_add_test(t, damaged_is_not_built_upon);
	tcase_add_test(t, other_volume_is_refused);
	tcase_add_test(t, copied_files_load);
	tcase_add_loop_test(t, file_size_limit, 0, 4);
	tcase_add_loop_test(t, full_disk, 0, 2);
	tcase_add_loop_test(t, direct_refused, 0, 2);
	tcase_add_test(t, memlock_too_low);
	tcase_add_test(t, uring_forbidden);
	suite_add_tcase(s, t);
	return unit_run(s);
}
