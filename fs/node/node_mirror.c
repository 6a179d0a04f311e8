/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mirror's half of a node: what the mirror thread asks of the store. All hooks run in
 * "kv-mirror".
 *
 * Switching the log's pools belongs to that thread too (it is the appender), so want_checkpoint
 * switches and the checkpoint thread only covers. A resync holds ckpt_busy as it begins and
 * as it installs; in between the store is empty, of which there is nothing to write.
 */
#include "fs/node/node.h"

#include "common/diag.h"
#include "fs/fuse/mirror_view.h"
#include "fs/node/node_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

int node_forget(struct node *n)
{
	int err = ckpt_wipe(n->ckpt);

	if (!err)
		err = oplog_restart(n->log, 1, 1);
	if (!err) {
		n->epoch = 1;
		n->ckpt_lsn = 0;
		n->vol->super.epochs.count = 0;
		n->vol->super.sync_epoch = 0;
	}
	return err;
}

/* With ckpt_busy held. Returns the old one, which is the caller's. */
static struct store *node_swap_store(struct node *n, struct store *fresh)
{
	struct store *old;

	pthread_rwlock_wrlock(&n->store_swap);
	old = n->store;
	n->store = fresh;
	pthread_rwlock_unlock(&n->store_swap);
	return old;
}

/* A resync that began replaces the store; until install nothing else may write to the checkpoint
 * directory. */
static int node_resync_begin(void *ctx)
{
	struct node *n = ctx;
	struct store *fresh = node_memory_store(n);
	enum volume_state before = n->vol->super.state;
	struct store *old;
	int err;

	if (!fresh)
		return -ENOMEM;
	pthread_mutex_lock(&n->ckpt_busy);
	n->vol->super.state = VOLUME_RESYNCING;
	err = volume_write_super(n->vol);
	if (err)
		n->vol->super.state = before; /* nothing is forgotten yet */
	else
		err = node_forget(n);
	if (err) {
		pthread_mutex_unlock(&n->ckpt_busy);
		store_destroy(fresh);
		return err;
	}
	old = node_swap_store(n, fresh);
	pthread_mutex_unlock(&n->ckpt_busy);
	store_destroy(old);
	diag_info("%s: resync: everything held before is replaced by the primary's checkpoint",
		  n->vol->path);
	return 0;
}

/* A store of its own with the image: the view's requests are answered from the empty one as long as
 * it takes, and a load that fails leaves nothing. */
static int node_resync_load(struct node *n, const struct mirror_progress *p,
			    struct ckpt_info *ret_info, struct store **ret_loaded)
{
	struct ckpt_info infos[2];
	const char *why = NULL;
	struct store *loaded;
	int err;

	if (ckpt_list(n->ckpt, infos) < 1)
		return -EBADMSG;
	loaded = node_memory_store(n);
	if (!loaded)
		return -ENOMEM;
	node_memory_limit(n, false); /* as node_load_with_slack, which may leave more taken */
	err = image_load(store_image(loaded), n->ckpt, &infos[0], p->note, p->ctx, &why);
	node_memory_limit(n, true);
	if (err) {
		if (err != -ECANCELED)
			diag_error("%s: the checkpoint received cannot be loaded: %s",
				   n->vol->path, why ? why : strerror(-err));
		store_destroy(loaded);
		return err;
	}
	*ret_info = infos[0];
	*ret_loaded = loaded;
	return 0;
}

/* With ckpt_busy held. What was loaded is the volume's once the superblock says so. */
static int node_resync_take(struct node *n, const struct ckpt_info *info, struct store **loaded)
{
	uint64_t epoch = info->epoch > n->epoch ? info->epoch : n->epoch;
	int err = oplog_restart(n->log, info->lsn + 1, epoch);

	if (err)
		return err;
	n->vol->super.state = VOLUME_READY;
	err = volume_write_super(n->vol);
	if (err) {
		n->vol->super.state = VOLUME_RESYNCING;
		return err;
	}
	n->epoch = epoch;
	n->ckpt_lsn = info->lsn;
	*loaded = node_swap_store(n, *loaded);
	return 0;
}

static int node_resync_install(void *ctx, const struct mirror_progress *p, uint64_t *ret_lsn)
{
	struct node *n = ctx;
	struct store *loaded = NULL;
	struct ckpt_info info;
	int err;

	pthread_mutex_lock(&n->ckpt_busy);
	err = node_resync_load(n, p, &info, &loaded);
	if (!err)
		err = node_resync_take(n, &info, &loaded);
	pthread_mutex_unlock(&n->ckpt_busy);
	store_destroy(loaded);
	if (err)
		return err;
	if (n->view)
		view_note_resync(n->view);
	diag_info("%s: resync done at LSN %" PRIu64, n->vol->path, info.lsn);
	*ret_lsn = info.lsn;
	return 0;
}

/* After a resync that was cut short the primary may send its log from LSN 1 on: what was received
 * of the image goes, and the volume is one that holds what its log says. */
static int node_resume(void *ctx)
{
	struct node *n = ctx;
	uint64_t lsn;
	int err;

	if (n->vol->super.state == VOLUME_READY)
		return 0;
	store_lock(n->store);
	lsn = store_lsn_locked(n->store);
	store_unlock(n->store);
	if (lsn != 0) /* a resync failed as it began: the next start clears what is left */
		return -EUCLEAN;
	pthread_mutex_lock(&n->ckpt_busy);
	/* an image that could not be installed may have left "ready" on media, and moved the log */
	err = volume_write_super(n->vol);
	if (!err)
		err = ckpt_wipe(n->ckpt);
	if (!err)
		err = oplog_restart(n->log, 1, 1);
	if (!err) {
		n->vol->super.state = VOLUME_READY;
		err = volume_write_super(n->vol);
		if (err)
			n->vol->super.state = VOLUME_RESYNCING;
	}
	pthread_mutex_unlock(&n->ckpt_busy);
	return err;
}

