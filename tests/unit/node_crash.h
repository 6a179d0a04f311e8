/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_NODE_CRASH_H
#define KVFS_TESTS_NODE_CRASH_H
/*
 * A volume for a crash test of a whole node: superblock, key and checkpoints in a temporary
 * directory, the log on the model medium; all of them count their calls in one struct crash and
 * stop together at the n-th.
 */
#include "fs/node/node.h"
#include "log/logdev_fault.h"
#include "log/logdev_mem.h"
#include "tests/unit/crash_files.h"

#include <ftw.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define CRASH_LOG_BYTES (3U << 20)

struct crash_volume {
	char path[256];
	int dirfd;
	uint64_t seed;             /* decides how the call at the stop is torn */
	struct crash crash;
	/* what was there before the last write of the superblock, until that is synced */
	uint8_t super_before[VOLUME_SUPER_BYTES];
	off_t super_off;
	bool super_unsynced;
	struct ckpt_hooks hooks;
	struct node_media media;
	struct options opt;
};

static struct crash_volume *crash_log_volume; /* log devices have no context of their own */
static struct logdev_ops crash_log_ops;       /* logdev_fault_ops, counted */

/* The machine stops at this very call: what of it reaches the medium. */
static inline void crash_log_strike(struct crash_volume *v, unsigned call)
{
	static const enum logdev_fault_kind kinds[] = {
		LOGDEV_FAULT_CRASH,	LOGDEV_FAULT_CRASH_AFTER, LOGDEV_FAULT_TEAR_PREFIX,
		LOGDEV_FAULT_TEAR_FLIP, LOGDEV_FAULT_TEAR_STALE,
	};
	uint64_t dice = (v->seed + call) * 0x9e3779b97f4a7c15ULL;
	struct logdev_fault fault = {
		.kind = kinds[(dice >> 32) % (sizeof(kinds) / sizeof(kinds[0]))],
		.at = 1,
		.keep_bytes = dice >> 8,
	};

	logdev_fault_arm(&fault);
}

/* False: the machine is down already. */
static inline bool crash_log_call(void)
{
	struct crash_volume *v = crash_log_volume;
	unsigned call = atomic_fetch_add(&v->crash.calls, 1) + 1;

	if (call == v->crash.stop_at)
		crash_log_strike(v, call);
	return call <= v->crash.stop_at;
}

static int crash_log_append(struct logdev *dev, const struct iovec *iov, int iovcnt)
{
	return crash_log_call() ? logdev_fault_ops.append(dev, iov, iovcnt) : -EIO;
}

static int crash_log_rewind(struct logdev *dev)
{
	return crash_log_call() ? logdev_fault_ops.rewind(dev) : -EIO;
}

static int crash_log_check(struct logdev *dev)
{
	return crash_happened(&crash_log_volume->crash) ? -EIO : 0; /* once a second: not counted */
}

/* The directory's number may differ from one opening to the next. */
static int crash_log_create(int dirfd, const char *name, uint64_t size_bytes)
{
	return logdev_fault_ops.create(-1, name, size_bytes);
}

static int crash_log_open(int dirfd, const char *name, struct logdev **ret_dev)
{
	return logdev_fault_ops.open(-1, name, ret_dev);
}

static inline void crash_log_setup(struct crash_volume *v)
{
	crash_log_volume = v;
	crash_log_ops = logdev_fault_ops;
	crash_log_ops.append = crash_log_append;
	crash_log_ops.rewind = crash_log_rewind;
	crash_log_ops.check = crash_log_check;
	crash_log_ops.create = crash_log_create;
	crash_log_ops.open = crash_log_open;
	logdev_fault_wrap(&logdev_mem_ops);
	logdev_fault_disarm();
	/* smaller than oplog_create() makes them: the log is to fill */
	ck_assert_int_eq(crash_log_create(-1, "log.0", CRASH_LOG_BYTES / 2), 0);
	ck_assert_int_eq(crash_log_create(-1, "log.1", CRASH_LOG_BYTES / 2), 0);
}

static inline int crash_super_write(void *ctx, int fd, const void *buf, size_t len, off_t off)
{
	struct crash_volume *v = ctx;

	ck_assert_uint_eq(len, sizeof(v->super_before));
	if (!crash_happened(&v->crash)) {
		memset(v->super_before, 0, sizeof(v->super_before));
		ck_assert_int_ge(pread(fd, v->super_before, len, off), 0);
		v->super_off = off;
		v->super_unsynced = true;
	}
	return crash_write(&v->crash, fd, buf, len, off);
}

