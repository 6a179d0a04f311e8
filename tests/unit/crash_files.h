/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_CRASH_FILES_H
#define KVFS_TESTS_CRASH_FILES_H
/*
 * File calls of checkpoints that stop at the n-th one that changes media, and what the medium may
 * forget then: all that was asked for reached it, or only what had been synced did (unsynced files
 * are empty, unsynced names and removals undone).
 *
 * Threads: calls count from any thread; the file calls come from one at a time.
 */
#include "log/ckpt_format.h"
#include "log/ckpt_internal.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define CRASH_CHANGES_MAX 1024 /* all segments of a full arena may go at once */

enum crash_change_kind { CRASH_CREATE, CRASH_RENAME, CRASH_UNLINK };

struct crash_change { /* of a name, not yet synced with the directory */
	enum crash_change_kind kind;
	char name[CKPT_NAME_BYTES], other[CKPT_NAME_BYTES];
};

struct crash {
	int dirfd;               /* of the volume: removed files wait here as "grave-NAME" */
	_Atomic unsigned int calls; /* that change media, of all threads */
	_Atomic unsigned int uring_writes;
	unsigned int stop_at;
	bool lose_unsynced;
	struct crash_change changes[CRASH_CHANGES_MAX];
	unsigned int change_count;
	/* own descriptors of files with unsynced data, by ino */
	int unsynced_fds[CRASH_CHANGES_MAX];
	ino_t unsynced_inos[CRASH_CHANGES_MAX];
	unsigned int unsynced_count;
};

/* Counts one call; true when the machine is down by then. */
static inline bool crash_stopped(struct crash *k)
{
	return atomic_fetch_add(&k->calls, 1) + 1 >= k->stop_at;
}

static inline bool crash_happened(const struct crash *k)
{
	return k->calls >= k->stop_at;
}

static inline struct crash_change *crash_change_add(struct crash *k, enum crash_change_kind kind,
						    const char *name)
{
	struct crash_change *ch = &k->changes[k->change_count++];

	ck_assert_uint_le(k->change_count, CRASH_CHANGES_MAX);
	ch->kind = kind;
	snprintf(ch->name, sizeof(ch->name), "%s", name);
	return ch;
}

static inline void crash_data_forget(struct crash *k, ino_t ino)
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

static inline ino_t crash_fd_ino(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return st.st_ino;
}

static inline int crash_open(void *ctx, int dirfd, const char *name, int flags, mode_t mode)
{
	struct crash *k = ctx;
	int fd;

	if (crash_stopped(k))
		return -EIO;
	fd = ckpt_file_ops_system.open(NULL, dirfd, name, flags, mode);
	if (fd >= 0) {
		crash_change_add(k, CRASH_CREATE, name);
		crash_data_forget(k, crash_fd_ino(fd));
		k->unsynced_inos[k->unsynced_count] = crash_fd_ino(fd);
		k->unsynced_fds[k->unsynced_count++] = dup(fd);
	}
	return fd;
}

static inline int crash_write(void *ctx, int fd, const void *buf, size_t len, off_t off)
{
	struct crash *k = ctx;
	unsigned int call;

	call = atomic_fetch_add(&k->calls, 1) + 1;
	if (call >= k->stop_at) { /* torn: within a page only where it is a single one */
		if (call == k->stop_at)
			ckpt_file_ops_system.write(NULL, fd, buf,
						   len / 2 & ~(len > 4096 ? 4095UL : 511UL), off);
		return -EIO;
	}
	return ckpt_file_ops_system.write(NULL, fd, buf, len, off);
}

/* The kernel has written it. What the machine's end leaves of it: torn at the stop, nothing of what
 * was under way behind it. */
static inline int crash_wrote(void *ctx, int fd, size_t len, off_t off, int res)
{
	static const uint8_t nothing[CKPT_BLOCK_BYTES_MAX];
	struct crash *k = ctx;
	unsigned int call = atomic_fetch_add(&k->calls, 1) + 1;
	size_t kept = call == k->stop_at ? len / 2 & ~4095UL : 0;

	atomic_fetch_add(&k->uring_writes, 1);
	if (call < k->stop_at)
		return res;
	ck_assert_uint_le(len - kept, sizeof(nothing));
	ckpt_file_ops_system.write(NULL, fd, nothing, len - kept, off + (off_t)kept);
	return -EIO;
}

static inline int crash_truncate(void *ctx, int fd, off_t len)
{
	return crash_stopped(ctx) ? -EIO : ckpt_file_ops_system.truncate(NULL, fd, len);
}

static inline int crash_fsync(void *ctx, int fd)
{
	struct crash *k = ctx;

	if (crash_stopped(k))
		return -EIO;
	crash_data_forget(k, crash_fd_ino(fd));
	return 0; /* no real power is cut */
}

static inline int crash_rename(void *ctx, int dirfd, const char *from, const char *to)
{
	struct crash *k = ctx;
	struct crash_change *ch;

	if (crash_stopped(k))
		return -EIO;
	ch = crash_change_add(k, CRASH_RENAME, from);
	snprintf(ch->other, sizeof(ch->other), "%s", to);
	return ckpt_file_ops_system.rename(NULL, dirfd, from, to);
}

static inline void crash_grave_name(const char *name, char out[64])
{
	snprintf(out, 64, "grave-%s", name);
}

static inline int crash_unlink(void *ctx, int dirfd, const char *name)
{
	struct crash *k = ctx;
	char grave[64];

	if (crash_stopped(k))
		return -EIO;
	crash_grave_name(name, grave);
	if (renameat(dirfd, name, k->dirfd, grave) != 0)
		return -errno;
	crash_change_add(k, CRASH_UNLINK, name);
	return 0;
}

static inline int crash_fsync_dir(void *ctx, int dirfd)
{
	struct crash *k = ctx;

	(void)dirfd;
	if (crash_stopped(k))
		return -EIO;
	k->change_count = 0;
	return 0;
}

static const struct ckpt_file_ops crash_file_ops = {
	.open = crash_open,
	.write = crash_write,
	.truncate = crash_truncate,
	.fsync = crash_fsync,
	.rename = crash_rename,
	.unlink = crash_unlink,
	.fsync_dir = crash_fsync_dir,
	.wrote = crash_wrote,
};

static inline void crash_change_undo(struct crash *k, int dirfd, const struct crash_change *ch)
{
	char grave[64];

	switch (ch->kind) {
	case CRASH_CREATE:
		unlinkat(dirfd, ch->name, 0);
		break;
	case CRASH_RENAME:
		renameat(dirfd, ch->other, dirfd, ch->name);
		break;
	case CRASH_UNLINK:
		crash_grave_name(ch->name, grave);
		renameat(k->dirfd, grave, dirfd, ch->name);
		break;
	}
}

/* The power is gone: what the medium forgets, where it may. */
static inline void crash_power_cut(struct crash *k, int dirfd)
{
	if (k->lose_unsynced) {
		while (k->change_count > 0)
			crash_change_undo(k, dirfd, &k->changes[--k->change_count]);
		for (unsigned int i = 0; i < k->unsynced_count; i++)
			ck_assert_int_eq(ftruncate(k->unsynced_fds[i], 0), 0);
	}
	while (k->unsynced_count > 0)
		close(k->unsynced_fds[--k->unsynced_count]);
}

#endif
