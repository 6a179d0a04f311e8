/* SPDX-License-Identifier: Apache-2.0 */
/* A node without FUSE and without a peer: which state it recovers, and a mirror's hooks called
 * as kv-mirror does. */
#include "tests/unit/node_crash.h"

#include "common/clock.h"
#include "common/crc32c.h"
#include "common/io.h"
#include "tests/unit/unit_main.h"

#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/resource.h>

static struct crash_volume volume;
static const struct mirror_progress no_progress;

static void volume_make(enum options_role role)
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

static struct node *node_start(void)
{
	char why[NODE_WHY_BYTES] = "";
	struct node *n = NULL;

	crash_volume_restart(&volume, UINT_MAX);
	ck_assert_msg(node_open(&volume.opt, volume.path, &volume.media, &n, why) == 0, "%s", why);
	return n;
}

static void digest_of(struct node *n, uint8_t out[16])
{
	store_digest(n->store, out);
}

static bool want_between;

/* One more file, in the log and in the store. Returns its record's LSN. */
static uint64_t put(struct node *n, uint64_t epoch)
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

static void put_many(struct node *n, unsigned count, uint64_t epoch)
{
	while (count-- > 0)
		put(n, epoch);
}

/* A checkpoint whose files are sound and whose items are not: what an earlier version's error
 * may have left. */
static void bad_checkpoint_at(struct node *n, uint64_t lsn)
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

static uint64_t bad_seg; /* from this segment on the disk gives nothing back; 0: none */

static bool on_bad_seg(int fd)
{
	char link[64], path[PATH_MAX];
	const char *name;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return false;
	path[n] = '\0';
	name = strrchr(path, '/');
	return name && strncmp(name, "/seg-", 5) == 0 && strtoull(name + 5, NULL, 16) >= bad_seg;
}

/* Stands before the C library's. */
ssize_t pread(int fd, void *buf, size_t len, off_t off)
{
	static ssize_t (*real)(int, void *, size_t, off_t);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "pread");
	if (bad_seg && on_bad_seg(fd)) {
		errno = EIO;
		return -1;
	}
	return real(fd, buf, len, off);
}

