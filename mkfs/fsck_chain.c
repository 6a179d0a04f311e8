/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether what is left is all of the volume: the newest usable checkpoint and the log must meet,
 * and the pools must meet each other. Here is also decided what may be dropped: a checkpoint only
 * when an older one (or the empty volume, LSN 0) and an unbroken log give back everything it held.
 */
#include "mkfs/fsck_internal.h"

#include "log/logdev.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The log as one run of records. */
struct log_run {
	bool known;      /* both pools could be read */
	bool any;        /* a pool begins with a generation record */
	bool broken;     /* the pools don't meet */
	uint64_t first_lsn, last_lsn; /* last = first - 1: no records */
	struct fsck_pool *older, *newer;
};

static bool pool_readable(const struct fsck_pool *p)
{
	return p->opened && (p->generation_valid || p->stored_bytes == 0);
}

static struct log_run log_run_of(struct fsck *f)
{
	bool one_is_newer = f->pools[1].generation > f->pools[0].generation;
	struct log_run run = {
		.newer = &f->pools[one_is_newer ? 1 : 0],
		.older = &f->pools[one_is_newer ? 0 : 1],
	};

	run.known = pool_readable(run.older) && pool_readable(run.newer);
	run.any = run.newer->generation_valid;
	run.first_lsn = run.newer->base_lsn;
	run.last_lsn = run.newer->last_lsn;
	if (!run.any || !run.older->generation_valid ||
	    (run.older->records == 0 && !run.older->torn))
		return run;
	if (run.older->last_lsn + 1 == run.newer->base_lsn)
		run.first_lsn = run.older->base_lsn;
	else
		run.broken = true;
	return run;
}

/* The newest checkpoint from slot on that was read whole; 0 (the empty volume) when
 * there is none. */
static uint64_t usable_lsn(const struct fsck *f, int slot)
{
	for (int i = slot; i < f->ckpt_count; i++) {
		if (f->ckpts[i].valid)
			return f->ckpts[i].info.lsn;
	}
	return 0;
}

/* Whether recovery from lsn by the log gives everything up to at least upto_lsn. */
static bool log_reaches(const struct log_run *run, uint64_t lsn, uint64_t upto_lsn)
{
	return run->known && run->any && !run->broken && run->first_lsn <= lsn + 1 &&
	       run->last_lsn >= upto_lsn;
}

static void remove_slot(struct fsck *f, int slot)
{
	for (int i = slot; i + 1 < f->ckpt_count; i++)
		f->ckpts[i] = f->ckpts[i + 1];
	f->ckpt_count--;
}

static void judge_ckpts(struct fsck *f, const struct log_run *run)
{
	for (int i = f->ckpt_count - 1; i >= 0; i--) {
		const struct ckpt_info *info = &f->ckpts[i].info;
		char name[64] = "ckpt";
		struct fsck_place place = { .file = name, .offset = -1, .lsn = info->lsn };
		bool newer_is_good = i > 0 && f->ckpts[0].valid;
		bool safe = newer_is_good || log_reaches(run, usable_lsn(f, i + 1), info->lsn);
		int err;

		if (f->ckpts[i].valid)
			continue;
		ckpt_manifest_name(info->number, name, sizeof(name));
		if (!fsck_problem(
			    f, &place, safe, "the checkpoint is damaged; %s",
			    safe ? "without it nothing is lost" :
				   "the older checkpoint and the log do not reach: resync from "
				   "another node")) {
			f->keep_strays = true;
			continue;
		}
		err = fsck_ckpt_drop(f, info->number);
		fsck_repaired(f, err, "dropped");
		if (err)
			f->keep_strays = true;
		else
			remove_slot(f, i);
	}
}

static void judge_manifest(struct fsck *f, const struct log_run *run, uint64_t number)
{
	char name[64] = "ckpt";
	struct fsck_place place = { .file = name, .offset = -1 };
	bool safe = log_reaches(run, usable_lsn(f, 0), usable_lsn(f, 0));
	int err;

	ckpt_manifest_name(number, name, sizeof(name));
	if (!fsck_problem(
		    f, &place, safe, "the manifest of the newest checkpoint is damaged; %s",
		    safe ? "without it nothing is lost" :
			   "the older checkpoint and the log do not reach: resync from another "
			   "node")) {
		f->keep_strays = true;
		return;
	}
	err = fsck_ckpt_drop(f, number);
	fsck_repaired(f, err, "dropped");
	if (err)
		f->keep_strays = true;
}

