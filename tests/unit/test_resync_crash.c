/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mirror is stopped at its n-th call that changes media, for every n, in a life that holds a
 * resync: records of one primary, its promotion's promise, the resync begun (RESYNCING on media,
 * log restarted), the image's files, the install (READY on media), records behind it. Recovered it
 * holds either history whole, or says that it needs a resync and holds nothing: never half. Its
 * hooks are called as kv-mirror does; recovery is stopped in turn, as in test_node_crash.
 *
 * In the other half of the cases the connection is lost behind the image's files, and the next
 * primary sends its log from LSN 1 on.
 */
#include "tests/unit/crash_model.h"
#include "tests/unit/node_crash.h"

#include "common/crc32c.h"
#include "tests/unit/unit_main.h"

#define OLD_RECORDS 30
#define IMAGE_LSN 60
#define RECORDS 90
#define CKPT_EVERY 15 /* records */

struct scene {
	struct model old, fresh;
	bool resumes; /* the second kind of case */
};

/* How far the life came. */
struct life {
	uint64_t old_lsn, old_acked;     /* appended perhaps, surely */
	bool begun, cleared;             /* the resync was called for; has returned */
	bool installs, whole;            /* the same of install, or of resume */
	uint64_t lsn, acked;             /* of the new history */
};

static const struct mirror_promise old_promise = { 1ULL << EPOCH_START_BITS | 1, 7, 70 };
static const struct mirror_promise new_promise = { 2ULL << EPOCH_START_BITS | 1, 8, 80 };

static struct epochs scene_epochs(bool fresh)
{
	struct epochs e = { .count = 1,
			    .entry = { { old_promise.epoch, 1, 7, 70 } } };

	if (fresh) /* a promoted mirror that had little of it */
		e.entry[e.count++] = (struct epochs_entry){ new_promise.epoch, 5, 8, 80 };
	return e;
}

static void scene_options(struct crash_volume *v, enum options_role role)
{
	options_init(&v->opt, role);
	v->opt.arena_bytes = 64 << 20;
	v->opt.mr_cache_bytes = 0;
	v->opt.inodes_max = 4096;
	v->opt.min_mirrors = 0;
}

static void scene_volume_make(struct crash_volume *v, uint64_t seed, bool lose_unsynced)
{
	const char *why = "";
	struct volume *vol;

	crash_volume_make(v, seed, lose_unsynced);
	scene_options(v, OPTIONS_MIRROR);
	ck_assert_int_eq(volume_open(v->path, false, &vol, &why), 0);
	vol->super.is_mirror = true;
	ck_assert_int_eq(volume_write_super(vol), 0);
	volume_close(vol);
}

static struct volume_super super_on_media(const struct crash_volume *v)
{
	struct volume_super s;
	const char *why = "";
	struct volume *vol;

	ck_assert_msg(volume_open(v->path, true, &vol, &why) == 0, "%s", why);
	s = vol->super;
	volume_close(vol);
	return s;
}

/* Into the log, then into the store; with a checkpoint now and then. */
static int scene_put(struct node *n, const struct record *kept, uint64_t epoch)
{
	uint8_t head[RECORD_HEAD_MAX];
	struct record r = *kept;
	struct iovec iov[2] = { { .iov_base = head },
				{ .iov_base = (void *)r.data, .iov_len = r.data_len } };
	int err;

	r.epoch = epoch;
	iov[0].iov_len = record_head_bytes(&r);
	record_encode_head(&r, head);
	record_seal(head, iov[0].iov_len, r.lsn, epoch, crc32c(0, r.data, r.data_len), r.data_len);
	err = oplog_append(n->log, iov, r.data_len ? 2 : 1, r.lsn, 1, true);
	if (!err)
		ck_assert_int_eq(node_mirror_ops.apply(n, &r), 0);
	if (!err && r.lsn % CKPT_EVERY == 0) {
		err = oplog_switch(n->log, epoch);
		if (!err || err == -EBUSY) /* the other pool waits for this checkpoint */
			err = node_ckpt_run(n);
	}
	return err;
}

/* False: the machine is down. */
static bool put_old(struct scene *s, struct node *n, struct life *l)
{
	struct epochs epochs = scene_epochs(false);

	if (node_mirror_ops.promise_epoch(n, &old_promise) != 0 ||
	    node_mirror_ops.note_state(n, &epochs, 0) != 0)
		return false;
	while (l->old_lsn < OLD_RECORDS) {
		const struct record *r = &s->old.gen->log[l->old_lsn++].r;

		if (scene_put(n, r, old_promise.epoch) != 0)
			return false;
		l->old_acked = r->lsn;
	}
	return node_mirror_ops.note_state(n, &epochs, old_promise.epoch) == 0;
}

