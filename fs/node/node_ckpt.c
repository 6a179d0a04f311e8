/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checkpoint thread "kv-ckpt": makes a checkpoint when the log is about 70 % full, when asked,
 * and at the end; between them asks the log's medium once a second whether it lost a write, and
 * the region pool whether an RDMA device refuses memory.
 *
 * Requests are tickets: one that comes while a checkpoint runs is served by the next, so it covers
 * what its asker has seen. Lock order: ckpt_busy, then node.lock or the store's; the thread holds
 * no other lock while it writes.
 */
#include "fs/node/node.h"

#include "common/clock.h"
#include "common/diag.h"
#include "common/thread.h"
#include "fs/node/node_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define NODE_CHECK_NS NSEC_PER_SEC
/* From one that failed to the next, which may find the disk space that it lacked: each stops
 * writers for a moment. */
#define NODE_AGAIN_NS (500 * NSEC_PER_MSEC)
#define NODE_DURABLE_NS (30 * NSEC_PER_SEC) /* of a record that is applied but not in the log yet */

/* kv-ckpt is there before a primary's commit queue: a log that recovery finds nearly full asks for
 * a checkpoint at once. NULL: there is none yet, or this is a mirror. */
static struct commit *node_ckpt_commit(struct node *n)
{
	struct commit *c;

	pthread_mutex_lock(&n->lock);
	c = n->commit;
	pthread_mutex_unlock(&n->lock);
	return c;
}

static int node_ckpt_may_commit(void *ctx, uint64_t lsn)
{
	struct node *n = ctx;
	struct commit *c = node_ckpt_commit(n);

	if (c)
		return commit_wait_durable(c, lsn, NODE_DURABLE_NS);
	/* a mirror appends before it applies; recovery has read all from the log */
	return oplog_last_lsn(n->log) >= lsn || n->recovered.torn_tail ? 0 : -EIO;
}

static void node_ckpt_progress(void *ctx, uint64_t done_bytes, uint64_t total_bytes)
{
	struct node *n = ctx;

	pthread_mutex_lock(&n->lock);
	n->ckpt_done_bytes = done_bytes;
	n->ckpt_total_bytes = total_bytes;
	pthread_mutex_unlock(&n->lock);
}

static bool node_ckpt_is_current(struct node *n)
{
	uint64_t lsn;

	store_lock(n->store);
	lsn = store_lsn_locked(n->store);
	store_unlock(n->store);
	return lsn == n->ckpt_lsn;
}

int node_ckpt_run(struct node *n)
{
	static const struct image_write_ops ops = {
		.may_commit = node_ckpt_may_commit,
		.progress = node_ckpt_progress,
	};
	struct ckpt_info info;
	struct commit *c;
	int err = 0;

	pthread_mutex_lock(&n->ckpt_busy);
	c = node_ckpt_commit(n);
	if (c)
		commit_checkpoint_begin(c);
	if (!node_ckpt_is_current(n)) {
		/* -EBUSY: the other pool waits for this very checkpoint; the next
		 * one will switch */
		if (c)
			err = commit_switch_log(c);
		if (!err || err == -EBUSY)
			err = image_write(store_image(n->store), n->ckpt, n->epoch, &ops, n, &info);
		if (!err) {
			n->ckpt_lsn = info.lsn;
			oplog_covered(n->log, info.lsn);
		}
		node_metrics_ckpt(n, err);
	}
	c = node_ckpt_commit(n); /* a queue that came meanwhile has room now, too */
	if (c)
		commit_checkpoint_done(c, err);
	pthread_mutex_unlock(&n->ckpt_busy);
	return err;
}

void node_ckpt_want(void *node)
{
	struct node *n = node;

	pthread_mutex_lock(&n->lock);
	if (n->ckpt_wanted == n->ckpt_done ||
	    (n->ckpt_running && n->ckpt_wanted == n->ckpt_done + 1)) {
		n->ckpt_wanted++;
		pthread_cond_broadcast(&n->changed);
	}
	pthread_mutex_unlock(&n->lock);
}