/* Manifests newer than the newest valid one: ckpt_list left them out, so they are damaged. */
static void judge_manifests(struct fsck *f, const struct log_run *run)
{
	int fd = openat(f->dirfd, "ckpt", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	uint64_t number, damaged[8];
	size_t count = 0;
	struct dirent *e;

	if (!d)
		return;
	while ((e = readdir(d)) && count < sizeof(damaged) / sizeof(damaged[0])) {
		if (fsck_name_is_manifest(e->d_name, &number) &&
		    number > f->newest_listed)
			damaged[count++] = number;
	}
	closedir(d);
	for (size_t i = 0; i < count; i++)
		judge_manifest(f, run, damaged[i]);
}

static int rewind_pool(struct fsck *f, struct fsck_pool *p)
{
	struct logdev *dev = NULL;
	int err = logdev_pmemlog_ops.open(f->dirfd, p->name, &dev);

	if (err)
		return err;
	err = logdev_pmemlog_ops.rewind(dev);
	logdev_pmemlog_ops.close(dev);
	if (!err)
		*p = (struct fsck_pool){ .name = p->name, .ops = p->ops, .opened = true };
	return err;
}

static void judge_pools(struct fsck *f, struct log_run *run)
{
	struct fsck_pool *old = run->older;
	struct fsck_place place = { .file = old->name, .offset = (int64_t)old->used_bytes,
				    .lsn = old->last_lsn + 1 };
	bool covered = usable_lsn(f, 0) + 1 >= run->newer->base_lsn;
	int err;

	if (!run->broken)
		return;
	if (!fsck_problem(f, &place, covered,
			  "the older pool ends at LSN %llu, the newer begins at %llu%s",
			  (unsigned long long)old->last_lsn,
			  (unsigned long long)run->newer->base_lsn,
			  covered ? "; a checkpoint holds all of the older one" :
				    ": records are missing; resync from another node"))
		return;
	err = rewind_pool(f, old);
	fsck_repaired(f, err, "the older pool emptied");
	if (!err)
		*run = log_run_of(f);
}

static void judge_reach(struct fsck *f, const struct log_run *run)
{
	uint64_t lsn = usable_lsn(f, 0);
	struct fsck_place place = { .file = run->newer->name, .offset = -1, .lsn = lsn + 1 };

	if (!run->known || !run->any || run->broken)
		return;
	if (run->first_lsn > lsn + 1)
		fsck_problem(
			f, &place, false,
			"records %llu to %llu are missing: the newest usable checkpoint "
			"ends before them, the log begins after them; resync from another node",
			(unsigned long long)lsn + 1, (unsigned long long)run->first_lsn - 1);
	else if (run->last_lsn < lsn)
		fsck_note(f, &place,
			  "the log ends at LSN %llu, before the newest checkpoint's %llu",
			  (unsigned long long)run->last_lsn, (unsigned long long)lsn);
}

/* What the mount would say, should it see more than the checks above. */
static int ask_oplog(struct fsck *f)
{
	struct oplog_config cfg = { .node_id = f->super.node_id,
				    .format_version = f->super.format_version };
	const struct logdev_ops *ops = f->pools[0].ops;
	struct fsck_place place = { .file = "log.*", .offset = -1 };
	struct oplog_range range;
	struct oplog *log = NULL;
	const char *why = "invalid";
	int err;

	memcpy(cfg.uuid, f->super.uuid, sizeof(cfg.uuid));
	err = oplog_open(ops, f->dirfd, &cfg, &log, &range, &why);
	oplog_close(log);
	if (err == -EROFS && ops == &logdev_readonly_ops)
		err = 0; /* all is good but for records it would take in, which are noted */
	if (err == -EBADMSG)
		fsck_problem(f, &place, false, "%s", why);
	return err && err != -EBADMSG ? fsck_fail(f, "log.*", err) : 0;
}

int fsck_check_chain(struct fsck *f)
{
	struct log_run run = log_run_of(f);

	f->newest_listed = f->ckpt_count > 0 ? f->ckpts[0].info.number : 0;
	judge_ckpts(f, &run);
	judge_manifests(f, &run);
	if (run.known)
		judge_pools(f, &run);
	judge_reach(f, &run);
	return f->left == 0 ? ask_oplog(f) : 0;
}