static bool put_fresh(struct scene *s, struct node *n, struct life *l)
{
	while (l->lsn < RECORDS) {
		const struct record *r = &s->fresh.gen->log[l->lsn++].r;

		if (scene_put(n, r, new_promise.epoch) != 0)
			return false;
		l->acked = r->lsn;
	}
	return true;
}

/* What the primary's files bring: the state at IMAGE_LSN. */
static int receive_image(struct scene *s, struct node *n)
{
	static const struct image_write_ops ops = { .progress = NULL };
	struct store_config cfg = { .inodes_max = n->inodes_max };
	struct store *st = store_create(n->slab, &cfg);
	struct ckpt_info info;
	int err;

	ck_assert_ptr_nonnull(st);
	store_lock(st);
	for (unsigned i = 0; i < IMAGE_LSN; i++)
		ck_assert_int_eq(store_apply_locked(st, &s->fresh.gen->log[i].r, NULL), 0);
	store_unlock(st);
	err = image_write(store_image(st), n->ckpt, new_promise.epoch, &ops, NULL, &info);
	store_destroy(st);
	return err;
}

/* As resync_recv.c and mirror_session.c: keep, begin, files, history, install. */
static bool resync(struct scene *s, struct node *n, struct life *l)
{
	static const struct mirror_progress progress;
	struct epochs epochs = scene_epochs(true);
	uint64_t lsn = 0;
	int err;

	if (node_mirror_ops.promise_epoch(n, &new_promise) != 0)
		return false;
	if (l->old_acked)
		ck_assert_int_eq(node_cut_keep(n, 4, l->old_acked, old_promise.epoch), 0);
	l->begun = true;
	if (node_mirror_ops.resync_begin(n) != 0)
		return false;
	l->cleared = true;
	if (receive_image(s, n) != 0)
		return false;
	if (s->resumes) {
		l->installs = true;
		err = node_mirror_ops.resume(n);
		if (!err)
			err = node_mirror_ops.note_state(n, &epochs, 0);
	} else {
		if (node_mirror_ops.note_state(n, &epochs, 0) != 0)
			return false;
		l->installs = true;
		l->lsn = IMAGE_LSN;
		err = node_mirror_ops.resync_install(n, &progress, &lsn);
		if (!err)
			ck_assert_uint_eq(lsn, IMAGE_LSN);
	}
	if (err)
		return false;
	l->whole = true;
	l->acked = l->lsn;
	return true;
}

static bool live(struct scene *s, struct node *n, struct life *l)
{
	struct epochs epochs = scene_epochs(true);

	return put_old(s, n, l) && resync(s, n, l) && put_fresh(s, n, l) &&
	       node_mirror_ops.note_state(n, &epochs, new_promise.epoch) == 0;
}

/* Recovery is stopped at its own first call, then its second, … until it has no so many. */
static struct node *recover(struct crash_volume *v)
{
	char why[NODE_WHY_BYTES];
	struct node *n;

	for (unsigned stop_at = 1;; stop_at++) {
		int err;

		crash_volume_restart(v, stop_at);
		err = node_open(&v->opt, v->path, &v->media, &n, why);
		if (!err && !crash_happened(&v->crash))
			break;
		ck_assert_msg(crash_happened(&v->crash), "recovery: %s", why);
		if (!err)
			node_close(n);
	}
	v->crash.stop_at = UINT_MAX;
	return n;
}

static bool holds(const struct model *m, struct node *n, uint64_t low, uint64_t high)
{
	uint8_t digest[DIGEST_BYTES];
	uint64_t lsn = node_lsn(n);

	store_digest(n->store, digest);
	return lsn >= low && lsn <= high && memcmp(digest, m->digests[lsn], DIGEST_BYTES) == 0;
}

enum found { FOUND_OLD, FOUND_NOTHING, FOUND_FRESH };

/* Which of the three it is; none other may be, and only where the life allows it. */
static enum found check_found(struct scene *s, struct node *n, const struct life *l)
{
	bool resyncing = n->vol->super.state == VOLUME_RESYNCING;

