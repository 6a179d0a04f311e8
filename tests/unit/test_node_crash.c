/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole node (log, checkpoints, store, commit queue; all but FUSE) is stopped at its n-th call
 * that changes media, for every n: log appends (whole, torn, with a wrong byte, with old bytes),
 * rewinds, each file call of a checkpoint, each write and sync of the superblock. It is then
 * recovered by its own code, which is stopped in turn at its first call, its second, and so on
 * until it comes through. Every acknowledged record must be there, and nothing but what was in
 * flight beyond.
 *
 * Records are made once and kept by store_gen.h; the digest of the state after each is the model.
 * The calls are shared out among processes, so that one's waits are another's time. Without
 * KVFS_TEST_LONG=1 it is one seed; in a sanitized build, every third call.
 */
#include "tests/unit/crash_model.h"
#include "tests/unit/node_crash.h"

#include "common/clock.h"
#include "common/crc32c.h"
#include "tests/unit/unit_main.h"

#include <sys/wait.h>

#define PROCESSES 3
#define PART_ENV "KVFS_CRASH_PART" /* of this process, from 0; not set: all */
#define RECORDS 220
#define GROUP_MAX 4
#define CKPT_EVERY 12 /* groups */
#define ADMIT_NS (200 * NSEC_PER_MSEC)
#define CKPT_NS (60 * NSEC_PER_SEC)

struct progress {
	uint64_t submitted;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t acked, failed; /* under lock; the last acknowledged LSN, and how many were not */
};

static void progress_init(struct progress *p, uint64_t lsn)
{
	*p = (struct progress){ .submitted = lsn, .acked = lsn };
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->changed, NULL);
}

/* All that was submitted has got its answer, whichever thread gives it. True:
 * each was acknowledged. */
static bool progress_wait(struct progress *p)
{
	bool all;

	pthread_mutex_lock(&p->lock);
	while (p->acked + p->failed < p->submitted) /* bounded by the ops' deadlines */
		pthread_cond_wait(&p->changed, &p->lock);
	all = p->failed == 0;
	pthread_mutex_unlock(&p->lock);
	return all;
}

/* One record on its way, as fs/fuse/fuse_op.c makes them. */
struct crash_op {
	struct op op;
	struct progress *progress;
	uint8_t head[]; /* and the data behind it */
};

static void crash_op_complete(struct op *op, int err)
{
	struct crash_op *o = (struct crash_op *)op;

	pthread_mutex_lock(&o->progress->lock);
	if (err)
		o->progress->failed++;
	else
		o->progress->acked = op->lsn;
	pthread_cond_broadcast(&o->progress->changed);
	pthread_mutex_unlock(&o->progress->lock);
}

static void crash_op_release(struct op *op)
{
	free(op);
}

static struct crash_op *crash_op_new(const struct record *r, struct progress *p)
{
	static const struct op_ops ops = { .complete = crash_op_complete,
					   .release = crash_op_release };
	size_t head_bytes = record_head_bytes(r);
	struct crash_op *o = calloc(1, sizeof(*o) + head_bytes + r->data_len);

	ck_assert_ptr_nonnull(o);
	o->op.ops = &ops;
	o->op.head = o->head;
	o->op.head_len = (uint32_t)head_bytes;
	o->op.admitted_bytes = (uint32_t)(head_bytes + r->data_len);
	o->op.deadline_ns = clock_mono_ns() + CKPT_NS;
	o->progress = p;
	if (r->data_len) {
		memcpy(o->head + head_bytes, r->data, r->data_len);
		o->op.data[0] = (struct iovec){ o->head + head_bytes, r->data_len };
		o->op.data_iovcnt = 1;
		o->op.data_len = r->data_len;
	}
	return o;
}

/* False: the machine is down. */
static bool crash_admit(struct crash_volume *v, struct node *n, uint32_t bytes)
{
	for (;;) {
		int err = commit_admit(n->commit, bytes, true, clock_mono_ns() + ADMIT_NS);

		if (!err)
			return true;
		if (crash_happened(&v->crash))
			return false;
		ck_assert_int_eq(err, -EIO); /* a slow checkpoint */
	}
}

static bool crash_submit(struct crash_volume *v, struct node *n, const struct record *kept,
			 struct progress *p)
{
	struct record r = *kept;
	struct crash_op *o = crash_op_new(&r, p);

	if (!crash_admit(v, n, o->op.admitted_bytes)) {
		free(o);
		return false;
	}
	store_lock(n->store);
	r.lsn = commit_next_lsn(n->commit);
	r.epoch = commit_epoch(n->commit);
	ck_assert_uint_eq(r.lsn, kept->lsn);
	ck_assert_int_eq(store_apply_locked(n->store, &r, NULL), 0);
	o->op.lsn = r.lsn;
	record_encode_head(&r, o->head);
	record_seal(o->head, o->op.head_len, r.lsn, r.epoch, crc32c(0, r.data, r.data_len),
		    r.data_len);
	commit_enqueue(n->commit, &o->op);
	store_unlock(n->store);
	p->submitted = r.lsn;
	return true;
}

/* Records in groups, checkpoints beside them and between them; ends at the last record or
 * at the crash. */