/* The disk fails under the newest checkpoint; the one before it and the log have all of it. */
START_TEST(unreadable_checkpoint_is_passed_over)
{
	struct ckpt_info infos[2];
	struct node *n;

	volume_make(OPTIONS_MOUNT);
	n = node_start();
	for (int i = 0; i < 2; i++) {
		put_many(n, 5, n->epoch);
		ck_assert_int_eq(node_ckpt_run(n), 0);
	}
	put_many(n, 5, n->epoch);
	ck_assert_int_eq(ckpt_list(n->ckpt, infos), 2);
	node_close(n);

	bad_seg = infos[0].last_seg;
	n = node_start();
	bad_seg = 0;
	ck_assert_uint_eq(n->recovered.ckpt_lsn, 5);
	ck_assert_uint_eq(n->recovered.replayed, 10);
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

START_TEST(rejected_checkpoint_is_no_base)
{
	struct node *n;
	uint64_t number;

	volume_make(OPTIONS_MOUNT);
	n = node_start();
	put_many(n, 5, n->epoch);
	ck_assert_int_eq(node_ckpt_run(n), 0);
	put_many(n, 5, n->epoch);
	bad_checkpoint_at(n, node_lsn(n));
	node_close(n);

	n = node_start(); /* from the one before it, and the log */
	number = n->recovered.ckpt_number;
	ck_assert_uint_eq(n->recovered.ckpt_lsn, 5);
	ck_assert_uint_eq(n->recovered.replayed, 5);
	put_many(n, 5, n->epoch);
	ck_assert_int_eq(node_ckpt_run(n), 0);
	node_close(n);

	n = node_start();
	ck_assert_uint_eq(n->recovered.ckpt_lsn, 15);
	ck_assert_uint_gt(n->recovered.ckpt_number, number);
	ck_assert_uint_eq(n->recovered.replayed, 0);
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

/* What a resync leaves in the directory: the image of a primary that has count files, of
 * the given epoch. */
static void receive_image(struct node *n, unsigned count, uint64_t epoch)
{
	struct store_config cfg = { .inodes_max = n->inodes_max };
	struct store *st = store_create(n->slab, &cfg);
	static const struct image_write_ops ops = { .progress = NULL };
	struct ckpt_info info;
	unsigned i;

	ck_assert_ptr_nonnull(st);
	for (i = 1; i <= count; i++) {
		char name[32];
		struct record r = { .opcode = RECORD_CREATE,
				    .gen = 1,
				    .timestamp_ns = 1000,
				    .lsn = i,
				    .epoch = epoch,
				    .name = name };

		r.name_len = (uint32_t)snprintf(name, sizeof(name), "other-%u", i);
		store_lock(st);
		r.ino = store_next_ino_locked(st);
		r.u.create.parent_ino = 1;
		r.u.create.mode = S_IFREG | 0600;
		ck_assert_int_eq(store_apply_locked(st, &r, NULL), 0);
		store_unlock(st);
	}
	ck_assert_int_eq(image_write(store_image(st), n->ckpt, epoch, &ops, NULL, &info), 0);
	ck_assert_uint_eq(info.lsn, count);
	store_destroy(st);
}

/* The mirror diverged and the image ends at its very last LSN. */
START_TEST(resync_to_the_same_lsn_forgets_the_log)
{
	struct node *n;
	uint64_t lsn = 0;

	volume_make(OPTIONS_MIRROR);
	n = node_start();
	put_many(n, 5, 1);
	ck_assert_int_eq(node_ckpt_run(n), 0);
	put_many(n, 5, 1);
	ck_assert_int_eq(node_mirror_ops.resync_begin(n), 0);
	receive_image(n, 10, 2);
	ck_assert_int_eq(node_mirror_ops.resync_install(n, &no_progress, &lsn), 0);
	ck_assert_uint_eq(lsn, 10);
	ck_assert_uint_eq(oplog_first_lsn(n->log), 0);
	ck_assert_uint_eq(oplog_last_lsn(n->log), 10);
	put_many(n, 2, 2);
	node_close(n);
	n = node_start();
	ck_assert_uint_eq(n->recovered.ckpt_lsn, 10);
	ck_assert_uint_eq(n->recovered.replayed, 2);
	ck_assert_uint_eq(n->epoch, 2);
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

static enum volume_state state_on_media(void)
{
	const char *why = "";
	struct volume *v;
	enum volume_state state;

	ck_assert_int_eq(volume_open(volume.path, true, &v, &why), 0);
	state = v->super.state;
	volume_close(v);
	return state;
}

/* The connection was lost between begin and install, in an older epoch's image; the next primary's
 * log reaches back to LSN 1, so that it sends the log. _i: kvfs mirror is started
 * again in between. */
START_TEST(catches_up_after_half_a_resync)
{
	struct node *n;

	volume_make(OPTIONS_MIRROR);
	n = node_start();
	put_many(n, 5, 3);
	ck_assert_int_eq(node_ckpt_run(n), 0);
	put_many(n, 5, 3);
	ck_assert_int_eq(node_mirror_ops.resync_begin(n), 0);
	receive_image(n, 20, 3);
	ck_assert_int_eq(state_on_media(), VOLUME_RESYNCING);
	if (_i) {
		node_close(n);
		n = node_start();
		/* empty: not to be promoted */
		ck_assert_int_eq(state_on_media(), VOLUME_RESYNCING);
	}
	ck_assert_uint_eq(node_lsn(n), 0);
	ck_assert_uint_eq(oplog_last_lsn(n->log), 0);
	ck_assert_int_eq(node_mirror_ops.resume(n), 0);
	ck_assert_int_eq(state_on_media(), VOLUME_READY);
	put_many(n, 4, 1);
	put_many(n, 3, 4);
	node_close(n);
	n = node_start();
	ck_assert_uint_eq(n->recovered.ckpt_lsn, 0);
	ck_assert_uint_eq(node_lsn(n), 7);
	ck_assert_int_eq(node_ckpt_run(n), 0);
	node_close(n);
	n = node_start();
	ck_assert_uint_eq(n->recovered.ckpt_lsn, 7);
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

/* A superblock that can't be written: the resync does not begin, and the mirror goes on with what
 * it has. */
START_TEST(resync_that_cannot_begin_changes_nothing)
{
	struct rlimit size, none;
	struct node *n;

	volume_make(OPTIONS_MIRROR);
	n = node_start();
	put_many(n, 5, 3);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &size), 0);
	none = (struct rlimit){ 0, size.rlim_max };
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
	ck_assert_int_eq(node_mirror_ops.resync_begin(n), -EFBIG);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &size), 0);
	ck_assert_int_eq(node_mirror_ops.resume(n), 0);
	put_many(n, 2, 3);
	ck_assert_int_eq(state_on_media(), VOLUME_READY);
	node_close(n);
	n = node_start();
	ck_assert_uint_eq(node_lsn(n), 7);
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

static uint64_t inode_count(struct node *n)
{
	struct store_stats s;

	store_lock(n->store);
	store_stats_locked(n->store, &s);
	store_unlock(n->store);
	return s.inodes;
}

/* The image can be read in part only: nothing of it is there when the next primary sends its log
 * from LSN 1 on, or another image. */
START_TEST(failed_install_leaves_nothing)
{
	struct node *n;
	uint64_t lsn = 0;

	volume_make(OPTIONS_MIRROR);
	n = node_start();
	put_many(n, 5, 3);
	ck_assert_int_eq(node_mirror_ops.resync_begin(n), 0);
	receive_image(n, 20, 3);
	bad_checkpoint_at(n, 20);
	ck_assert_int_eq(node_mirror_ops.resync_install(n, &no_progress, &lsn), -EBADMSG);
	ck_assert_uint_eq(inode_count(n), 1);
	if (_i) {
		ck_assert_int_eq(node_mirror_ops.resync_begin(n), 0);
		receive_image(n, 7, 4);
		ck_assert_int_eq(node_mirror_ops.resync_install(n, &no_progress, &lsn), 0);
		ck_assert_uint_eq(lsn, 7);
	} else {
		ck_assert_int_eq(node_mirror_ops.resume(n), 0);
		put_many(n, 7, 4);
	}
	ck_assert_uint_eq(inode_count(n), 1 + 7);
	put_many(n, 2, 4);
	node_close(n);
	n = node_start();
	ck_assert_uint_eq(node_lsn(n), 9);
	ck_assert_uint_eq(inode_count(n), 1 + 9);
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

START_TEST(checkpoint_at_an_epoch_change)
{
	struct node *n;

	volume_make(OPTIONS_MIRROR);
	n = node_start();
	put_many(n, 5, 1);
	want_between = true;
	put(n, 2);
	want_between = false;
	ck_assert(!n->failed);
	put_many(n, 5, 2);
	node_close(n);
	n = node_start();
	ck_assert_uint_eq(node_lsn(n), 11);
	ck_assert_uint_eq(n->epoch, 2);
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

static struct volume_super super_on_media(void)
{
	struct volume_super s;
	const char *why = "";
	struct volume *v;

	ck_assert_int_eq(volume_open(volume.path, true, &v, &why), 0);
	s = v->super;
	volume_close(v);
	return s;
}

/* Each start of a primary has an epoch of its own, on media before its first record. */
START_TEST(each_start_is_an_epoch)
{
	struct volume_super s;
	uint32_t life = 0;
	struct node *n;

	volume_make(OPTIONS_MOUNT);
	for (uint64_t i = 1; i <= 5; i++) {
		n = node_start();
		ck_assert_uint_eq(n->epoch, epoch_make(1, i));
		s = super_on_media();
		ck_assert_uint_eq(s.promised_epoch, n->epoch);
		ck_assert_uint_eq(s.promised_node, s.node_id);
		ck_assert(s.promised_life != 0 && s.promised_life != life);
		life = s.promised_life;
		ck_assert_uint_eq(s.epochs.entry[s.epochs.count - 1].life, life);
		if (i != 3) /* one that writes nothing leaves no trace in the history */
			put_many(n, 10, n->epoch);
		if (i == 2)
			ck_assert_int_eq(node_ckpt_run(n), 0);
		node_close(n);
	}
	s = super_on_media();
	ck_assert_uint_eq(s.epochs.count, 4);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_uint_eq(s.epochs.entry[i].epoch, epoch_make(1, i < 2 ? i + 1 : i + 2));
		ck_assert_uint_eq(s.epochs.entry[i].first_lsn, 10 * i + 1);
		ck_assert_uint_eq(s.epochs.entry[i].node_id, 1);
	}
	crash_volume_remove(&volume);
}
END_TEST

static int try_promote(bool force, char why[NODE_WHY_BYTES])
{
	struct node *n = NULL;
	int err;

	options_init(&volume.opt, OPTIONS_MOUNT);
	volume.opt.arena_bytes = 64 << 20;
	volume.opt.mr_cache_bytes = 0;
	volume.opt.inodes_max = 4096;
	volume.opt.min_mirrors = 0;
	volume.opt.promote = true;
	volume.opt.force = force;
	crash_volume_restart(&volume, UINT_MAX);
	err = node_open(&volume.opt, volume.path, &volume.media, &n, why);
	node_close(n);
	return err;
}

/* A mirror follows its primary beyond its own inodes=, which holds for what a primary is asked. */
START_TEST(inodes_bound_a_primary_alone)
{
	struct record r = { .opcode = RECORD_CREATE, .gen = 1, .timestamp_ns = 1000,
			    .name = "one more", .name_len = 8 };
	char why[NODE_WHY_BYTES] = "";
	struct node *n;

	volume_make(OPTIONS_MIRROR);
	volume.opt.inodes_max = 16;
	n = node_start();
	put_many(n, 20, 1);
	ck_assert_int_eq(node_ckpt_run(n), 0);
	put_many(n, 10, 1);
	node_close(n);
	n = node_start();
	ck_assert_uint_eq(inode_count(n), 31);
	node_close(n);
	ck_assert_msg(try_promote(true, why) == 0, "%s", why);

	volume.opt.inodes_max = 16;
	n = node_start(); /* what there is can be read and deleted */
	ck_assert_uint_eq(inode_count(n), 31);
	r.lsn = node_lsn(n) + 1;
	r.epoch = n->epoch;
	r.ino = inode_count(n) + 1;
	r.u.create.parent_ino = 1;
	r.u.create.mode = S_IFREG | 0600;
	ck_assert_int_eq(node_apply(n, &r), -ENOSPC);
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

/* _i: 0 never told that it is in sync, 1 in sync once and now being caught up, 2 in sync. */
START_TEST(promotion_asks_whether_in_sync)
{
	const uint64_t epoch = epoch_make(1, 7);
	struct epochs epochs = { .count = 1, .entry = { { epoch, 1, 77, 5 } } };
	const struct mirror_promise promise = { epoch, 77, 5 };
	char why[NODE_WHY_BYTES] = "";
	struct volume_super s;
	struct node *n;
	bool in_sync = _i == 2;

	volume_make(OPTIONS_MIRROR);
	n = node_start();
	ck_assert_int_eq(node_mirror_ops.promise_epoch(n, &promise), 0);
	ck_assert_uint_eq(super_on_media().promised_life, 5);
	ck_assert_int_eq(node_mirror_ops.note_state(n, &epochs, 0), 0);
	put_many(n, 5, epoch);
	if (_i)
		ck_assert_int_eq(node_mirror_ops.note_state(n, &epochs, epoch), 0);
	if (_i == 1)
		ck_assert_int_eq(node_mirror_ops.note_state(n, &epochs, 0), 0);
	node_close(n);
	if (!in_sync) {
		ck_assert_int_eq(try_promote(false, why), -ESTALE);
		ck_assert_msg(strstr(why, "not in sync") && strstr(why, "promote,force"), "%s",
			      why);
		s = super_on_media();
		ck_assert(s.is_mirror && s.promised_epoch == epoch); /* nothing was changed */
	}
	ck_assert_msg(try_promote(!in_sync, why) == 0, "%s", why);
	s = super_on_media();
	ck_assert(!s.is_mirror);
	ck_assert_uint_eq(s.promised_epoch, epoch_make(2, 1));
	ck_assert_uint_eq(s.promised_node, s.node_id);
	ck_assert_uint_eq(s.sync_epoch, 0);
	ck_assert_uint_eq(s.epochs.count, 2);
	ck_assert_uint_eq(s.epochs.entry[1].first_lsn, 6);
	ck_assert_uint_eq(s.epochs.entry[0].life, 5);
	ck_assert(s.promised_life != 0 && s.epochs.entry[1].life == s.promised_life);
	crash_volume_remove(&volume);
}
END_TEST

START_TEST(set_in_sync_is_on_media)
{
	struct volume_super s;
	struct node *n;

	volume_make(OPTIONS_MOUNT);
	n = node_start();
	for (uint32_t i = 1; i <= VOLUME_SYNC_MAX + 1; i++)
		ck_assert_int_eq(node_note_sync(n, 100 + i, true), 0);
	ck_assert_uint_eq(super_on_media().sync_count, VOLUME_SYNC_MAX);
	for (uint32_t i = 1; i <= VOLUME_SYNC_MAX; i++)
		if (i != 5)
			ck_assert_int_eq(node_note_sync(n, 100 + i, false), 0);
	ck_assert_int_eq(node_note_sync(n, 105, true), 0);
	s = super_on_media();
	ck_assert_uint_eq(s.sync_count, 1);
	ck_assert_uint_eq(s.sync_nodes[0], 105);
	node_close(n);
	n = node_start(); /* nothing is acknowledged with it until it is in sync again */
	ck_assert_uint_eq(super_on_media().sync_count, 0);
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

static uint8_t filling[VALUE_CHUNK_BYTES];
static bool follow; /* put_bytes does as a mirror does with what its primary did */

/* One WRITE, applied and then logged, as a full arena allows. 0 or -ENOSPC; with a checkpoint when
 * the log is full. */
static int put_bytes(struct node *n, uint64_t ino, uint64_t offset, uint32_t len, uint64_t *ckpts)
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

#define FULL_FILES 24

/* What is there now comes back from the checkpoint alone. */
static void expect_same_after_restart(struct node *n)
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

/* The disk takes nothing from some call of a checkpoint that cleans on, and works again: the next
 * ones succeed, also where the failed one's manifest stands and can't be removed. */
START_TEST(checkpoints_go_on_after_any_failure)
{
	unsigned cleaned = 0;
	struct ckpt_info infos[2];
	uint64_t ckpts = 0;
	bool failed = true;

	for (unsigned call = 1; failed; call++) {
		struct node *n;

		volume_make(OPTIONS_MOUNT);
		n = node_start();
		for (int i = 0; i < 3; i++) {
			put(n, n->epoch);
			ck_assert_int_eq(put_bytes(n, 2, 0, 3000, &ckpts), 0);
			ck_assert_int_eq(node_ckpt_run(n), 0);
		}
		image_set_limits(store_image(n->store), 0, 1000); /* not all that lives */
		put(n, n->epoch);
		volume.crash.stop_at = volume.crash.calls + call;
		failed = node_ckpt_run(n) != 0;
		cleaned += ckpt_list(n->ckpt, infos) > 0 && infos[0].first_seg > 1;
		volume.crash.stop_at = UINT_MAX;
		image_set_limits(store_image(n->store), UINT64_MAX / 4, 0); /* no cleaning */
		for (int i = 0; i < 2; i++) {
			ck_assert_int_eq(put_bytes(n, 3, 0, 100, &ckpts), 0);
			ck_assert_int_eq(node_ckpt_run(n), 0);
		}
		expect_same_after_restart(n);
		crash_volume_remove(&volume);
		ck_assert_uint_lt(call, 200);
	}
	ck_assert_uint_gt(cleaned, 1); /* the last one, and one that failed and stands */
}
END_TEST

/* One old key and many small checkpoints: garbage is what the files take, not what the few items in
 * them do, so the files do not become more and more. */
START_TEST(small_checkpoints_are_cleaned)
{
	struct ckpt_info infos[2];
	uint64_t ckpts = 0;
	struct node *n;

	volume_make(OPTIONS_MOUNT);
	n = node_start();
	put_many(n, 2, n->epoch);
	image_set_limits(store_image(n->store), 128 << 10, 64 << 20);
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(put_bytes(n, 3, 0, 100, &ckpts), 0);
		ck_assert_int_eq(node_ckpt_run(n), 0);
		ck_assert_int_ge(ckpt_list(n->ckpt, infos), 1);
		ck_assert_uint_le(infos[0].bytes, 256 << 10);
	}
	expect_same_after_restart(n);
	crash_volume_remove(&volume);
}
END_TEST

static uint64_t full_size[FULL_FILES];

static uint64_t full_ino(unsigned f)
{
	return 2 + f;
}

/* A node of 32 MiB (16 of them are what a mirror takes more than its arena), filled to the last
 * slot with values of all sizes, in an order that depends on variant. */
static struct node *node_fill(enum options_role role, int variant)
{
	uint64_t ckpts = 0, seed = (uint64_t)variant * 7919 + 1;
	unsigned refused = 0;
	struct node *n;

	volume_make(role);
	volume.opt.arena_bytes = role == OPTIONS_MOUNT ? 32 << 20 : 16 << 20;
	n = node_start();
	memset(full_size, 0, sizeof(full_size));
	put_many(n, FULL_FILES, n->epoch);
	while (refused < 200) {
		unsigned f;
		uint32_t len = VALUE_CHUNK_BYTES;

		seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
		f = (unsigned)(seed >> 33) % FULL_FILES;
		if (variant % 2 && f < 20)
			len = 100U + (uint32_t)(seed >> 40) % 60000;
		if (put_bytes(n, full_ino(f), full_size[f], len, &ckpts) == 0)
			full_size[f] += len;
		else
			refused++;
	}
	ck_assert_uint_gt(ckpts, 10);
	return n;
}

/* Every whole chunk is written over. Returns how many were refused. */
static unsigned write_over(struct node *n)
{
	uint64_t ckpts = 0;
	unsigned refused = 0;

	for (unsigned f = 0; f < FULL_FILES; f++)
		for (uint64_t at = 0; at + VALUE_CHUNK_BYTES <= full_size[f];
		     at += VALUE_CHUNK_BYTES)
			refused += put_bytes(n, full_ino(f), at, VALUE_CHUNK_BYTES, &ckpts) != 0;
	return refused;
}

/*
 * Filled, then written over in place, as far as that goes. Whatever fitted while it ran must fit
 * the next time, with the same arena; and what is free then is no more than the arena.
 */
START_TEST(full_arena_recovers)
{
	uint8_t before[16], after[16];
	struct node *n = node_fill(OPTIONS_MOUNT, _i);

	for (unsigned round = 0; round < 3; round++) {
		write_over(n);
		digest_of(n, before);
		node_close(n);
		n = node_start();
		digest_of(n, after);
		ck_assert_mem_eq(before, after, sizeof(after));
		ck_assert_uint_le(slab_available_bytes(n->slab), 32 << 20);
	}
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

#define FULL_REFS 1024

/* A reference to every chunk, as a running checkpoint's captures are. */
static unsigned share_all(struct node *n, struct value_ref refs[FULL_REFS])
{
	unsigned count = 0;

	store_lock(n->store);
	for (unsigned f = 0; f < FULL_FILES; f++) {
		const struct inode *in = store_inode_locked(n->store, full_ino(f));
		uint64_t len = 0;

		for (uint64_t at = 0; at < full_size[f]; at += len)
			count += (unsigned)value_refs(&in->u.value, at, full_size[f] - at,
						      refs + count, (int)(FULL_REFS - count), &len);
	}
	store_unlock(n->store);
	ck_assert_uint_lt(count, FULL_REFS);
	return count;
}

/* What a primary overwrites in place, in a full arena, a mirror must take while its own checkpoint
 * still needs what was there. Then the arena is the limit again. */
START_TEST(mirror_follows_a_full_primary)
{
	static struct value_ref refs[FULL_REFS];
	struct node *n = node_fill(OPTIONS_MIRROR, 0);
	unsigned count = share_all(n, refs);
	uint64_t ckpts = 0;

	ck_assert_uint_gt(write_over(n), 0);
	follow = true;
	ck_assert_uint_eq(write_over(n), 0);
	follow = false;
	ck_assert_int_eq(put_bytes(n, full_ino(0), full_size[0], 100, &ckpts), -ENOSPC);
	while (count > 0)
		value_ref_put(n->slab, &refs[--count]);
	ck_assert_uint_eq(write_over(n), 0);
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

/* Each file of one directory of the volume also in another. */
static void link_all(const char *from, const char *to)
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

static atomic_bool memory_asked, memory_given; /* by slow_commit, and to it */

static int slow_commit(void *be, uint64_t off, uint64_t len)
{
	memory_asked = true;
	while (!memory_given)
		sched_yield();
	return region_memfd_ops.commit(be, off, len);
}

struct install {
	struct node *n;
	pthread_t thread;
	atomic_bool leave;
	uint64_t lsn;
	int err;
};

static int install_note(void *arg, uint64_t done, uint64_t total)
{
	struct install *in = arg;

	ck_assert_uint_le(done, total);
	return in->leave ? -ECANCELED : 0;
}

static void *install_main(void *arg)
{
	struct install *in = arg;
	const struct mirror_progress progress = { install_note, in };

	in->err = node_mirror_ops.resync_install(in->n, &progress, &in->lsn);
	return NULL;
}

/* A load that takes long keeps no request of the view waiting; and it ends where the session has
 * to. _i: it is to leave. */
START_TEST(view_is_answered_during_an_install)
{
	struct region_backend_ops slow = region_memfd_ops;
	struct install in = { .leave = _i != 0 };
	uint64_t ckpts = 0, end;
	struct node *n;

	volume_make(OPTIONS_MIRROR);
	n = node_start();
	put(n, 1);
	ck_assert_int_eq(put_bytes(n, 2, 0, 60000, &ckpts), 0);
	ck_assert_int_eq(node_ckpt_run(n), 0);
	ck_assert_int_eq(mkdirat(volume.dirfd, "sent", 0700), 0);
	link_all(CKPT_DIR_NAME, "sent");
	ck_assert_int_eq(node_mirror_ops.resync_begin(n), 0);
	node_close(n);

	slow.commit = slow_commit;
	volume.media.memory = &slow;
	n = node_start(); /* empty, and with no memory yet */
	link_all("sent", CKPT_DIR_NAME);
	memory_given = _i;
	in.n = n;
	ck_assert_int_eq(thread_start(&in.thread, "install", install_main, &in), 0);
	end = clock_mono_ns() + 3 * NSEC_PER_SEC;
	while (!_i && !memory_asked && clock_mono_ns() < end)
		sched_yield();
	if (!_i) {
		ck_assert(memory_asked);
		ck_assert_int_eq(pthread_rwlock_tryrdlock(&n->store_swap), 0); /* as fs_lock */
		ck_assert_uint_eq(inode_count(n), 1);
		pthread_rwlock_unlock(&n->store_swap);
		memory_given = true;
	}
	pthread_join(in.thread, NULL);
	ck_assert_int_eq(in.err, _i ? -ECANCELED : 0);
	ck_assert_uint_eq(inode_count(n), _i ? 1 : 2);
	ck_assert_int_eq(state_on_media(), _i ? VOLUME_RESYNCING : VOLUME_READY);
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

/* The image of a full primary, which has the same arena, fits. */
START_TEST(full_arena_resyncs)
{
	struct node *n = node_fill(OPTIONS_MIRROR, _i);
	uint8_t before[16], after[16];
	uint64_t lsn, got = 0;

	write_over(n);
	ck_assert_int_eq(node_ckpt_run(n), 0);
	digest_of(n, before);
	lsn = node_lsn(n);
	ck_assert_int_eq(mkdirat(volume.dirfd, "sent", 0700), 0);
	link_all(CKPT_DIR_NAME, "sent");
	ck_assert_int_eq(node_mirror_ops.resync_begin(n), 0);
	link_all("sent", CKPT_DIR_NAME);
	ck_assert_int_eq(node_mirror_ops.resync_install(n, &no_progress, &got), 0);
	ck_assert_uint_eq(got, lsn);
	digest_of(n, after);
	ck_assert_mem_eq(before, after, sizeof(after));
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

/* All of a file in the volume; the caller frees it. */
static uint8_t *read_file(const char *name, size_t *ret_len)
{
	int fd = openat(volume.dirfd, name, O_RDONLY | O_CLOEXEC);
	struct stat st;
	uint8_t *buf;

	ck_assert_msg(fd >= 0, "%s", name);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
	buf = malloc((size_t)st.st_size + 1);
	ck_assert_ptr_nonnull(buf);
	ck_assert_int_eq(io_pread_full(fd, buf, (size_t)st.st_size, 0), 0);
	close(fd);
	*ret_len = (size_t)st.st_size;
	return buf;
}

static void check_cut(const char *name, uint64_t first_lsn, uint64_t last_lsn)
{
	size_t len, at = 0, bytes;
	uint8_t *buf = read_file(name, &len);
	struct record r;

	for (; at < len; at += bytes, first_lsn++) {
		ck_assert_int_eq(record_decode(buf + at, len - at, &r, &bytes), 0);
		ck_assert_uint_eq(r.lsn, first_lsn);
	}
	ck_assert_uint_eq(first_lsn, last_lsn + 1);
	free(buf);
}

START_TEST(keeps_what_a_resync_removes)
{
	struct node *n;

	volume_make(OPTIONS_MIRROR);
	n = node_start();
	ck_assert_int_eq(node_mirror_ops.resync_keep(n, 0, 0, 1), 0); /* nothing to keep */
	put_many(n, 5, 1);
	node_mirror_ops.want_checkpoint(n, 1); /* on to the other pool */
	put_many(n, 5, 2);
	ck_assert_int_eq(node_mirror_ops.resync_keep(n, 0, 10, 2), 0);
	check_cut("cut-0.2-1-10", 1, 10);
	ck_assert_int_eq(node_mirror_ops.resync_keep(n, 7, 10, 2), 0);
	ck_assert_int_eq(node_mirror_ops.resync_keep(n, 7, 10, 2), 0);
	check_cut("cut-0.2-8-10", 8, 10);
	/* what can't be kept is said, and nothing is left under a name */
	ck_assert_int_eq(mkdirat(volume.dirfd, "cut.tmp", 0700), 0);
	ck_assert_int_eq(node_mirror_ops.resync_keep(n, 8, 10, 2), -EISDIR);
	ck_assert_int_ne(faccessat(volume.dirfd, "cut-0.2-9-10", F_OK, 0), 0);
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("node");
	TCase *t = tcase_create("all");

	tcase_add_test(t, unreadable_checkpoint_is_passed_over);
	tcase_add_test(t, rejected_checkpoint_is_no_base);
	tcase_add_test(t, resync_to_the_same_lsn_forgets_the_log);
	tcase_add_loop_test(t, catches_up_after_half_a_resync, 0, 2);
	tcase_add_test(t, resync_that_cannot_begin_changes_nothing);
	tcase_add_loop_test(t, failed_install_leaves_nothing, 0, 2);
	tcase_add_loop_test(t, view_is_answered_during_an_install, 0, 2);
	tcase_add_test(t, checkpoints_go_on_after_any_failure);
	tcase_add_test(t, small_checkpoints_are_cleaned);
	tcase_add_test(t, checkpoint_at_an_epoch_change);
	tcase_add_test(t, keeps_what_a_resync_removes);
	tcase_add_test(t, each_start_is_an_epoch);
	tcase_add_loop_test(t, promotion_asks_whether_in_sync, 0, 3);
	tcase_add_test(t, inodes_bound_a_primary_alone);
	tcase_add_test(t, set_in_sync_is_on_media);
	suite_add_tcase(s, t);
	t = tcase_create("slow");
	tcase_set_timeout(t, 120); /* a full arena under a sanitizer */
	tcase_add_loop_test(t, full_arena_recovers, 0, 6);
	tcase_add_loop_test(t, full_arena_resyncs, 0, 6);
	tcase_add_test(t, mirror_follows_a_full_primary);
	suite_add_tcase(s, t);
	return unit_run(s);
}