	if (resyncing) {
		ck_assert(l->begun && !l->whole);
		ck_assert(holds(&s->fresh, n, 0, 0));
		ck_assert_uint_eq(oplog_last_lsn(n->log), 0);
		return FOUND_NOTHING;
	}
	ck_assert_int_eq(n->vol->super.state, VOLUME_READY);
	if (!l->cleared && holds(&s->old, n, l->old_acked, l->old_lsn))
		return FOUND_OLD;
	ck_assert_msg(l->installs, "half a resync: LSN %llu%s%s",
		      (unsigned long long)node_lsn(n), l->begun ? ", begun" : "",
		      l->cleared ? ", cleared" : "");
	ck_assert_msg(holds(&s->fresh, n, s->resumes ? l->acked : IMAGE_LSN, RECORDS),
		      "LSN %llu is not what was acknowledged", (unsigned long long)node_lsn(n));
	ck_assert_uint_ge(node_lsn(n), l->acked);
	ck_assert_uint_le(node_lsn(n), l->lsn);
	ck_assert_uint_eq(n->vol->super.promised_epoch, new_promise.epoch);
	return FOUND_FRESH;
}

/* The volume as the machine's end left it, before kvfs mirror is started. */
static void check_media(const struct crash_volume *v, const struct life *l)
{
	struct volume_super super = super_on_media(v);
	char why[NODE_WHY_BYTES], cut[400];

	if (super.state == VOLUME_RESYNCING)
		ck_assert_int_eq(node_may_promote(&super, true, why), -EUCLEAN);
	if (!l->begun)
		return;
	/* the log holds what the first checkpoint doesn't */
	snprintf(cut, sizeof(cut), "%s/cut-1.1-%u-%u", v->path, CKPT_EVERY + 1, OLD_RECORDS);
	ck_assert_int_eq(access(cut, R_OK), 0);
}

/* The primary comes again: a resync where one is needed, and the rest of the records. */
static void check_goes_on(struct crash_volume *v, struct scene *s, struct node *n, enum found found)
{
	struct life l = { .lsn = node_lsn(n) };
	char why[NODE_WHY_BYTES];

	if (found != FOUND_FRESH) {
		l.lsn = 0;
		ck_assert(resync(s, n, &l));
	}
	ck_assert(put_fresh(s, n, &l));
	ck_assert_int_eq(node_stop(n), 0);
	node_close(n);
	crash_volume_restart(v, UINT_MAX);
	ck_assert_msg(node_open(&v->opt, v->path, &v->media, &n, why) == 0, "%s", why);
	ck_assert_uint_eq(n->recovered.replayed, 0);
	ck_assert_int_eq(n->vol->super.state, VOLUME_READY);
	ck_assert(holds(&s->fresh, n, RECORDS, RECORDS));
	node_close(n);
}

/* False: the life ended before call number stop_at. */
static bool crash_at(struct scene *s, unsigned stop_at, bool lose_unsynced, unsigned seen[3])
{
	struct crash_volume v;
	struct life l = { .lsn = 0 };
	char why[NODE_WHY_BYTES] = "";
	struct node *n = NULL;
	enum found found;
	bool crashed;
	int err;

	scene_volume_make(&v, stop_at, lose_unsynced);
	v.crash.stop_at = stop_at;
	err = node_open(&v.opt, v.path, &v.media, &n, why);
	ck_assert_msg(!err || crash_happened(&v.crash), "first start: %s", why);
	if (!err) {
		ck_assert(live(s, n, &l) || crash_happened(&v.crash));
		node_close(n);
	}
	crashed = crash_happened(&v.crash);
	crash_volume_restart(&v, UINT_MAX);
	check_media(&v, &l);
	n = recover(&v);
	found = check_found(s, n, &l);
	seen[found]++;
	check_goes_on(&v, s, n, found);
	crash_volume_remove(&v);
	return crashed;
}

/* _i: bit 0 what was not synced is lost, bit 1 the connection is lost behind the image's files. */
START_TEST(whole_or_needs_resync)
{
	unsigned step = UNIT_SANITIZED ? 3 : 1, n = 1, seen[3] = { 0 };
	struct scene s = { .resumes = _i & 2 };

	model_make(&s.old, 11 + (uint64_t)_i, OLD_RECORDS);
	model_make(&s.fresh, 1011 + (uint64_t)_i, RECORDS);
	while (crash_at(&s, n, _i & 1, seen))
		n += step;
	for (unsigned i = 0; i < 3; i++)
		ck_assert_msg(seen[i] >= 15 / step, "%u: %u of %u", i, seen[i], n);
	model_destroy(&s.fresh);
	model_destroy(&s.old);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("resync_crash");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 300);
	tcase_add_loop_test(t, whole_or_needs_resync, 0, 4);
	suite_add_tcase(s, t);
	return unit_run(s);
}
