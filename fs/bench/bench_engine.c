/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine without FUSE: see bench_engine.h. What fuse_write.c and fuse_read.c do for a request
 * is done here for a call: bytes staged without a lock, log room reserved, the record executed and
 * queued under the store's lock, the queue driven. Then the caller waits for the answer.
 */
#include "fs/bench/bench_engine.h"

#include "common/clock.h"
#include "fs/fuse/fuse_metrics.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define ENGINE_LOOKS 16 /* for an answer, between two looks at the clock */
#define ENGINE_LOOKS_A_TURN 8 /* for acknowledgements, between two yields of the processor */

struct bench_engine {
	const struct options *opt;
	struct node *node;
	struct fs_metrics metrics; /* what the tuner looks at */
	uint64_t timeout_ns;
};

struct engine_op {
	struct op op; /* first */
	struct bench_engine *engine;
	struct bench_caller *caller;
	uint64_t queued_ns;
	struct value_ref refs[OP_DATA_IOV_MAX];
	unsigned ref_count;
	uint8_t head[RECORD_HEADER_BYTES + 64 + 2 * BENCH_NAME_BYTES];
};

int bench_caller_init(struct bench_caller *c, struct bench_engine *e)
{
	*c = (struct bench_caller){ .helper.primary = e->node->primary };
	return sem_init(&c->answered, 0, 0) == 0 ? 0 : -errno;
}

void bench_caller_leave(struct bench_caller *c)
{
	primary_helper_leave(&c->helper);
}

void bench_caller_destroy(struct bench_caller *c)
{
	sem_destroy(&c->answered);
}

static void engine_op_complete(struct op *op, int err)
{
	struct engine_op *o = (struct engine_op *)op;
	struct fs_metrics *m = &o->engine->metrics;

	if (!err && op->head_len) {
		metric_observe(m->commit_wait, clock_mono_ns() - o->queued_ns);
		metric_observe(m->record_bytes, (uint64_t)op->head_len + op->data_len);
	}
	o->caller->err = err;
	sem_post(&o->caller->answered);
}

static void engine_op_free(struct engine_op *o)
{
	for (unsigned i = 0; i < o->ref_count; i++)
		value_ref_put(o->engine->node->slab, &o->refs[i]);
	free(o);
}

static void engine_op_release(struct op *op)
{
	engine_op_free((struct engine_op *)op);
}

static struct engine_op *engine_op_new(struct bench_engine *e, struct bench_caller *c)
{
	static const struct op_ops ops = { .complete = engine_op_complete,
					   .release = engine_op_release };
	struct engine_op *o = malloc(sizeof(*o));

	if (!o)
		return NULL;
	memset(&o->op, 0, sizeof(o->op));
	o->op.ops = &ops;
	o->queued_ns = clock_mono_ns();
	o->op.deadline_ns = o->queued_ns + e->timeout_ns;
	o->op.head = o->head;
	o->engine = e;
	o->caller = c;
	o->ref_count = 0;
	return o;
}

/* The bytes as log and wire read them: the slots, kept until release. */
static void engine_attach_locked(struct engine_op *o, const struct inode *in,
				 const struct record *r)
{
	uint64_t covered = 0;
	int n = value_refs(&in->u.value, 0, r->data_len, o->refs, OP_DATA_IOV_MAX, &covered);

	o->ref_count = (unsigned)n;
	for (int i = 0; i < n; i++)
		o->op.data[i] = (struct iovec){ o->refs[i].slot->data + o->refs[i].off,
						o->refs[i].len };
	o->op.data_iovcnt = (uint16_t)n;
	o->op.data_len = r->data_len;
}

/* Executes r and queues o; ino 0: the record makes a file, of the next number. */
static int engine_execute(struct bench_engine *e, struct record *r, struct value_stage *stage,
			  uint32_t crc, struct engine_op *o)
{
	struct store *st = e->node->store;
	int err;

	store_lock(st);
	if (!r->ino)
		r->ino = store_next_ino_locked(st);
	r->lsn = commit_next_lsn(e->node->commit);
	r->epoch = commit_epoch(e->node->commit);
	err = store_apply_locked(st, r, stage);
	if (!err) {
		if (r->data_len)
			engine_attach_locked(o, store_inode_locked(st, r->ino), r);
		o->op.lsn = r->lsn;
		o->op.head_len = (uint32_t)record_head_bytes(r);
		record_encode_head(r, o->head);
		record_seal(o->head, o->op.head_len, r->lsn, r->epoch, crc, r->data_len);
		commit_enqueue(e->node->commit, &o->op);
	}
	store_unlock(st);
	return err;
}

