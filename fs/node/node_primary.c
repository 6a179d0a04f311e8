/* SPDX-License-Identifier: Apache-2.0 */
/* The primary's half of a node: commit queue, links to the mirrors, and the orderly
 * end. See node.h. */
#include "fs/node/node.h"

#include "common/clock.h"
#include "common/diag.h"
#include "fs/node/node_tuner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NODE_DRAIN_NS (5 * NSEC_PER_SEC)
#define NODE_RESYNC_CKPT_NS (600 * NSEC_PER_SEC)
#define NODE_LOOK_NS (100 * NSEC_PER_MSEC) /* whether the start is to end */

static void node_log_failed(void *ctx, int err)
{
	struct node *n = ctx;

	if (!atomic_exchange(&n->failed, true))
		diag_error("%s: the log failed (%s): no further write is accepted", n->vol->path,
			   strerror(-err));
}

static void node_turned_read_only(void *ctx, bool read_only)
{
	struct node *n = ctx;

	if (read_only)
		diag_error("%s: fewer than min_mirrors=%u mirrors in sync for timeout=%u s: "
			   "read-only until they are back",
			   n->vol->path, n->opt->min_mirrors, n->opt->timeout_s);
	else
		diag_info("%s: enough mirrors are in sync: writable again", n->vol->path);
	if (!read_only)
		node_ckpt_want(n); /* after it what was closed meanwhile is freed */
}

static int node_resync_ckpt(void *ctx)
{
	return node_ckpt_make(ctx, NODE_RESYNC_CKPT_NS);
}

static int node_start_commit(struct node *n)
{
	struct commit_config cfg = {
		.protocol = (enum commit_protocol)n->opt->protocol,
		.min_mirrors = n->opt->min_mirrors,
		.early_answers = n->opt->early_truncate == OPTIONS_ON,
		.timeout_ns = n->opt->timeout_s * NSEC_PER_SEC,
		.epoch = n->epoch,
		.want_checkpoint = node_ckpt_want,
		.failed = node_log_failed,
		.ctx = n,
	};
	struct commit *c;
	int err;

	if (n->opt->too_few_mirrors == OPTIONS_TOO_FEW_READONLY)
		cfg.turned_read_only = node_turned_read_only;
	store_lock(n->store);
	cfg.next_lsn = store_lsn_locked(n->store) + 1;
	store_unlock(n->store);
	err = commit_create(n->log, &cfg, &c);
	if (err)
		return err;
	pthread_mutex_lock(&n->lock); /* kv-ckpt runs already, see node_ckpt_commit */
	n->commit = c;
	pthread_mutex_unlock(&n->lock);
	return 0;
}

static void node_link_warn(void *ctx, const char *addr, const char *text)
{
	struct node *n = ctx;

	diag_warn("%s: mirror %s: %s", n->vol->path, addr, text);
}

static int node_start_links(struct node *n)
{
	struct primary_config cfg = {
		.node_id = n->vol->super.node_id,
		.epoch = n->epoch,
		.life = n->vol->super.promised_life,
		.epochs = &n->vol->super.epochs,
		.arena_bytes = n->arena_bytes,
		.poll_us = n->opt->poll_us,
		.ack_timeout = n->opt->ack_timeout,
		.rdma_device = n->opt->rdma_device,
		.memory = n->regions,
		.timeout_ns = n->opt->timeout_s * NSEC_PER_SEC,
		.metrics = n->metrics,
		.mirrors = n->opt->mirrors.list,
		.mirror_count = n->opt->mirrors.count,
		.transport = n->media ? n->media->transport : NULL,
		.checkpoint = node_resync_ckpt,
		.note_sync = node_note_sync,
		.warn = node_link_warn,
		.ctx = n,
	};

	node_tuner_lanes(n, &cfg);
	memcpy(cfg.uuid, n->vol->super.uuid, sizeof(cfg.uuid));
	memcpy(cfg.key, n->vol->key, sizeof(cfg.key));
	return primary_create(n->commit, n->log, n->ckpt, &cfg, &n->primary);
}

/* The first mirror that is not live, for the message. */
static void node_name_missing(struct node *n, char *out, size_t cap)
{
	struct link_stats stats[OPTIONS_MIRRORS_MAX];
	unsigned count = primary_stats(n->primary, stats, OPTIONS_MIRRORS_MAX), i;

	out[0] = '\0';
	for (i = 0; i < count; i++) {
		if (stats[i].state == LINK_LIVE)
			continue;
		/* on its way is no fault: status shows it */
		if (stats[i].state != LINK_DOWN && stats[i].state != LINK_REFUSED &&
		    !stats[i].last_error[0])
			continue;
		snprintf(out, cap, "mirror %.150s is %s%s%.400s", stats[i].addr,
			 link_state_name(stats[i].state), stats[i].last_error[0] ? ": " : "",
			 stats[i].last_error);
		return;
	}
}

