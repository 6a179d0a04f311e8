/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real log device, on pools in a temporary directory, and the operation log on it. This
 * program's own msync and fsync stand before the C library's, to fail when a test says so.
 */
#include "log/logdev.h"
#include "log/logdev_pages.h"
#include "log/oplog.h"

#include "tests/unit/oplog_util.h"
#include "tests/unit/unit_main.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPS (&logdev_pmemlog_ops)
#define POOL_BYTES LOGDEV_SIZE_MIN

static char dir[64];
static int dirfd_;
static int msync_error, fsync_error; /* errno to fail with, 0: work */

int msync(void *addr, size_t len, int flags)
{
	static int (*real)(void *, size_t, int);

	if (msync_error != 0) {
		errno = msync_error;
		return -1;
	}
	if (real == NULL)
		*(void **)&real = dlsym(RTLD_NEXT, "msync");
	return real(addr, len, flags);
}

int fsync(int fd)
{
	static int (*real)(int);

	if (fsync_error != 0) {
		errno = fsync_error;
		return -1;
	}
	if (real == NULL)
		*(void **)&real = dlsym(RTLD_NEXT, "fsync");
	return real(fd);
}

static void setup(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%.30s/kvfs-logdev-XXXXXX", tmp != NULL ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY);
	ck_assert_int_ge(dirfd_, 0);
	/* Under force libpmem flushes instead of calling msync. */
	unsetenv("PMEM_IS_PMEM_FORCE");
}

static void teardown(void)
{
	static const char *const names[] = { "p", "log.0", "log.1" };
	int i;

	for (i = 0; i < 3; i++)
		unlinkat(dirfd_, names[i], 0);
	close(dirfd_);
	ck_assert_int_eq(rmdir(dir), 0);
}

static struct logdev *make_pool(void)
{
	struct logdev *dev = NULL;

	ck_assert_int_eq(OPS->create(dirfd_, "p", POOL_BYTES), 0);
	ck_assert_int_eq(OPS->open(dirfd_, "p", &dev), 0);
	return dev;
}

/* What the process may not do is no fault of the medium, nor a full disk. */
START_TEST(limits_are_told_apart)
{
	struct rlimit files, none, size, small;
	struct logdev *dev = NULL;
	int lowest;

	OPS->close(make_pool());
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	lowest = dup(dirfd_);
	ck_assert_int_ge(lowest, 0);
	close(lowest);
	none = (struct rlimit){ (rlim_t)lowest, files.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	ck_assert_int_eq(OPS->open(dirfd_, "p", &dev), -EMFILE);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);

	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &size), 0);
	signal(SIGXFSZ, SIG_IGN);
	small = (struct rlimit){ POOL_BYTES / 2, size.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
	ck_assert_int_eq(OPS->create(dirfd_, "log.0", POOL_BYTES), -EFBIG);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &size), 0);
	ck_assert_int_ne(faccessat(dirfd_, "log.0", F_OK, 0), 0);
}
END_TEST

START_TEST(a_pool_is_read_without_writing)
{
	struct iovec iov = { "abcdefg", 7 };
	struct logdev *dev = make_pool(), *ro = NULL;
	uint64_t capacity = OPS->capacity(dev);
	int fd;

	ck_assert_int_eq(OPS->append(dev, &iov, 1), 0);
	OPS->close(dev);
	ck_assert_int_eq(logdev_readonly_ops.open(dirfd_, "p", &ro), 0);
	ck_assert_uint_eq(logdev_readonly_ops.used(ro), 7);
	ck_assert_uint_eq(logdev_readonly_ops.capacity(ro), capacity);
	logdev_readonly_ops.forget(ro, 7);
	ck_assert_mem_eq(logdev_readonly_ops.base(ro), "abcdefg", 7);
	ck_assert_int_eq(logdev_readonly_ops.append(ro, &iov, 1), -EROFS);
	ck_assert_int_eq(logdev_readonly_ops.rewind(ro), -EROFS);
	logdev_readonly_ops.close(ro);

	ck_assert_int_eq(logdev_readonly_ops.open(dirfd_, "log.0", &ro), -ENOENT);
	fd = openat(dirfd_, "p", O_RDWR);
	ck_assert_int_eq(ftruncate(fd, POOL_BYTES / 2), 0); /* shorter than it says */
	ck_assert_int_eq(logdev_readonly_ops.open(dirfd_, "p", &ro), -EBADMSG);
	ck_assert_int_eq(ftruncate(fd, 100), 0);
	ck_assert_int_eq(logdev_readonly_ops.open(dirfd_, "p", &ro), -EBADMSG);
	close(fd);
}
END_TEST

