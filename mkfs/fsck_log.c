/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads every record of both log pools. What ends a pool's valid records is told apart: a torn
 * tail, which a crash may leave, or damage with valid records behind it.
 */
#include "mkfs/fsck_internal.h"

#include "log/logdev.h"
#include "log/record.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FORGET_BYTES (8ULL << 20)

static const char *const pool_names[OPLOG_POOLS] = { "log.0", "log.1" };

struct pool_scan {
	struct fsck *f;
	struct fsck_pool *p;
	struct logdev *dev;
	const uint8_t *base;
	uint64_t capacity, begun_ns;
	uint64_t done_before, total; /* for progress */
};

static struct fsck_place pool_place(const struct fsck_pool *p, uint64_t offset, uint64_t lsn)
{
	return (struct fsck_place){ .file = p->name, .offset = (int64_t)offset, .lsn = lsn };
}

static bool scan_generation(struct pool_scan *s)
{
	const struct fsck_place place = pool_place(s->p, 0, 0);
	const struct volume_super *super = &s->f->super;
	const char *wrong = NULL;
	struct record r;
	size_t bytes = 0;
	int err = oplog_decode(s->base, s->p->stored_bytes, &r, &bytes);

	if (err == -EIO)
		wrong = "the generation record, which every pool begins with, can't be read";
	else if (err != 0 || r.opcode != RECORD_GENERATION)
		wrong = "the generation record, which every pool begins with, is damaged";
	else if (memcmp(r.u.generation.uuid, super->uuid, sizeof(super->uuid)) != 0)
		wrong = "the pool belongs to another volume";
	else if (r.u.generation.node_id != super->node_id)
		wrong = "the pool belongs to another node of this volume";
	else if (r.u.generation.format_version != super->format_version)
		wrong = "the pool has another format version";
	if (wrong) {
		fsck_problem(s->f, &place, false, "%s", wrong);
		return false;
	}
	s->p->generation_valid = true;
	s->p->generation = r.u.generation.generation;
	s->p->base_lsn = r.lsn;
	s->p->last_lsn = r.lsn - 1;
	s->p->epoch = r.epoch;
	s->p->used_bytes = bytes;
	s->begun_ns = r.timestamp_ns;
	return true;
}

/* One record that continues the pool. False: the valid part ends here. */
static bool scan_record(struct pool_scan *s)
{
	struct fsck_pool *p = s->p;
	struct record r;
	size_t bytes = 0;
	struct oplog_end end = { p->last_lsn, p->epoch, s->begun_ns };
	int err = oplog_decode(s->base + p->used_bytes, s->capacity - p->used_bytes, &r, &bytes);

	p->unreadable = err == -EIO;
	if (err != 0 ||
	    !oplog_continues(&r, &end, p->used_bytes + bytes <= p->stored_bytes))
		return false;
	p->last_lsn = r.lsn;
	p->epoch = r.epoch;
	p->records++;
	p->used_bytes += bytes;
	return true;
}

static void scan_pool(struct pool_scan *s)
{
	uint64_t forgot = 0;

	s->base = s->p->ops->base(s->dev);
	s->capacity = s->p->ops->capacity(s->dev);
	if (s->p->stored_bytes == 0 || !scan_generation(s))
		return;
	while (s->p->used_bytes < s->capacity && scan_record(s)) {
		if (s->p->used_bytes - forgot >= FORGET_BYTES) {
			forgot = s->p->used_bytes;
			s->p->ops->forget(s->dev, forgot);
		}
		progress_update(&s->f->progress, s->done_before + s->p->used_bytes, s->total);
	}
	s->p->torn = s->p->unreadable || s->p->used_bytes < s->p->stored_bytes;
	if (s->p->torn && !s->p->unreadable)
		s->p->unreadable =
			oplog_find_beyond(s->base, s->p->used_bytes, s->p->stored_bytes,
					  s->p->last_lsn, s->p->epoch, &s->p->island_offset,
					  &s->p->island_lsn) == -EIO;
}

/* NULL after a problem was reported; -errno in *ret_err for an operational error. */
static struct logdev *open_pool(struct fsck *f, struct fsck_pool *p, int *ret_err)
{
	const struct fsck_place place = { .file = p->name, .offset = -1 };
	struct logdev *dev = NULL;
	int err;

	p->ops = &logdev_pmemlog_ops;
	err = p->ops->open(f->dirfd, p->name, &dev);
	if (err == -EROFS && !f->repair) {
		p->ops = &logdev_readonly_ops;
		err = p->ops->open(f->dirfd, p->name, &dev);
	}
	if (!err) {
		p->opened = true;
		p->stored_bytes = p->ops->used(dev);
		return dev;
	}
	if (err == -ENOENT)
		fsck_problem(f, &place, false,
			     "the log pool is missing; make this node's volume again "
			     "(mkfs.kvfs --join) and let it resync");
	else if (err == -EBADMSG)
		fsck_problem(f, &place, false, "not a log pool, or its header is damaged");
	else
		*ret_err = fsck_fail(f, p->name, err);
	return NULL;
}

