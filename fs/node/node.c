/* SPDX-License-Identifier: Apache-2.0 */
/* Bringing a volume up and down: see node.h. Main thread only. */
#include "fs/node/node.h"

#include "common/clock.h"
#include "common/diag.h"
#include "fs/node/node_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NODE_LOG_RESERVE_BYTES (1ULL << 20) /* kept for deletions when both pools fill */

static int node_fail(char *why, int err, const char *what)
{
	snprintf(why, NODE_WHY_BYTES, "%s: %s", what, strerror(-err));
	return err;
}

int node_apply(struct node *n, const struct record *r)
{
	int err;

	store_lock(n->store);
	err = store_apply_locked(n->store, r, NULL);
	store_unlock(n->store);
	return err;
}

/* A volume copied elsewhere, or a file system mounted without dax this time: safe,
 * and much slower. */
static void node_say_medium(const struct node *n)
{
	if (n->vol->super.is_pmem && !oplog_is_pmem(n->log))
		diag_warn("%s: made on persistent memory, but its logs go through the page cache "
			  "here: mount its file "
			  "system with -o dax",
			  n->vol->path);
}

static int node_open_log(struct node *n, struct oplog_range *ret_range, char *why)
{
	const struct node_media *media = n->media;
	struct oplog_config cfg = {
		.node_id = n->vol->super.node_id,
		.format_version = n->vol->super.format_version,
		.reserve_bytes = NODE_LOG_RESERVE_BYTES,
		.metrics = n->metrics,
	};
	const char *reason = NULL;
	int err;

	memcpy(cfg.uuid, n->vol->super.uuid, sizeof(cfg.uuid));
	err = ckpt_open(n->vol->dirfd, false, n->vol->super.uuid, &n->ckpt);
	if (err)
		return node_fail(why, err, "cannot open its checkpoints (ckpt, see fsck.kvfs)");
	if (media && media->ckpt)
		ckpt_set_hooks(n->ckpt, media->ckpt);
	err = oplog_open(media && media->log ? media->log : &logdev_pmemlog_ops, n->vol->dirfd,
			 &cfg, &n->log, ret_range, &reason);
	if (!err)
		node_say_medium(n);
	if (!err)
		return 0;
	snprintf(why, NODE_WHY_BYTES, "cannot open its log (log.0, log.1): %s; %s",
		 reason ? reason : strerror(-err),
		 err != -ENOSPC ? "see fsck.kvfs" :
				  "its files have holes, as a sparse copy leaves them: free some "
				  "space to fill them");
	return err;
}

/* A fresh store for the next attempt. */
static int node_renew_store(struct node *n)
{
	store_destroy(n->store);
	n->store = node_memory_store(n);
	return n->store ? 0 : -ENOMEM;
}

static void node_raise_epoch(struct node *n, uint64_t epoch)
{
	if (epoch > n->epoch)
		n->epoch = epoch;
}

/* The newest checkpoint that loads; the log then has to reach back to it. */
static int node_load_ckpt(struct node *n, char *why)
{
	struct ckpt_info infos[2];
	int count = ckpt_list(n->ckpt, infos), i, err = 0;
	uint64_t began = clock_mono_ns();

	if (count < 0)
		return node_fail(why, count, "its checkpoints cannot be listed");
	for (i = 0; i < count; i++) {
		const char *reason = NULL;

		err = image_load(store_image(n->store), n->ckpt, &infos[i], NULL, NULL, &reason);
		if (!err) {
			n->recovered.ckpt_number = infos[i].number;
			n->recovered.ckpt_lsn = infos[i].lsn;
			n->recovered.load_ns = clock_mono_ns() - began;
			n->ckpt_lsn = infos[i].lsn;
			node_raise_epoch(n, infos[i].epoch);
			return 0;
		}
		snprintf(why, NODE_WHY_BYTES, "checkpoint %" PRIu64 " cannot be loaded: %s",
			 infos[i].number, reason ? reason : strerror(-err));
		/* damaged, or the medium can't give it back; no shortage of ours */
		if ((err != -EBADMSG && err != -EIO) || i + 1 == count)
			return err;
		diag_warn("%s; trying the one before it", why);
		/* sound files, perhaps: not to be built on */
		ckpt_mark_bad(n->ckpt, infos[i].number, true);
		err = node_renew_store(n);
		if (err)
			return node_fail(why, err, "cannot make the store");
	}
	return 0;
}