START_TEST(append_survives_close)
{
	struct iovec iov[3] = { { "abc", 3 }, { NULL, 0 }, { "defg", 4 } };
	struct logdev *dev = make_pool();

	ck_assert_ptr_nonnull(OPS->base(dev));
	ck_assert_uint_eq(OPS->used(dev), 0);
	ck_assert_uint_gt(OPS->capacity(dev), POOL_BYTES - 16384);
	ck_assert_int_eq(OPS->append(dev, iov, 3), 0);
	ck_assert_uint_eq(OPS->used(dev), 7);
	ck_assert_mem_eq(OPS->base(dev), "abcdefg", 7);
	ck_assert_int_eq(OPS->check(dev), 0);
	OPS->close(dev);
	ck_assert_int_eq(OPS->open(dirfd_, "p", &dev), 0);
	ck_assert_uint_eq(OPS->used(dev), 7);
	ck_assert_mem_eq(OPS->base(dev), "abcdefg", 7);
	ck_assert_int_eq(OPS->rewind(dev), 0);
	ck_assert_uint_eq(OPS->used(dev), 0);
	OPS->close(dev);
	ck_assert_int_eq(OPS->open(dirfd_, "p", &dev), 0);
	ck_assert_uint_eq(OPS->used(dev), 0);
	OPS->close(dev);
}
END_TEST

START_TEST(full_pool_changes_nothing)
{
	static uint8_t big[1U << 20];
	struct iovec iov = { big, sizeof(big) };
	struct logdev *dev = make_pool();
	uint64_t used;
	int rc;

	while ((rc = OPS->append(dev, &iov, 1)) == 0)
		;
	ck_assert_int_eq(rc, -ENOSPC);
	used = OPS->used(dev);
	ck_assert_uint_eq(used, 7 * sizeof(big));
	iov.iov_len = OPS->capacity(dev) - used;
	ck_assert_int_eq(OPS->append(dev, &iov, 1), 0);
	iov.iov_len = 1;
	ck_assert_int_eq(OPS->append(dev, &iov, 1), -ENOSPC);
	OPS->close(dev);
}
END_TEST

START_TEST(many_pieces)
{
	static struct iovec iov[5000];
	static uint8_t byte[5000];
	struct logdev *dev = make_pool();
	int i;

	for (i = 0; i < 5000; i++) {
		byte[i] = (uint8_t)(i * 7);
		iov[i] = (struct iovec){ &byte[i], 1 };
	}
	ck_assert_int_eq(OPS->append(dev, iov, 5000), 0);
	ck_assert_mem_eq(OPS->base(dev), byte, 5000);
	OPS->close(dev);
}
END_TEST

