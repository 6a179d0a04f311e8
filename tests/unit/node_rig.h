/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_UNIT_NODE_RIG_H
#define KVFS_TESTS_UNIT_NODE_RIG_H
/*
 * A node without FUSE and without a peer: a volume of its own, records put into log and store as
 * the commit queue or kv-mirror does. One a process: the cases run one after another.
 */
#include "tests/unit/node_crash.h"

#include "common/crc32c.h"
#include "tests/unit/unit_main.h"

#include <dirent.h>

static struct crash_volume volume;
static const struct mirror_progress no_progress;

static inline void volume_make(enum options_role role)
{
	const char *why = "";
	struct volume *v;

	crash_volume_make(&volume, 1, false);
	if (role == OPTIONS_MOUNT)
		return;
	options_init(&volume.opt, role);
	volume.opt.arena_bytes = 64 << 20;
	volume.opt.mr_cache_bytes = 0;
	volume.opt.inodes_max = 4096;
	ck_assert_int_eq(volume_open(volume.path, false, &v, &why), 0);
	v->super.is_mirror = true;
	ck_assert_int_eq(volume_write_super(v), 0);
	volume_close(v);
}

static inline struct node *node_start(void)
{
	char why[NODE_WHY_BYTES] = "";
	struct node *n = NULL;

	crash_volume_restart(&volume, UINT_MAX);
	ck_assert_msg(node_open(&volume.opt, volume.path, &volume.media, &n, why) == 0, "%s", why);
	return n;
}

static inline void digest_of(struct node *n, uint8_t out[16])
{
	store_digest(n->store, out);
}

static bool want_between;

/* One more file, in the log and in the store. Returns its record's LSN. */
static inline uint64_t put(struct node *n, uint64_t epoch)
{
	uint8_t head[RECORD_HEAD_MAX];
	char name[32];
	struct record r = { .opcode = RECORD_CREATE,
			    .gen = 1,
			    .timestamp_ns = 1000,
			    .lsn = node_lsn(n) + 1,
			    .epoch = epoch,
			    .name = name };
	struct iovec iov = { .iov_base = head };

	r.name_len = (uint32_t)snprintf(name, sizeof(name), "file-%llu-%llu",
					(unsigned long long)epoch, (unsigned long long)r.lsn);
	store_lock(n->store);
	r.ino = store_next_ino_locked(n->store);
	store_unlock(n->store);
	r.u.create.parent_ino = 1;
	r.u.create.mode = S_IFREG | 0600;
	iov.iov_len = record_head_bytes(&r);
	record_encode_head(&r, head);
	record_seal(head, iov.iov_len, r.lsn, epoch, 0, 0);
	ck_assert_int_eq(oplog_append(n->log, &iov, 1, r.lsn, 1, true), 0);
	if (want_between) /* as mirror_apply.c: looks at the log's fill before it applies */
		node_mirror_ops.want_checkpoint(n, epoch);
	if (n->opt->role == OPTIONS_MIRROR)
		ck_assert_int_eq(node_mirror_ops.apply(n, &r), 0);
	else
		ck_assert_int_eq(node_apply(n, &r), 0);
	return r.lsn;
}

static inline void put_many(struct node *n, unsigned count, uint64_t epoch)
{
	while (count-- > 0)
		put(n, epoch);
}

/* A checkpoint whose files are sound and whose items are not: what an earlier version's error
 * may have left. */
static inline void bad_checkpoint_at(struct node *n, uint64_t lsn)
{
	struct iovec iov = { .iov_base = (void *)"nonsense", .iov_len = 8 };
	struct ckpt_writer *w;
	struct ckpt_info info;
	uint64_t seg;
	uint32_t bytes;

	ck_assert_int_eq(ckpt_begin(n->ckpt, lsn, 1, &w), 0);
	ck_assert_int_eq(ckpt_writer_add(w, 1, &iov, 1, &seg, &bytes), 0);
	ck_assert_int_eq(ckpt_commit(w, 0, 1000, &info), 0);
}

static inline uint64_t inode_count(struct node *n)
{
	struct store_stats s;

	store_lock(n->store);
	store_stats_locked(n->store, &s);
	store_unlock(n->store);
	return s.inodes;
}

static uint8_t filling[VALUE_CHUNK_BYTES];
static bool follow; /* put_bytes does as a mirror does with what its primary did */

/* One WRITE, applied and then logged, as a full arena allows. 0 or -ENOSPC; with a checkpoint when
 * the log is full. */
static inline int put_bytes(struct node *n, uint64_t ino, uint64_t offset, uint32_t len,
			    uint64_t *ckpts)
{
	uint8_t head[RECORD_HEAD_MAX];
	struct record r = { .opcode = RECORD_WRITE,
			    .ino = ino,
			    .gen = 1,
			    .timestamp_ns = 1000,
			    .lsn = node_lsn(n) + 1,
			    .epoch = n->epoch,
			    .data = filling,
			    .data_len = len };
	struct iovec iov[2] = { { .iov_base = head }, { filling, len } };
	int err;

	memset(filling, (int)(r.lsn % 251) + 1, sizeof(filling));
	r.u.write.offset = offset;
	iov[0].iov_len = record_head_bytes(&r);
	record_encode_head(&r, head);
	record_seal(head, iov[0].iov_len, r.lsn, r.epoch, crc32c(0, filling, len), len);
	err = follow ? node_mirror_ops.apply(n, &r) : node_apply(n, &r);
	if (err)
		return err;
	err = oplog_append(n->log, iov, 2, r.lsn, 1, true);
	if (err == -ENOSPC) {
		ck_assert_int_eq(oplog_switch(n->log, n->epoch), 0);
		ck_assert_int_eq(oplog_append(n->log, iov, 2, r.lsn, 1, true), 0);
		ck_assert_int_eq(node_ckpt_run(n), 0);
		(*ckpts)++;
		err = 0;
	}
	ck_assert_int_eq(err, 0);
	return 0;
}

/* What is there now comes back from the checkpoint alone. */
static inline void expect_same_after_restart(struct node *n)
{
	uint8_t before[16], after[16];
	uint64_t lsn = node_lsn(n);

	digest_of(n, before);
	node_close(n);
	n = node_start();
	ck_assert_uint_eq(n->recovered.ckpt_lsn, lsn);
	digest_of(n, after);
	ck_assert_mem_eq(before, after, sizeof(after));
	node_close(n);
}

/* Each file of one directory of the volume also in another. */
static inline void link_all(const char *from, const char *to)
{
	int from_fd = openat(volume.dirfd, from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fdopendir(from_fd);
	char a[512], b[512];
	struct dirent *e;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(a, sizeof(a), "%s/%s", from, e->d_name);
		snprintf(b, sizeof(b), "%s/%s", to, e->d_name);
		ck_assert_int_eq(linkat(volume.dirfd, a, volume.dirfd, b, 0), 0);
	}
	closedir(d);
}

#endif
