/* SPDX-License-Identifier: Apache-2.0 */
/* A mirror's node, whose hooks are called as kv-mirror does in a resync. */
#include "tests/unit/node_rig.h"

#include "common/clock.h"
#include "common/io.h"

#include <signal.h>
#include <sys/resource.h>

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
	Suite *s = suite_create("node_resync");
	TCase *t = tcase_create("all");

	tcase_add_test(t, resync_to_the_same_lsn_forgets_the_log);
	tcase_add_loop_test(t, catches_up_after_half_a_resync, 0, 2);
	tcase_add_test(t, resync_that_cannot_begin_changes_nothing);
	tcase_add_loop_test(t, failed_install_leaves_nothing, 0, 2);
	tcase_add_loop_test(t, view_is_answered_during_an_install, 0, 2);
	tcase_add_test(t, keeps_what_a_resync_removes);
	suite_add_tcase(s, t);
	return unit_run(s);
}