START_TEST(create_and_open_errors)
{
	struct logdev *dev = make_pool(), *dev2 = NULL;
	struct stat st;
	int fd, rc;

	ck_assert_int_eq(OPS->create(dirfd_, "p", POOL_BYTES), -EEXIST);
	ck_assert_int_eq(OPS->create(dirfd_, "log.0", 4096), -EINVAL);
	rc = OPS->create(dirfd_, "log.0", 1ULL << 60);
	ck_assert(rc == -ENOSPC || rc == -EFBIG); /* the latter where no file may be so large */
	ck_assert_int_eq(fstatat(dirfd_, "log.0", &st, 0), -1);
	ck_assert_int_eq(fstatat(dirfd_, "p", &st, 0), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(OPS->open(dirfd_, "p", &dev2), -EBUSY);
	OPS->close(dev);
	ck_assert_int_eq(OPS->open(dirfd_, "log.0", &dev2), -ENOENT);
	fd = openat(dirfd_, "log.0", O_CREAT | O_RDWR, 0600);
	ck_assert_int_eq(OPS->open(dirfd_, "log.0", &dev2), -EBADMSG);
	ck_assert_int_eq(ftruncate(fd, POOL_BYTES), 0);
	ck_assert_int_eq(OPS->open(dirfd_, "log.0", &dev2), -EBADMSG);
	ck_assert_int_eq(pwrite(fd, "garbage", 7, 0), 7);
	ck_assert_int_eq(OPS->open(dirfd_, "log.0", &dev2), -EBADMSG);
	close(fd);
	ck_assert_ptr_null(dev2);
}
END_TEST

START_TEST(lost_msync_is_noticed)
{
	struct iovec iov = { "abc", 3 };
	struct logdev *dev = make_pool();

	/* A failed msync that a good fsync makes up for is no error. */
	msync_error = EIO;
	ck_assert_int_eq(OPS->append(dev, &iov, 1), 0);
	fsync_error = EIO;
	ck_assert_int_eq(OPS->append(dev, &iov, 1), -EIO);
	msync_error = fsync_error = 0;
	ck_assert_uint_eq(OPS->used(dev), 3);
	ck_assert_int_eq(OPS->append(dev, &iov, 1), -EIO); /* dead */
	ck_assert_int_eq(OPS->rewind(dev), -EIO);
	ck_assert_int_eq(OPS->check(dev), -EIO);
	OPS->close(dev);
}
END_TEST

START_TEST(lost_msync_of_rewind_is_noticed)
{
	struct logdev *dev = make_pool();

	msync_error = fsync_error = EIO;
	ck_assert_int_eq(OPS->rewind(dev), -EIO);
	msync_error = fsync_error = 0;
	OPS->close(dev);
}
END_TEST

static size_t resident_bytes(struct logdev *dev)
{
	char line[256];
	unsigned long begin = 0, end, kb = 0, base = (unsigned long)OPS->base(dev);
	bool inside = false;
	FILE *f = fopen("/proc/self/smaps", "r");

	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			inside = base >= begin && base < end;
		if (inside && sscanf(line, "Rss: %lu kB", &kb) == 1)
			break;
	}
	if (f != NULL)
		fclose(f);
	return kb * 1024;
}

START_TEST(forget_drops_resident_pages_only)
{
	static uint8_t big[4U << 20];
	struct iovec iov = { big, sizeof(big) };
	struct logdev *dev = make_pool();
	size_t before;

	memset(big, 0x5a, sizeof(big));
	ck_assert_int_eq(OPS->append(dev, &iov, 1), 0);
	before = resident_bytes(dev); /* these, and pages mapped ahead */
	ck_assert_uint_ge(before, sizeof(big));
	OPS->forget(dev, OPS->used(dev));
	ck_assert_uint_le(resident_bytes(dev), before - sizeof(big) + 65536);
	OPS->forget(dev, 0);
	OPS->forget(dev, UINT64_MAX);
	ck_assert_mem_eq(OPS->base(dev), big, sizeof(big));
	OPS->close(dev);
}
END_TEST

