/* SPDX-License-Identifier: Apache-2.0 */
/* A node without a peer: which state it recovers, its checkpoints, its epochs and promotion. */
#include "tests/unit/node_rig.h"

#include <dlfcn.h>

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

int main(void)
{
	Suite *s = suite_create("node");
	TCase *t = tcase_create("all");

	tcase_add_test(t, unreadable_checkpoint_is_passed_over);
	tcase_add_test(t, rejected_checkpoint_is_no_base);
	tcase_add_test(t, checkpoints_go_on_after_any_failure);
	tcase_add_test(t, small_checkpoints_are_cleaned);
	tcase_add_test(t, checkpoint_at_an_epoch_change);
	tcase_add_test(t, each_start_is_an_epoch);
	tcase_add_loop_test(t, promotion_asks_whether_in_sync, 0, 3);
	tcase_add_test(t, inodes_bound_a_primary_alone);
	tcase_add_test(t, set_in_sync_is_on_media);
	suite_add_tcase(s, t);
	return unit_run(s);
}
