/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store stops at every n-th call that changes media, for every n, and is opened again. Two ways in
 * which a machine may go down: all that was asked for reached the medium, or only what had been synced
 * did (unsynced files are empty, unsynced names and removals undone). Either way the checkpoint before
 * or the new one must be there in full, and the next one must succeed.
 */
#include "log/ckpt_internal.h"

#include "tests/unit/ckpt_fixture.h"
#include "tests/unit/unit_main.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>

#define CHANGES_MAX 256

enum change_kind { CHANGE_CREATE, CHANGE_RENAME, CHANGE_UNLINK };

struct change { /* of a name, not yet synced with the directory */
	enum change_kind kind;
	char name[CKPT_NAME_BYTES], other[CKPT_NAME_BYTES];
};

struct crash {
	int dirfd;               /* of the volume: removed files wait here as "grave-NAME" */
	unsigned int calls, stop_at;
	bool lose_unsynced;
	struct change changes[CHANGES_MAX];
	unsigned int change_count;
	int unsynced_fds[CHANGES_MAX]; /* own descriptors of files with unsynced data, by ino */
	ino_t unsynced_inos[CHANGES_MAX];
	unsigned int unsynced_count;
};

static bool stopped(struct crash *k)
{
	return ++k->calls >= k->stop_at;
}

static struct change *change_add(struct crash *k, enum change_kind kind, const char *name)
{
	struct change *ch = &k->changes[k->change_count++];

	ck_assert_uint_le(k->change_count, CHANGES_MAX);
	ch->kind = kind;
	snprintf(ch->name, sizeof(ch->name), "%s", name);
	return ch;
}

static void data_forget(struct crash *k, ino_t ino)
{
	for (unsigned int i = 0; i < k->unsynced_count;) {
		if (k->unsynced_inos[i] != ino) {
			i++;
			continue;
		}
		close(k->unsynced_fds[i]);
		k->unsynced_count--;
		k->unsynced_fds[i] = k->unsynced_fds[k->unsynced_count];
		k->unsynced_inos[i] = k->unsynced_inos[k->unsynced_count];
	}
}

static ino_t fd_ino(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return st.st_ino;
}

static int crash_open(void *ctx, int dirfd, const char *name, int flags, mode_t mode)
{
	struct crash *k = ctx;
	int fd;

	if (stopped(k))
		return -EIO;
	fd = ckpt_file_ops_system.open(NULL, dirfd, name, flags, mode);
	if (fd >= 0) {
		change_add(k, CHANGE_CREATE, name);
		data_forget(k, fd_ino(fd));
		k->unsynced_inos[k->unsynced_count] = fd_ino(fd);
		k->unsynced_fds[k->unsynced_count++] = dup(fd);
	}
	return fd;
}

static int crash_write(void *ctx, int fd, const void *buf, size_t len, off_t off)
{
	struct crash *k = ctx;

	if (stopped(k)) { /* torn */
		if (k->calls == k->stop_at)
			ckpt_file_ops_system.write(NULL, fd, buf, len / 2 & ~4095UL, off);
		return -EIO;
	}
	return ckpt_file_ops_system.write(NULL, fd, buf, len, off);
}

static int crash_truncate(void *ctx, int fd, off_t len)
{
	return stopped(ctx) ? -EIO : ckpt_file_ops_system.truncate(NULL, fd, len);
}

static int crash_fsync(void *ctx, int fd)
{
	struct crash *k = ctx;

	if (stopped(k))
		return -EIO;
	data_forget(k, fd_ino(fd));
	return 0; /* no real power is cut */
}

static int crash_rename(void *ctx, int dirfd, const char *from, const char *to)
{
	struct crash *k = ctx;
	struct change *ch;

	if (stopped(k))
		return -EIO;
	ch = change_add(k, CHANGE_RENAME, from);
	snprintf(ch->other, sizeof(ch->other), "%s", to);
	return ckpt_file_ops_system.rename(NULL, dirfd, from, to);
}

static void grave_name(const char *name, char out[64])
{
	snprintf(out, 64, "grave-%s", name);
}

static int crash_unlink(void *ctx, int dirfd, const char *name)
{
	struct crash *k = ctx;
	char grave[64];

	if (stopped(k))
		return -EIO;
	grave_name(name, grave);
	if (renameat(dirfd, name, k->dirfd, grave) != 0)
		return -errno;
	change_add(k, CHANGE_UNLINK, name);
	return 0;
}

static int crash_fsync_dir(void *ctx, int dirfd)
{
	struct crash *k = ctx;

	(void)dirfd;
	if (stopped(k))
		return -EIO;
	k->change_count = 0;
	return 0;
}

static const struct ckpt_file_ops crash_ops = {
	.open = crash_open,
	.write = crash_write,
	.truncate = crash_truncate,
	.fsync = crash_fsync,
	.rename = crash_rename,
	.unlink = crash_unlink,
	.fsync_dir = crash_fsync_dir,
};

static void change_undo(struct crash *k, int dirfd, const struct change *ch)
{
	char grave[64];

	switch (ch->kind) {
	case CHANGE_CREATE:
		unlinkat(dirfd, ch->name, 0);
		break;
	case CHANGE_RENAME:
		renameat(dirfd, ch->other, dirfd, ch->name);
		break;
	case CHANGE_UNLINK:
		grave_name(ch->name, grave);
		renameat(k->dirfd, grave, dirfd, ch->name);
		break;
	}
}

/* The power is gone: what the medium forgets, where it may. */
static void power_cut(struct crash *k, int dirfd)
{
	if (k->lose_unsynced) {
		while (k->change_count > 0)
			change_undo(k, dirfd, &k->changes[--k->change_count]);
		for (unsigned int i = 0; i < k->unsynced_count; i++)
			ck_assert_int_eq(ftruncate(k->unsynced_fds[i], 0), 0);
	}
	while (k->unsynced_count > 0)
		close(k->unsynced_fds[--k->unsynced_count]);
}

/* Checkpoints of 20 items more each; the third drops the first's segments. Stops at the first error. */
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
static bool crash_at(struct ckpt_fixture *fx, unsigned int stop_at, bool lose_unsynced)
{
	struct crash k = { .dirfd = fx->dirfd, .stop_at = stop_at, .lose_unsynced = lose_unsynced };
	struct ckpt_hooks hooks = { .ops = &crash_ops, .ops_ctx = &k, .seg_bytes = 12000,
				    .no_uring = true, .no_direct = true };
	unsigned int acknowledged;
	bool crashed;

	ckpt_set_hooks(fx->c, &hooks);
	acknowledged = workload(fx->c);
	crashed = k.calls >= stop_at;
	power_cut(&k, ckpt_dirfd(fx->c));
	fixture_reopen(fx);
	k.stop_at = UINT_MAX;
	k.change_count = 0;
	ckpt_set_hooks(fx->c, &hooks);
	check_reopened(fx, acknowledged);
	k.lose_unsynced = false;
	power_cut(&k, ckpt_dirfd(fx->c));
	ck_assert_int_eq(ckpt_dir_each(fx->c, remove_one, fx->c), 0);
	return crashed;
}

START_TEST(stops_anywhere)
{
	struct ckpt_fixture fx;
	unsigned int n = 1;

	fixture_open(&fx);
	while (crash_at(&fx, n, _i == 1))
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
	tcase_add_loop_test(t, stops_anywhere, 0, 2);
	suite_add_tcase(s, t);
	return unit_run(s);
}