/* On tmpfs, with a beginning and an end that no huge page keeps to. */
START_TEST(huge_pages_leave_the_file_whole)
{
	uint64_t bytes = 3 * PAGES_STEP_BYTES + 5 * 4096;
	int fd = memfd_create("pool", MFD_CLOEXEC);
	static const uint8_t zero[4096];
	uint8_t *map, header[8192];
	struct stat st;

	ck_assert_int_ge(fd, 0);
	memset(header, 'h', sizeof(header));
	ck_assert_int_eq(posix_fallocate(fd, 0, (off_t)bytes), 0);
	ck_assert_int_eq(pwrite(fd, header, sizeof(header), 0), sizeof(header));
	ck_assert_int_eq(pages_make_huge(fd, sizeof(header), bytes), 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, bytes);
	ck_assert_uint_ge((uint64_t)st.st_blocks * 512, bytes); /* no hole: a write can't fail */
	map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	ck_assert_mem_eq(map, header, sizeof(header));
	for (uint64_t i = sizeof(header); i < bytes; i += sizeof(zero))
		ck_assert_mem_eq(map + i, zero, sizeof(zero));
	munmap(map, bytes);
	close(fd);
}
END_TEST

/* A copy by cp --sparse=always gets its blocks back when it is opened. */
START_TEST(holes_are_filled)
{
	const int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	struct logdev *dev;
	struct stat st;
	int fd;

	ck_assert_int_eq(OPS->create(dirfd_, "p", POOL_BYTES), 0);
	fd = openat(dirfd_, "p", O_RDWR);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fallocate(fd, hole, 1 << 20, 2 << 20), 0);
	ck_assert_int_eq(OPS->open(dirfd_, "p", &dev), 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_ge(st.st_blocks * 512, st.st_size);
	OPS->close(dev);
	close(fd);
}
END_TEST

/* The medium refuses a store: an error, where the process would have died of SIGBUS. */
START_TEST(refused_store_is_an_error)
{
	static uint8_t bytes[64 << 10];
	struct iovec iov = { .iov_base = bytes, .iov_len = sizeof(bytes) };
	struct logdev *dev = make_pool();
	int rc = 0, fd = openat(dirfd_, "p", O_RDWR);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(OPS->append(dev, &iov, 1), 0);
	ck_assert_int_eq(ftruncate(fd, 1 << 20), 0);
	close(fd);
	for (int i = 0; rc == 0 && i < 64; i++)
		rc = OPS->append(dev, &iov, 1);
	ck_assert_int_eq(rc, -EIO);
	ck_assert_int_eq(OPS->append(dev, &iov, 1), -EIO);
	ck_assert_int_eq(OPS->rewind(dev), -EIO);
	ck_assert_int_eq(OPS->check(dev), -EIO);
	OPS->close(dev);
}
END_TEST

START_TEST(oplog_on_the_real_device)
{
	struct oplog_range range;
	struct oplog *log;
	uint64_t lsn = 1;

	ck_assert_int_eq(oplog_create(OPS, dirfd_, LOGDEV_SIZE_MIN), -EINVAL);
	ck_assert_int_eq(oplog_create(OPS, dirfd_, 2 * LOGDEV_SIZE_MIN), 0);
	ck_assert_int_eq(oplog_create(OPS, dirfd_, 2 * LOGDEV_SIZE_MIN), -EEXIST);
	log = util_open(OPS, dirfd_, &util_cfg, &range);
	ck_assert(!oplog_is_pmem(log));
	ck_assert_int_eq(oplog_start(log, 1, 1), 0);
	for (; lsn <= 4000; lsn += UTIL_GROUP_MAX) {
		int rc = util_append(log, lsn, UTIL_GROUP_MAX, 1, UTIL_DATA_MAX, false);

		if (rc == -ENOSPC) {
			ck_assert_int_eq(oplog_switch(log, 1), 0);
			rc = util_append(log, lsn, UTIL_GROUP_MAX, 1, UTIL_DATA_MAX, false);
		}
		ck_assert_int_eq(rc, 0);
	}
	ck_assert_int_eq(oplog_check(log), 0);
	oplog_close(log);
	log = util_open(OPS, dirfd_, &util_cfg, &range);
	ck_assert_uint_eq(range.last_lsn, lsn - 1);
	ck_assert_uint_eq(util_replay_all(log, range.first_lsn - 1, UTIL_DATA_MAX), lsn - 1);
	oplog_close(log);
}
END_TEST