/* Looks for the mirrors' acknowledgements, one of which is this caller's answer. */
static bool engine_help(struct bench_caller *c)
{
	bool answered = false;
	unsigned looks = 0;

	if (!primary_help_begin(&c->helper))
		return false;
	while (!answered && primary_help(&c->helper)) {
		answered = sem_trywait(&c->answered) == 0;
		if (++looks % ENGINE_LOOKS_A_TURN == 0)
			sched_yield(); /* the mirror may be waiting for its turn */
	}
	primary_help_end(&c->helper, answered);
	return answered;
}

static void engine_wait(struct bench_engine *e, struct bench_caller *c)
{
	uint64_t until_ns = e->opt->poll_us ?
				    clock_mono_ns() + e->opt->poll_us * NSEC_PER_USEC : 0;
	bool answered = engine_help(c) || sem_trywait(&c->answered) == 0;

	while (!answered && until_ns) { /* gives way to the links' threads, which spin as well */
		for (unsigned i = 0; !answered && i < ENGINE_LOOKS; i++)
			answered = sem_trywait(&c->answered) == 0;
		sched_yield();
		if (clock_mono_ns() >= until_ns)
			until_ns = 0;
	}
	while (!answered) /* bounded: the queue answers by its deadline */
		answered = sem_wait(&c->answered) == 0;
}

/* From the record to its answer. Consumes stage. */
static int engine_submit(struct bench_engine *e, struct bench_caller *c, struct record *r,
			 struct value_stage *stage, uint32_t crc)
{
	struct commit *commit = e->node->commit;
	struct engine_op *o = engine_op_new(e, c);
	uint32_t bytes = (uint32_t)record_bytes(r);
	int err = o ? 0 : -ENOMEM;

	if (!err && !commit_admit_now(commit, bytes, false)) {
		commit_drive(commit); /* what is queued may be what makes room */
		err = commit_admit(commit, bytes, false, o->op.deadline_ns);
	}
	if (!err) {
		o->op.admitted_bytes = bytes;
		err = engine_execute(e, r, stage, crc, o);
		if (err)
			commit_unadmit(commit, bytes);
	}
	if (err) {
		value_stage_free(e->node->slab, stage);
		if (o)
			engine_op_free(o);
		return err;
	}
	commit_drive(commit);
	engine_wait(e, c);
	return c->err;
}

/* Until the record is committed: no get shows what may yet be lost. */
static int engine_await(struct bench_engine *e, struct bench_caller *c, uint64_t lsn)
{
	struct engine_op *o;

	if (lsn <= commit_point(e->node->commit))
		return 0;
	o = engine_op_new(e, c);
	if (!o)
		return -ENOMEM;
	o->op.lsn = lsn;
	commit_wait(e->node->commit, &o->op);
	engine_wait(e, c);
	return c->err;
}

static struct inode *engine_find_locked(struct store *st, uint64_t key)
{
	char name[BENCH_NAME_BYTES];

	bench_key_name(key, name);
	return store_lookup_locked(st, store_inode_locked(st, STORE_ROOT_INO), name, strlen(name));
}

static int engine_write(struct bench_engine *e, struct bench_caller *c, uint64_t ino,
			uint64_t old_bytes, const void *buf, size_t bytes)
{
	struct record r = { .opcode = RECORD_WRITE, .ino = ino, .timestamp_ns = clock_real_ns(),
			    .data = buf, .data_len = (uint32_t)bytes };
	struct value_stage *stage = NULL;
	uint32_t crc = 0;
	int err;

	if (bytes == 0)
		return 0;
	err = value_stage(e->node->slab, 0, buf, bytes, old_bytes, &stage, &crc);
	return err ? err : engine_submit(e, c, &r, stage, crc);
}