/* Which other nodes have what is lost here, for the message. */
static void name_mirrors(const struct fsck *f, char *out, size_t cap)
{
	size_t len = 0;

	out[0] = '\0';
	for (uint32_t i = 0; i < f->super.sync_count && len < cap; i++)
		len += (size_t)snprintf(out + len, cap - len, "%s%08x",
					i ? ", " : "; in sync were the mirrors ",
					f->super.sync_nodes[i]);
}

static void judge_island(struct fsck *f, struct fsck_pool *p, struct logdev *dev, bool newest)
{
	struct fsck_place place = pool_place(p, p->used_bytes, p->last_lsn + 1);
	char name[FSCK_CUT_NAME_BYTES] = "", what[FSCK_CUT_NAME_BYTES + 64], mirrors[128];
	int err;

	name_mirrors(f, mirrors, sizeof(mirrors));
	if (!fsck_problem(
		    f, &place, newest,
		    "damaged; the log ends here, but valid records go on at "
		    "offset %llu with LSN %llu: what lies between was lost to damage, not to a "
		    "crash; a mirror that has it can be made the primary%s%s",
		    (unsigned long long)p->island_offset, (unsigned long long)p->island_lsn,
		    mirrors,
		    f->repair && !f->cut ? "; -y alone cuts off here, -a and -p don't" : ""))
		return;
	if (!f->cut)
		return;
	err = fsck_log_cut(f, p, dev, name);
	snprintf(what, sizeof(what), "the log cut off after LSN %llu, the rest kept in %s",
		 (unsigned long long)p->last_lsn, name);
	fsck_repaired(f, err, what);
}

/* Whose tail may be torn: only the newest pool is written. */
static void judge_damage(struct fsck *f, struct fsck_pool *p, struct logdev *dev, bool newest)
{
	struct fsck_place place = pool_place(p, p->used_bytes, p->last_lsn + 1);
	uint64_t rest = p->stored_bytes - p->used_bytes;

	if (p->unreadable)
		fsck_problem(f, &place, false,
			     "the medium can't give back what lies behind LSN %llu: copy the pool "
			     "as far as it can be read to another, or make a mirror the primary",
			     (unsigned long long)p->last_lsn);
	else if (p->island_offset)
		judge_island(f, p, dev, newest);
	else if (newest)
		fsck_note(f, &place,
			  "a torn tail of %llu bytes, as a crash leaves it; the log ends at LSN "
			  "%llu",
			  (unsigned long long)rest, (unsigned long long)p->last_lsn);
	/* The older pool's is judged with its neighbours, in fsck_chain.c. */
}

/* A crash in an append leaves a batch of records so; more of them, a damaged end. */
static void note_behind_end(struct fsck *f, const struct fsck_pool *p)
{
	struct fsck_place place = pool_place(p, p->stored_bytes, p->last_lsn);

	fsck_note(f, &place,
		  "the pool names this as its end, but %llu bytes of whole records follow, up to "
		  "LSN %llu; the next mount takes them in",
		  (unsigned long long)(p->used_bytes - p->stored_bytes),
		  (unsigned long long)p->last_lsn);
}

int fsck_check_log(struct fsck *f)
{
	struct logdev *devs[OPLOG_POOLS] = { NULL };
	uint64_t total = 0, done = 0;
	bool newest_is_1;
	int err = 0;

	progress_begin(&f->progress, "reading the log");
	for (int i = 0; i < OPLOG_POOLS && !err; i++) {
		f->pools[i].name = pool_names[i];
		devs[i] = open_pool(f, &f->pools[i], &err);
		total += f->pools[i].stored_bytes;
	}
	for (int i = 0; i < OPLOG_POOLS && !err; i++) {
		struct pool_scan s = { .f = f,
				       .p = &f->pools[i],
				       .dev = devs[i],
				       .done_before = done,
				       .total = total };

		if (devs[i])
			scan_pool(&s);
		done += f->pools[i].stored_bytes;
	}
	newest_is_1 = f->pools[1].generation > f->pools[0].generation;
	for (int i = 0; i < OPLOG_POOLS; i++) {
		if (f->pools[i].used_bytes > f->pools[i].stored_bytes)
			note_behind_end(f, &f->pools[i]);
		if (f->pools[i].torn)
			judge_damage(f, &f->pools[i], devs[i], newest_is_1 == (i == 1));
		if (devs[i])
			f->pools[i].ops->close(devs[i]);
	}
	progress_end(&f->progress);
	return err;
}