/* As primary_wait_live, with a look each tenth of a second whether the start is to end. */
static int node_wait_live(struct node *n, const char **ret_reason)
{
	uint64_t deadline = clock_mono_ns() + n->opt->connect_s * NSEC_PER_SEC;
	int err;

	for (;;) {
		uint64_t now = clock_mono_ns(), left = deadline > now ? deadline - now : 0;

		err = primary_wait_live(n->primary, n->opt->min_mirrors,
					left < NODE_LOOK_NS ? left : NODE_LOOK_NS, ret_reason);
		if (err != -ETIMEDOUT || left <= NODE_LOOK_NS)
			return err;
		if (n->interrupted && n->interrupted(n->interrupted_ctx))
			return -EINTR;
	}
}

static int node_wait_mirrors(struct node *n, char *why)
{
	const char *reason = NULL;
	char missing[640];
	int err = node_wait_live(n, &reason);

	node_name_missing(n, missing, sizeof(missing));
	if (err == -EINTR) {
		snprintf(why, NODE_WHY_BYTES, "interrupted while it waited: %s",
			 missing[0] ? missing : reason ? reason : strerror(-err));
		return err;
	}
	if (err == -ESTALE && missing[0]) { /* it runs, and obeys another */
		snprintf(why, NODE_WHY_BYTES, "%s", missing);
		return err;
	}
	if (err) {
		snprintf(why, NODE_WHY_BYTES,
			 "%s; start it (kvfs mirror), or go on with fewer than min_mirrors=%u",
			 missing[0] ? missing :
			 reason	    ? reason :
				      strerror(-err),
			 n->opt->min_mirrors);
		return err;
	}
	node_say_transports(n);
	if (missing[0])
		diag_warn("%s; serving without it", missing);
	return 0;
}

int node_start_primary(struct node *n, char why[NODE_WHY_BYTES])
{
	int err = node_start_commit(n);

	if (err) {
		snprintf(why, NODE_WHY_BYTES, "cannot start the commit queue: %s", strerror(-err));
		return err;
	}
	if (n->opt->mirrors.count == 0)
		return 0;
	err = node_check_verbs(n, &n->opt->mirrors, why);
	if (err)
		return err;
	err = node_start_links(n);
	if (err) {
		snprintf(why, NODE_WHY_BYTES, "cannot start replication: %s", strerror(-err));
		return err;
	}
	return node_wait_mirrors(n, why);
}

/* Waits until all that was queued is committed. Held by the waiter and by the queue, which may keep
 * it for longer than its deadline. */
struct node_barrier {
	struct op op;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	_Atomic unsigned holders;
};

static void node_barrier_put(struct node_barrier *b)
{
	if (atomic_fetch_sub(&b->holders, 1) != 1)
		return;
	pthread_cond_destroy(&b->cond);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

static void node_barrier_complete(struct op *op, int err)
{
	struct node_barrier *b = (struct node_barrier *)op;

	pthread_mutex_lock(&b->lock);
	b->done = true;
	pthread_cond_broadcast(&b->cond);
	pthread_mutex_unlock(&b->lock);
}

static void node_barrier_release(struct op *op)
{
	node_barrier_put((struct node_barrier *)op);
}

static void node_drain(struct node *n)
{
	static const struct op_ops ops = { .complete = node_barrier_complete,
					   .release = node_barrier_release };
	struct node_barrier *b = calloc(1, sizeof(*b));

	commit_drive(n->commit);
	if (!b)
		return;
	b->op.ops = &ops;
	b->op.lsn = commit_next_lsn(n->commit) - 1;
	b->op.deadline_ns = clock_mono_ns() + NODE_DRAIN_NS;
	b->holders = 2;
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->cond, NULL);
	commit_wait(n->commit, &b->op);
	pthread_mutex_lock(&b->lock);
	while (!b->done) /* bounded: the queue's timer completes what is past its deadline */
		pthread_cond_wait(&b->cond, &b->lock);
	pthread_mutex_unlock(&b->lock);
	node_barrier_put(b);
}

int node_stop(struct node *n)
{
	int err = 0;

	node_tuner_stop(n);
	node_ckpt_stop(n);
	if (n->commit && !n->failed)
		node_drain(n);
	mirror_destroy(n->mirror);
	n->mirror = NULL;
	if (!n->failed)
		err = node_ckpt_run(n);
	if (n->commit)
		/* a link that ends lets go of what its mirror has not acknowledged, which stays in
		 * sync on record: that must not be answered as committed */
		commit_end(n->commit);
	primary_destroy(n->primary);
	n->primary = NULL;
	commit_destroy(n->commit);
	n->commit = NULL;
	return err;
}