int bench_engine_put(struct bench_engine *e, struct bench_caller *c, uint64_t key, const void *buf,
		     size_t bytes)
{
	struct store *st = e->node->store;
	uint64_t ino = 0, old_bytes = 0;
	struct inode *in;

	store_lock(st);
	in = engine_find_locked(st, key);
	if (in) {
		ino = in->ino;
		old_bytes = in->u.value.size;
	}
	store_unlock(st);
	return ino ? engine_write(e, c, ino, old_bytes, buf, bytes) : -ENOENT;
}

int bench_engine_create(struct bench_engine *e, struct bench_caller *c, uint64_t key,
			const void *buf, size_t bytes)
{
	char name[BENCH_NAME_BYTES];
	struct record r = { .opcode = RECORD_CREATE, .gen = 1, .timestamp_ns = clock_real_ns(),
			    .name = bench_key_name(key, name) };
	int err;

	r.name_len = (uint32_t)strlen(name);
	r.u.create.parent_ino = STORE_ROOT_INO;
	r.u.create.mode = S_IFREG | 0644;
	err = engine_submit(e, c, &r, NULL, 0);
	return err ? err : engine_write(e, c, r.ino, 0, buf, bytes);
}

int bench_engine_rename(struct bench_engine *e, struct bench_caller *c, uint64_t from, uint64_t to)
{
	char name[BENCH_NAME_BYTES], name2[BENCH_NAME_BYTES];
	struct record r = { .opcode = RECORD_RENAME, .timestamp_ns = clock_real_ns(),
			    .name = bench_key_name(from, name),
			    .name2 = bench_key_name(to, name2) };
	struct store *st = e->node->store;
	struct inode *in;

	r.name_len = (uint32_t)strlen(name);
	r.name2_len = (uint32_t)strlen(name2);
	r.u.rename.old_parent_ino = r.u.rename.new_parent_ino = STORE_ROOT_INO;
	store_lock(st);
	in = engine_find_locked(st, from);
	if (in)
		r.ino = in->ino;
	store_unlock(st);
	return r.ino ? engine_submit(e, c, &r, NULL, 0) : -ENOENT;
}

int bench_engine_get(struct bench_engine *e, struct bench_caller *c, uint64_t key, void *buf,
		     size_t cap, uint64_t *ret_bytes)
{
	struct store *st = e->node->store;
	struct value_ref refs[OP_DATA_IOV_MAX];
	uint64_t covered = 0, lsn = 0;
	uint8_t *p = buf;
	struct inode *in;
	int n = -ENOENT, err;

	store_lock(st);
	in = engine_find_locked(st, key);
	if (in) {
		n = value_refs(&in->u.value, 0, cap, refs, OP_DATA_IOV_MAX, &covered);
		lsn = in->last_lsn;
	}
	store_unlock(st);
	err = engine_await(e, c, lsn);
	for (int i = 0; i < n; i++) {
		if (refs[i].slot)
			memcpy(p, refs[i].slot->data + refs[i].off, refs[i].len);
		else
			memset(p, 0, refs[i].len);
		p += refs[i].len;
		value_ref_put(e->node->slab, &refs[i]);
	}
	if (n < 0 || err)
		return n < 0 ? n : err;
	*ret_bytes = covered;
	return 0;
}

int bench_engine_open(const struct options *opt, const char *volume, const struct node_media *media,
		      struct bench_engine **ret_e, char why[NODE_WHY_BYTES])
{
	struct bench_engine *e = calloc(1, sizeof(*e));
	int err;

	if (!e) {
		snprintf(why, NODE_WHY_BYTES, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	e->opt = opt;
	e->timeout_ns = opt->timeout_s * NSEC_PER_SEC;
	err = node_open(opt, volume, media, &e->node, why);
	if (!err)
		fs_metrics_init(&e->metrics, e->node->metrics);
	if (!err)
		err = node_start_primary(e->node, why);
	if (err) {
		bench_engine_close(e);
		return err;
	}
	*ret_e = e;
	return 0;
}

struct node *bench_engine_node(struct bench_engine *e)
{
	return e->node;
}

void bench_engine_close(struct bench_engine *e)
{
	if (!e)
		return;
	if (e->node)
		(void)node_stop(e->node); /* the volume goes in any case */
	node_close(e->node);
	free(e);
}