static inline int crash_super_fsync(void *ctx, int fd)
{
	struct crash_volume *v = ctx;

	(void)fd;
	if (crash_stopped(&v->crash))
		return -EIO;
	v->super_unsynced = false;
	return 0;
}

static const struct ckpt_file_ops crash_super_ops = {
	.write = crash_super_write,
	.fsync = crash_super_fsync,
};

/* What was not synced may be lost, or torn as it is. */
static inline void crash_super_power_cut(struct crash_volume *v)
{
	int fd;

	if (!v->super_unsynced)
		return;
	v->super_unsynced = false;
	if (!v->crash.lose_unsynced)
		return;
	fd = openat(v->dirfd, VOLUME_SUPERBLOCK_NAME, O_WRONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, v->super_before, sizeof(v->super_before), v->super_off),
			 sizeof(v->super_before));
	close(fd);
}

static inline void crash_volume_write_super(struct crash_volume *v)
{
	struct volume vol = { .dirfd = v->dirfd, .lockfd = -1 };
	struct volume_super *s = &vol.super;

	s->format_version = VOLUME_FORMAT_VERSION;
	s->state = VOLUME_READY;
	s->node_id = 1;
	s->log_bytes = CRASH_LOG_BYTES;
	memset(s->uuid, 0xa5, sizeof(s->uuid));
	volume_key_id(vol.key, s->key_id);
	ck_assert_int_eq(volume_lock(v->dirfd, VOLUME_LOCK_CREATE, &vol.lockfd), 0);
	ck_assert_int_eq(volume_write_super(&vol), 0);
	ck_assert_int_eq(volume_key_write(v->dirfd, VOLUME_KEY_NAME, vol.key, s->uuid), 0);
	close(vol.lockfd);
}

static inline void crash_volume_make(struct crash_volume *v, uint64_t seed, bool lose_unsynced)
{
	const char *tmp = getenv("TMPDIR");

	/* What a medium forgets is the model's to decide: real fsyncs only cost time. */
	if (access("/dev/shm", W_OK) == 0)
		tmp = "/dev/shm";
	memset(v, 0, sizeof(*v));
	v->seed = seed;
	snprintf(v->path, sizeof(v->path), "%s/kvfs-crash-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(v->path));
	v->dirfd = open(v->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(v->dirfd, 0);
	crash_volume_write_super(v);
	ck_assert_int_eq(mkdirat(v->dirfd, CKPT_DIR_NAME, 0700), 0);
	v->crash = (struct crash){ .dirfd = v->dirfd,
				   .stop_at = UINT_MAX,
				   .lose_unsynced = lose_unsynced };
	v->hooks = (struct ckpt_hooks){ .ops = &crash_file_ops,
					.ops_ctx = &v->crash,
					.seg_bytes = 300000,
					.no_uring = true,
					.no_direct = true };
	v->media = (struct node_media){ .log = &crash_log_ops,
					.ckpt = &v->hooks,
					.super = &crash_super_ops,
					.super_ctx = v };
	crash_log_setup(v);
	options_init(&v->opt, OPTIONS_MOUNT);
	v->opt.arena_bytes = 64 << 20;
	v->opt.mr_cache_bytes = 0;
	v->opt.inodes_max = 4096;
	v->opt.min_mirrors = 0;
}

static inline int crash_volume_remove_one(const char *path, const struct stat *st, int flag,
					  struct FTW *ftw)
{
	return remove(path);
}

static inline void crash_volume_remove(struct crash_volume *v)
{
	close(v->dirfd);
	nftw(v->path, crash_volume_remove_one, 8, FTW_DEPTH | FTW_PHYS);
	logdev_mem_reset();
}

/* The node is gone; the media lose what they may, and work again until call number stop_at. */
static inline void crash_volume_restart(struct crash_volume *v, unsigned stop_at)
{
	char ckpt[300];
	int fd;

	snprintf(ckpt, sizeof(ckpt), "%s/%s", v->path, CKPT_DIR_NAME);
	fd = open(ckpt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	crash_power_cut(&v->crash, fd);
	close(fd);
	crash_super_power_cut(v);
	logdev_fault_disarm();
	v->crash.change_count = 0;
	v->crash.calls = 0;
	v->crash.stop_at = stop_at;
}

static inline uint64_t node_lsn(struct node *n)
{
	uint64_t lsn;

	store_lock(n->store);
	lsn = store_lsn_locked(n->store);
	store_unlock(n->store);
	return lsn;
}

#endif