struct node_replay {
	struct node *n;
	uint64_t failed_lsn;
	const char *failed_op;
};

static int node_replay_record(void *ctx, const struct record *r)
{
	struct node_replay *rp = ctx;
	int err = node_apply(rp->n, r);

	if (err) {
		rp->failed_lsn = r->lsn;
		rp->failed_op = record_opcode_name(r->opcode);
		return err;
	}
	rp->n->recovered.replayed++;
	return 0;
}

static int node_replay(struct node *n, char *why)
{
	struct node_replay rp = { .n = n };
	uint64_t first = 0, last = 0, began = clock_mono_ns();
	int err =
	    oplog_replay(n->log, n->recovered.ckpt_lsn, node_replay_record, &rp, &first, &last);

	n->recovered.replay_ns = clock_mono_ns() - began;
	if (!err)
		return 0;
	if (rp.failed_op)
		snprintf(why, NODE_WHY_BYTES,
			 "record %" PRIu64
			 " (%s) of the log cannot be executed: %s; nothing was changed",
			 rp.failed_lsn, rp.failed_op,
			 err == -ENOSPC ? "the arena is too small for this volume"
					: strerror(-err));
	else if (err == -ENODATA)
		snprintf(why, NODE_WHY_BYTES,
			 "records %" PRIu64 " to %" PRIu64
			 " are in no checkpoint and no log; nothing was changed",
			 first, last);
	else
		return node_fail(why, err, "the log cannot be read");
	return err;
}

static int node_load_state(struct node *n, char *why)
{
	int err = node_load_ckpt(n, why);

	return err ? err : node_replay(n, why);
}

/*
 * Loading needs more than what it ends with: an item is replaced by a newer one, what is deleted
 * later comes first, and slots are packed in another order than they were. So a volume that was
 * full may not fit at first: it is loaded once more with addresses to spare (memory is taken as it
 * is needed), and then nothing new is taken beyond the arena.
 */
static int node_load_with_slack(struct node *n, char *why)
{
	int err;

	node_memory_close(n);
	memset(&n->recovered, 0, sizeof(n->recovered));
	n->ckpt_lsn = 0;
	err = node_memory_open(n, true, why);
	if (!err)
		err = node_load_state(n, why);
	if (err)
		return err;
	node_memory_limit(n, true);
	diag_info("%s: the arena is full: it was loaded with room to spare", n->vol->path);
	return 0;
}

/* What lies in memory now is all of the volume; the log goes on behind it. */
static int node_start_log(struct node *n, const struct oplog_range *range, char *why)
{
	uint64_t lsn;
	int err = 0;

	store_lock(n->store);
	lsn = store_lsn_locked(n->store);
	store_unlock(n->store);
	n->recovered.torn_tail = range->torn_tail;
	n->recovered.taken_in_bytes = range->taken_in_bytes;
	if (range->torn_tail && lsn != n->ckpt_lsn)
		err = node_ckpt_run(n);
	if (!err)
		err = oplog_start(n->log, lsn + 1, n->epoch);
	if (err)
		return node_fail(why, err, "the log cannot be made ready");
	oplog_covered(n->log, n->ckpt_lsn);
	return 0;
}

/* A resync was cut short: nothing here is worth keeping. The mirror begins empty, and stays
 * "resyncing" on media until a primary has given it an image or begun to send its log from
 * LSN 1 (node_resume). */
static int node_recover_resync(struct node *n, char *why)
{
	int err;

	if (n->opt->role == OPTIONS_MOUNT) {
		snprintf(why, NODE_WHY_BYTES,
			 "a resync did not finish: let kvfs mirror finish it first");
		return -EUCLEAN;
	}
	err = node_forget(n);
	return err ? node_fail(why, err, "an unfinished resync cannot be cleared") : 0;
}

static int node_recover(struct node *n, char *why)
{
	struct oplog_range range = { .first_lsn = 0 };
	int err = node_open_log(n, &range, why);

	if (err)
		return err;
	n->epoch = 1;
	node_raise_epoch(n, range.epoch);
	/* A mirror's log goes on in the epoch of its last record: catch-up may bring older ones
	 * than it promised. */
	if (n->opt->role == OPTIONS_MOUNT)
		node_raise_epoch(n, n->vol->super.promised_epoch);
	if (n->vol->super.state == VOLUME_RESYNCING)
		return node_recover_resync(n, why);
	err = node_load_state(n, why);
	if (err == -ENOSPC)
		err = node_load_with_slack(n, why);
	return err ? err : node_start_log(n, &range, why);
}