static int node_promise_epoch(void *ctx, const struct mirror_promise *p)
{
	struct node *n = ctx;
	struct volume_super *s = &n->vol->super, before = *s;
	int err;

	s->promised_epoch = p->epoch;
	s->promised_node = p->node_id;
	s->promised_life = p->life;
	err = volume_write_super(n->vol);
	if (err) {
		*s = before;
		s->sequence++; /* perhaps on media */
	}
	return err;
}

static int node_note_state(void *ctx, const struct epochs *epochs, uint64_t sync_epoch)
{
	struct node *n = ctx;
	struct volume_super *s = &n->vol->super, before = *s;
	int err;

	if (s->sync_epoch == sync_epoch && epochs_equal(&s->epochs, epochs))
		return 0;
	s->sync_epoch = sync_epoch;
	s->epochs = *epochs;
	err = volume_write_super(n->vol);
	if (err) {
		*s = before;
		s->sequence++; /* perhaps on media */
	}
	return err;
}

/* What the primary's arena held must be taken here, too, where slots are packed otherwise and other
 * ones are shared with a checkpoint: the arena is a limit for the primary alone. */
static int node_mirror_apply_locked(struct node *n, const struct record *r)
{
	int err = store_apply_locked(n->store, r, NULL);

	if (err != -ENOSPC)
		return err;
	node_memory_limit(n, false);
	err = store_apply_locked(n->store, r, NULL);
	node_memory_limit(n, true);
	return err;
}

static int node_mirror_apply(void *ctx, const struct record *r)
{
	struct node *n = ctx;
	bool known = false;
	int err;

	if (r->epoch > n->epoch)
		n->epoch = r->epoch;
	store_lock(n->store);
	err = node_mirror_apply_locked(n, r);
	if (!err && n->view)
		known = view_wants_locked(n->view, n->store, r);
	store_unlock(n->store);
	if (known)
		view_note(n->view, r->ino);
	return err;
}

static void node_mirror_applied(void *ctx, uint64_t lsn)
{
	struct node *n = ctx;

	if (n->view)
		view_flush(n->view);
}

/* Not n->epoch: the log is ahead of the store here. */
static void node_mirror_want_checkpoint(void *ctx, uint64_t epoch)
{
	struct node *n = ctx;
	int err = oplog_switch(n->log, epoch);

	/* -EBUSY: the other pool waits for the checkpoint asked for now */
	if (err && err != -EBUSY && !atomic_exchange(&n->failed, true))
		diag_error("%s: the log failed (%s)", n->vol->path, strerror(-err));
	node_ckpt_want(n);
}

static void node_mirror_failed(void *ctx, const char *why)
{
	struct node *n = ctx;

	diag_error("%s: the mirror has stopped: %s", n->vol->path, why);
}

static void node_mirror_warn(void *ctx, const char *text)
{
	struct node *n = ctx;

	diag_warn("%s: the primary's connection: %s", n->vol->path, text);
}

const struct mirror_ops node_mirror_ops = {
	.apply = node_mirror_apply,
	.applied = node_mirror_applied,
	.want_checkpoint = node_mirror_want_checkpoint,
	.resync_keep = node_cut_keep,
	.resync_begin = node_resync_begin,
	.resync_install = node_resync_install,
	.resume = node_resume,
	.promise_epoch = node_promise_epoch,
	.note_state = node_note_state,
	.failed = node_mirror_failed,
	.warn = node_mirror_warn,
};

int node_start_mirror(struct node *n, char why[NODE_WHY_BYTES])
{
	struct mirror_config cfg = {
		.node_id = n->vol->super.node_id,
		.promised = { .epoch = n->vol->super.promised_epoch,
			      .node_id = n->vol->super.promised_node,
			      .life = n->vol->super.promised_life },
		.sync_epoch = n->vol->super.sync_epoch,
		.epochs = &n->vol->super.epochs,
		.arena_bytes = n->arena_bytes,
		.ring_bytes = n->opt->ring_bytes,
		.lanes_max = n->opt->lanes,
		.poll_us = n->opt->poll_us,
		.metrics = n->metrics,
		.ack_timeout = n->opt->ack_timeout,
		.rdma_device = n->opt->rdma_device,
		.listen = n->opt->listen.list,
		.listen_count = n->opt->listen.count,
	};
	const char *reason = NULL;
	int err;

	err = node_check_verbs(n, &n->opt->listen, why);
	if (err)
		return err;
	memcpy(cfg.uuid, n->vol->super.uuid, sizeof(cfg.uuid));
	memcpy(cfg.key, n->vol->key, sizeof(cfg.key));
	store_lock(n->store);
	cfg.last_lsn = store_lsn_locked(n->store);
	store_unlock(n->store);
	err = mirror_create(n->log, n->ckpt, &cfg, &node_mirror_ops, n, &n->mirror, &reason);
	if (err)
		snprintf(why, NODE_WHY_BYTES, "cannot listen for the primary: %s",
			 reason ? reason : strerror(-err));
	else
		node_say_listening(n);
	return err;
}