int node_ckpt_make(struct node *n, uint64_t timeout_ns)
{
	uint64_t deadline = clock_mono_ns() + timeout_ns, ticket;
	int err = 0;

	pthread_mutex_lock(&n->lock);
	ticket = n->ckpt_running ? n->ckpt_done + 2 : n->ckpt_done + 1;
	if (n->ckpt_wanted < ticket)
		n->ckpt_wanted = ticket;
	pthread_cond_broadcast(&n->changed);
	while (n->ckpt_done < ticket && !err && !n->stopping)
		err = thread_cond_wait_until(&n->changed, &n->lock, deadline);
	if (n->ckpt_done >= ticket)
		err = n->ckpt_error;
	else if (!err)
		err = -ESHUTDOWN;
	pthread_mutex_unlock(&n->lock);
	return err;
}

static void node_check_medium(struct node *n)
{
	struct commit *c = node_ckpt_commit(n);
	int err = oplog_check(n->log);

	if (err && !atomic_exchange(&n->failed, true))
		diag_error(
			"%s: the log's medium lost a write (%s): no further write is accepted; "
			"stop, repair the "
			"medium, run fsck.kvfs",
			n->vol->path, strerror(-err));
	if (err && c)
		commit_fail(c, err);
}

/* What has been said is not said again, until it changes. */
static void node_ckpt_say(struct node *n, int err)
{
	if (err && err != n->ckpt_said)
		diag_error("%s: checkpoint failed: %s; it is tried again as it is needed",
			   n->vol->path, strerror(-err));
	else if (!err && n->ckpt_said)
		diag_info("%s: checkpoints succeed again", n->vol->path);
	n->ckpt_said = err;
}

/* With n->lock held. A failed checkpoint is tried again only when something asks again. */
static void node_ckpt_serve_locked(struct node *n)
{
	void (*made)(void *ctx) = n->ckpt_made;
	int err;

	n->ckpt_running = true;
	n->ckpt_done_bytes = 0;
	n->ckpt_total_bytes = 0;
	pthread_mutex_unlock(&n->lock);
	err = node_ckpt_run(n);
	node_ckpt_say(n, err);
	if (!err && made)
		made(n->ckpt_made_ctx);
	pthread_mutex_lock(&n->lock);
	n->ckpt_again_ns = err ? clock_mono_ns() + NODE_AGAIN_NS : 0;
	n->ckpt_running = false;
	n->ckpt_error = err;
	n->ckpt_done++;
	pthread_cond_broadcast(&n->changed);
}

static void *node_ckpt_main(void *arg)
{
	struct node *n = arg;

	thread_be_nice(); /* to those who serve requests */
	pthread_mutex_lock(&n->lock);
	while (!n->stopping) {
		if (n->ckpt_wanted > n->ckpt_done) {
			if (n->ckpt_again_ns <= clock_mono_ns())
				node_ckpt_serve_locked(n);
			else
				thread_cond_wait_until(&n->changed, &n->lock, n->ckpt_again_ns);
			continue;
		}
		if (thread_cond_wait_until(&n->changed, &n->lock,
					   clock_mono_ns() + NODE_CHECK_NS) == -ETIMEDOUT) {
			pthread_mutex_unlock(&n->lock);
			node_check_medium(n);
			node_memory_attend(n);
			node_rdma_attend(n);
			pthread_mutex_lock(&n->lock);
		}
	}
	pthread_mutex_unlock(&n->lock);
	return NULL;
}

int node_ckpt_start(struct node *n)
{
	int err = thread_start(&n->ckpt_thread, "kv-ckpt", node_ckpt_main, n);

	n->ckpt_started = err == 0;
	return err;
}

void node_ckpt_stop(struct node *n)
{
	if (!n->ckpt_started)
		return;
	pthread_mutex_lock(&n->lock);
	n->stopping = true;
	pthread_cond_broadcast(&n->changed);
	pthread_mutex_unlock(&n->lock);
	pthread_join(n->ckpt_thread, NULL);
	n->ckpt_started = false;
}