/* Two primaries of one volume would diverge: a mirror's volume takes writes only after a promotion,
 * and a primary's is not fed as a mirror's. */
static int node_check_role(struct node *n, char *why)
{
	bool mount = n->opt->role == OPTIONS_MOUNT;

	if (mount && n->vol->super.is_mirror && !n->opt->promote) {
		snprintf(
		    why, NODE_WHY_BYTES,
		    "%s is a mirror's volume: start it with kvfs mirror, or, when the primary is "
		    "gone for good, make it the primary with -o promote",
		    n->vol->path);
		return -EROFS;
	}
	if (!mount && !n->vol->super.is_mirror) {
		snprintf(
		    why, NODE_WHY_BYTES,
		    "%s is a primary's volume: a mirror's is made with mkfs.kvfs --join %s/key",
		    n->vol->path, n->vol->path);
		return -EROFS;
	}
	return mount && n->vol->super.is_mirror
		   ? node_may_promote(&n->vol->super, n->opt->force, why)
		   : 0;
}

static void node_init_locks(struct node *n)
{
	pthread_rwlock_init(&n->store_swap, NULL);
	pthread_mutex_init(&n->lock, NULL);
	pthread_mutex_init(&n->ckpt_busy, NULL);
	pthread_mutex_init(&n->super_lock, NULL);
	thread_cond_init(&n->changed);
}

/* why begins with the volume's path. */
static void node_name_volume(const struct node *n, char *why)
{
	size_t path_len = strlen(n->vol->path), why_len = strlen(why);

	if (path_len + why_len + 3 > NODE_WHY_BYTES)
		why_len = NODE_WHY_BYTES - 3 - path_len; /* a path is shorter than PATH_MAX */
	memmove(why + path_len + 2, why, why_len);
	memcpy(why, n->vol->path, path_len);
	memcpy(why + path_len, ": ", 2);
	why[path_len + 2 + why_len] = '\0';
}

int node_open(const struct options *opt, const char *path, const struct node_media *media,
	      struct node **ret_node, char why[NODE_WHY_BYTES])
{
	bool mirror = opt->role == OPTIONS_MIRROR;
	struct node *n = calloc(1, sizeof(*n));
	const char *reason = NULL;
	int err;

	if (!n)
		return node_fail(why, -ENOMEM, "cannot start");
	n->opt = opt;
	n->media = media;
	node_init_locks(n);
	if (node_metrics_open(n) != 0) {
		node_close(n);
		return node_fail(why, -ENOMEM, "cannot start");
	}
	err = volume_open(path, false, &n->vol, &reason);
	if (err)
		snprintf(why, NODE_WHY_BYTES, "%s", reason ? reason : strerror(-err));
	if (!err && media && media->super) {
		n->vol->files = media->super;
		n->vol->files_ctx = media->super_ctx;
	}
	if (!err && n->vol->used_second_copy)
		diag_warn("%s: the first copy of the superblock is damaged, the second one is "
			  "used; see fsck.kvfs",
			  path);
	if (!err)
		err = node_check_role(n, why);
	if (!err)
		err = node_memory_size(n, why);
	if (!err)
		err = node_memory_open(n, mirror, why);
	if (!err && mirror)
		node_memory_limit(n, true);
	if (!err)
		err = node_recover(n, why);
	if (!err && !mirror)
		store_set_inodes_max(n->store, n->inodes_max);
	if (!err && !mirror)
		err = node_begin_epoch(n, n->vol->super.is_mirror, why);
	if (!err && (err = node_ckpt_start(n)) != 0)
		node_fail(why, err, "cannot start the checkpoint thread");
	if (err) {
		if (n->vol)
			node_name_volume(n, why);
		node_close(n);
		return err;
	}
	*ret_node = n;
	return 0;
}

void node_close(struct node *n)
{
	if (!n)
		return;
	node_ckpt_stop(n);
	oplog_close(n->log);
	ckpt_close(n->ckpt);
	node_memory_close(n);
	volume_close(n->vol);
	node_metrics_close(n);
	pthread_cond_destroy(&n->changed);
	pthread_mutex_destroy(&n->super_lock);
	pthread_mutex_destroy(&n->ckpt_busy);
	pthread_mutex_destroy(&n->lock);
	pthread_rwlock_destroy(&n->store_swap);
	free(n);
}