/* The medium can't give back what the log holds: an error as well. The pool is cut off under the
 * open log, by OPS's open or behind it. */
static struct logdev_ops cut_ops; /* OPS, and log.0 ends early once it is open */

static void cut_off(const char *name)
{
	int fd = openat(dirfd_, name, O_RDWR);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, 1 << 20), 0);
	close(fd);
}

static int cut_open(int fd, const char *name, struct logdev **ret_dev)
{
	int rc = OPS->open(fd, name, ret_dev);

	if (rc == 0 && strcmp(name, "log.0") == 0)
		cut_off(name);
	return rc;
}

static void unlink_pools(void)
{
	ck_assert_int_eq(unlinkat(dirfd_, "log.0", 0), 0);
	ck_assert_int_eq(unlinkat(dirfd_, "log.1", 0), 0);
}

static struct oplog *open_filled(uint64_t *ret_last_lsn)
{
	struct oplog_range range;
	struct oplog *log;
	uint64_t lsn = 1;

	ck_assert_int_eq(oplog_create(OPS, dirfd_, 2 * LOGDEV_SIZE_MIN), 0);
	log = util_open(OPS, dirfd_, &util_cfg, &range);
	ck_assert_int_eq(oplog_start(log, 1, 1), 0);
	for (; lsn <= 1600; lsn += UTIL_GROUP_MAX)
		ck_assert_int_eq(util_append(log, lsn, UTIL_GROUP_MAX, 1, UTIL_DATA_MAX, false), 0);
	*ret_last_lsn = lsn - 1;
	return log;
}

START_TEST(refused_load_is_an_error)
{
	static uint8_t buf[RECORD_BYTES_MAX];
	struct util_replay replay = { .next = 1, .max = UTIL_DATA_MAX };
	struct oplog_range range;
	const char *why = "";
	uint64_t last, got, a, b;
	struct oplog *log = open_filled(&last), *again = NULL;
	size_t len;

	cut_off("log.0");
	ck_assert_int_eq(oplog_read(log, last, buf, sizeof(buf), &len, &got), -EIO);
	ck_assert_int_eq(oplog_read(log, 1, buf, 64 << 10, &len, &got), 0);
	oplog_close(log);
	unlink_pools();

	log = open_filled(&last);
	oplog_close(log);
	log = util_open(OPS, dirfd_, &util_cfg, &range);
	cut_off("log.0");
	ck_assert_int_eq(oplog_replay(log, 0, util_apply, &replay, &a, &b), -EIO);
	oplog_close(log);
	unlink_pools();

	log = open_filled(&last);
	oplog_close(log);
	cut_ops = *OPS;
	cut_ops.open = cut_open;
	ck_assert_int_eq(oplog_open(&cut_ops, dirfd_, &util_cfg, &again, &range, &why), -EIO);
	ck_assert_msg(strstr(why, "log.0"), "%s", why);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("logdev_pmemlog");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, append_survives_close);
	tcase_add_test(t, a_pool_is_read_without_writing);
	tcase_add_test(t, full_pool_changes_nothing);
	tcase_add_test(t, many_pieces);
	tcase_add_test(t, create_and_open_errors);
	tcase_add_test(t, limits_are_told_apart);
	tcase_add_test(t, lost_msync_is_noticed);
	tcase_add_test(t, lost_msync_of_rewind_is_noticed);
	tcase_add_test(t, forget_drops_resident_pages_only);
	tcase_add_test(t, huge_pages_leave_the_file_whole);
	tcase_add_test(t, holes_are_filled);
	tcase_add_test(t, refused_store_is_an_error);
	tcase_add_test(t, refused_load_is_an_error);
	tcase_add_test(t, oplog_on_the_real_device);
	suite_add_tcase(s, t);
	return unit_run(s);
}