static void run_load(struct crash_volume *v, struct model *m, struct node *n, struct progress *p)
{
	unsigned group = 0, groups = 0;

	while (p->submitted < RECORDS && !crash_happened(&v->crash)) {
		if (!crash_submit(v, n, &m->gen->log[p->submitted].r, p))
			break;
		if (++group < 1 + groups % GROUP_MAX && p->submitted < RECORDS)
			continue;
		group = 0;
		commit_drive(n->commit);
		if (!progress_wait(p))
			break;
		if (++groups % CKPT_EVERY == 0)
			node_ckpt_make(n, CKPT_NS);
		else if (groups % CKPT_EVERY == CKPT_EVERY / 2)
			node_ckpt_want(n); /* beside the records that follow */
	}
	commit_drive(n->commit);
	ck_assert(progress_wait(p) || crash_happened(&v->crash));
}

static void check_state(struct model *m, struct node *n, const struct progress *p)
{
	uint8_t digest[DIGEST_BYTES];
	uint64_t lsn = node_lsn(n);

	ck_assert_msg(lsn >= p->acked, "record %llu was acknowledged, recovered to %llu",
		      (unsigned long long)p->acked, (unsigned long long)lsn);
	ck_assert_uint_le(lsn, p->submitted);
	store_digest(n->store, digest);
	ck_assert_mem_eq(digest, m->digests[lsn], sizeof(digest));
}

/* Recovery is stopped at its own first call, then its second, … until it has no so many. */
static struct node *recover(struct crash_volume *v)
{
	char why[NODE_WHY_BYTES];
	struct node *n;
	unsigned stop_at;

	for (stop_at = 1;; stop_at++) {
		int err;

		crash_volume_restart(v, stop_at);
		err = node_open(&v->opt, v->path, &v->media, &n, why);
		if (!err && crash_happened(&v->crash)) {
			/* it did not need what failed (old files to remove), but the
			 * machine is down */
			node_close(n);
			continue;
		}
		if (!err)
			break;
		ck_assert_msg(crash_happened(&v->crash), "recovery: %s", why);
	}
	v->crash.stop_at = UINT_MAX;
	return n;
}

/* Goes on where recovery ended, ends in order, and opens once more. */
static void check_goes_on(struct crash_volume *v, struct model *m, struct node *n)
{
	struct progress p;
	char why[NODE_WHY_BYTES];

	progress_init(&p, node_lsn(n));
	ck_assert_int_eq(node_start_primary(n, why), 0);
	run_load(v, m, n, &p);
	ck_assert_uint_eq(p.acked, RECORDS);
	check_state(m, n, &p);
	ck_assert_int_eq(node_stop(n), 0);
	node_close(n);
	crash_volume_restart(v, UINT_MAX);
	ck_assert_int_eq(node_open(&v->opt, v->path, &v->media, &n, why), 0);
	ck_assert_uint_eq(n->recovered.replayed, 0);
	check_state(m, n, &p);
	node_close(n);
}

/* False: the run ended before call number stop_at. */
static bool crash_at(struct model *m, uint64_t seed, unsigned stop_at, bool lose_unsynced)
{
	struct crash_volume v;
	struct progress p;
	char why[NODE_WHY_BYTES] = "";
	struct node *n = NULL;
	bool crashed;
	int err;

	progress_init(&p, 0);
	crash_volume_make(&v, seed, lose_unsynced);
	v.crash.stop_at = stop_at;
	err = node_open(&v.opt, v.path, &v.media, &n, why);
	ck_assert_msg(!err || crash_happened(&v.crash), "first start: %s", why);
	if (!err) {
		ck_assert_int_eq(node_start_primary(n, why), 0);
		run_load(&v, m, n, &p);
		node_stop(n);
		node_close(n);
	}
	crashed = crash_happened(&v.crash);
	n = recover(&v);
	check_state(m, n, &p);
	check_goes_on(&v, m, n);
	crash_volume_remove(&v);
	return crashed;
}

START_TEST(recovers_from_everywhere)
{
	const char *part = getenv(PART_ENV);
	unsigned step = UNIT_SANITIZED ? 3 : 1, n = 1, stride = step;
	uint64_t seed = 1 + (uint64_t)_i / 2;
	struct model m;

	if (part) {
		n += step * (unsigned)strtoul(part, NULL, 10);
		stride *= PROCESSES;
	}
	model_make(&m, seed, RECORDS);
	while (crash_at(&m, seed, n, _i % 2))
		n += stride;
	ck_assert_uint_gt(n, 150);
	model_destroy(&m);
}
END_TEST

static int run_suite(void)
{
	bool thorough = unit_long();
	Suite *s = suite_create("node_crash");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, thorough ? 3600 : 300);
	tcase_add_loop_test(t, recovers_from_everywhere, 0, thorough ? 8 : 2);
	suite_add_tcase(s, t);
	return unit_run(s);
}

/* Each part is a process of its own before any thread starts. 0: all have passed. */
static int run_parts(void)
{
	pid_t pids[PROCESSES];
	int failed = 0, status;

	for (unsigned i = 0; i < PROCESSES; i++) {
		char part[16];

		snprintf(part, sizeof(part), "%u", i);
		pids[i] = fork();
		if (pids[i] == 0) {
			setenv(PART_ENV, part, 1);
			exit(run_suite());
		}
	}
	for (unsigned i = 0; i < PROCESSES; i++)
		if (pids[i] < 0 || waitpid(pids[i], &status, 0) != pids[i] || status != 0)
			failed = 1;
	return failed;
}

int main(void)
{
	const char *fork_mode = getenv("CK_FORK");

	/* in a debugger or valgrind it stays one process */
	if (getenv(PART_ENV) || (fork_mode && strcmp(fork_mode, "no") == 0))
		return run_suite();
	return run_parts();
}
