/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operation log's life: make, open, start, append, switch, close, and its getters.
 * Locks and pool life: oplog_internal.h. What a crash leaves at each point: oplog_scan.c.
 * Errors: any failed append or rewind kills the log (-EIO from then on), since what the medium
 * holds is then unknown until the next open.
 */
#include "log/oplog_internal.h"

#include "common/byteorder.h"
#include "common/clock.h"
#include "common/crc32c.h"
#include "common/thread.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const pool_names[OPLOG_POOLS] = { "log.0", "log.1" };
static const char *const pool_unreadable[OPLOG_POOLS] = {
	"log.0 cannot be read: its medium fails", "log.1 cannot be read: its medium fails"
};

int oplog_create(const struct logdev_ops *ops, int dirfd, uint64_t total_bytes)
{
	uint64_t pool_bytes = total_bytes / OPLOG_POOLS;
	int rc;

	if (pool_bytes < LOGDEV_SIZE_MIN)
		return -EINVAL;
	rc = ops->create(dirfd, pool_names[0], pool_bytes);
	if (rc != 0)
		return rc;
	rc = ops->create(dirfd, pool_names[1], pool_bytes);
	if (rc != 0)
		unlinkat(dirfd, pool_names[0], 0);
	return rc;
}

static int log_alloc(const struct logdev_ops *ops, const struct oplog_config *cfg,
		     struct oplog **ret_log)
{
	struct oplog *log = calloc(1, sizeof(*log));

	if (log == NULL)
		return -ENOMEM;
	if (thread_mutex_init_adaptive(&log->lock) != 0)
		goto free_log;
	if (thread_cond_init(&log->readers_gone) != 0)
		goto destroy_lock;
	log->ops = ops;
	log->cfg = *cfg;
	atomic_store_explicit(&log->hold_lsn, UINT64_MAX, memory_order_relaxed);
	log->append_time = metrics_stage(cfg->metrics, "log");
	*ret_log = log;
	return 0;

destroy_lock:
	pthread_mutex_destroy(&log->lock);
free_log:
	free(log);
	return -ENOMEM;
}

void oplog_close(struct oplog *log)
{
	int i;

	if (log == NULL)
		return;
	for (i = 0; i < OPLOG_POOLS; i++) {
		assert(log->pools[i].readers == 0);
		if (log->pools[i].dev != NULL)
			log->ops->close(log->pools[i].dev);
		free(log->pools[i].marks);
	}
	pthread_cond_destroy(&log->readers_gone);
	pthread_mutex_destroy(&log->lock);
	free(log);
}

static void log_range(const struct oplog *log, struct oplog_range *ret_range)
{
	const struct oplog_pool *cur = &log->pools[log->active];
	uint64_t named = log->ops->used(cur->dev);

	memset(ret_range, 0, sizeof(*ret_range));
	if (cur->generation == 0)
		return;
	ret_range->last_lsn = cur->last_lsn;
	ret_range->epoch = cur->epoch;
	ret_range->torn_tail = cur->torn;
	ret_range->taken_in_bytes = cur->used > named ? cur->used - named : 0;
}

int oplog_open(const struct logdev_ops *ops, int dirfd, const struct oplog_config *cfg,
	       struct oplog **ret_log, struct oplog_range *ret_range, const char **ret_why)
{
	struct oplog *log;
	int i, rc = log_alloc(ops, cfg, &log);

	if (rc != 0)
		return rc;
	for (i = 0; i < OPLOG_POOLS; i++) {
		rc = ops->open(dirfd, pool_names[i], &log->pools[i].dev);
		if (rc == -EBADMSG)
			*ret_why = "a log pool is damaged or is no log pool";
		if (rc == 0) {
			rc = oplog_pool_scan(ops, cfg, &log->pools[i], ret_why);
			if (rc == -EIO)
				*ret_why = pool_unreadable[i];
		}
		if (rc != 0)
			goto close_log;
	}
	rc = oplog_pools_order(log, ret_why);
	if (rc == 0)
		rc = oplog_check_tail(log, ret_why);
	if (rc == -EIO)
		*ret_why = pool_unreadable[log->active];
	if (rc != 0)
		goto close_log;
	log_range(log, ret_range);
	rc = oplog_take_in(log);
	if (rc != 0)
		goto close_log;
	ret_range->first_lsn = oplog_first_lsn(log);
	atomic_store_explicit(&log->last_lsn, ret_range->last_lsn, memory_order_release);
	*ret_log = log;
	return 0;

close_log:
	oplog_close(log);
	return rc;
}

static int log_kill(struct oplog *log)
{
	atomic_store_explicit(&log->dead, true, memory_order_relaxed);
	return -EIO;
}

static bool log_is_dead(struct oplog *log)
{
	return atomic_load_explicit(&log->dead, memory_order_relaxed);
}

/* Empties a pool for readers first, then on the medium. */
static int pool_rewind(struct oplog *log, struct oplog_pool *p)
{
	pthread_mutex_lock(&log->lock);
	p->generation = 0;
	p->used = 0;
	p->torn = false;
	p->mark_count = 0;
	p->forgot = 0;
	/* A reader copies at most its buffer and never waits: this ends. */
	while (p->readers > 0)
		pthread_cond_wait(&log->readers_gone, &log->lock);
	pthread_mutex_unlock(&log->lock);
	if (log->ops->used(p->dev) == 0)
		return 0;
	return log->ops->rewind(p->dev) != 0 ? log_kill(log) : 0;
}

/* Writes the generation record into an empty pool and makes the pool the active one. */
static int pool_begin(struct oplog *log, unsigned index, uint64_t base_lsn, uint64_t epoch)
{
	struct oplog_pool *p = &log->pools[index];
	uint8_t head[OPLOG_GENERATION_BYTES];
	struct iovec iov = { .iov_base = head, .iov_len = sizeof(head) };
	struct record r = { .opcode = RECORD_GENERATION, .timestamp_ns = clock_real_ns() };

	memcpy(r.u.generation.uuid, log->cfg.uuid, sizeof(log->cfg.uuid));
	r.u.generation.generation = ++log->generation;
	r.u.generation.format_version = log->cfg.format_version;
	r.u.generation.node_id = log->cfg.node_id;
	assert(record_head_bytes(&r) == sizeof(head));
	record_encode_head(&r, head);
	record_seal(head, sizeof(head), base_lsn, epoch, 0, 0);
	if (log->ops->append(p->dev, &iov, 1) != 0)
		return log_kill(log);
	pthread_mutex_lock(&log->lock);
	p->generation = log->generation;
	p->base_lsn = base_lsn;
	p->last_lsn = base_lsn - 1;
	p->epoch = epoch;
	p->used = sizeof(head);
	log->active = index;
	pthread_mutex_unlock(&log->lock);
	return 0;
}

int oplog_restart(struct oplog *log, uint64_t next_lsn, uint64_t epoch)
{
	int rc;

	if (log_is_dead(log))
		return -EIO;
	if (next_lsn == 0)
		return -EINVAL;
	/* The older first: a crash between leaves one run of records, not its first half. */
	rc = pool_rewind(log, oplog_other(log));
	if (rc == 0)
		rc = pool_rewind(log, oplog_active(log));
	if (rc != 0)
		return rc;
	/* What was covered of the records before says nothing about those to come, whose LSNs
	 * may be lower. */
	atomic_store_explicit(&log->covered_lsn, next_lsn - 1, memory_order_release);
	rc = pool_begin(log, 0, next_lsn, epoch);
	if (rc == 0)
		atomic_store_explicit(&log->last_lsn, next_lsn - 1, memory_order_release);
	return rc;
}

int oplog_start(struct oplog *log, uint64_t next_lsn, uint64_t epoch)
{
	const struct oplog_pool *cur = oplog_active(log);

	if (log_is_dead(log))
		return -EIO;
	if (next_lsn == 0 || (cur->generation != 0 && epoch < cur->epoch))
		return -EINVAL;
	if (cur->generation != 0 && !cur->torn && cur->last_lsn + 1 == next_lsn)
		return 0;
	return oplog_restart(log, next_lsn, epoch);
}

int oplog_switch(struct oplog *log, uint64_t epoch)
{
	struct oplog_pool *cur = oplog_active(log), *next = oplog_other(log);
	int rc;

	assert(cur->generation != 0);
	if (log_is_dead(log))
		return -EIO;
	if (epoch < cur->epoch)
		return -EINVAL;
	if (!oplog_pool_reusable(log, next))
		return -EBUSY;
	rc = pool_rewind(log, next);
	return rc != 0 ? rc : pool_begin(log, 1 - log->active, cur->last_lsn + 1, epoch);
}

/* The first record's LSN and epoch as sealed, when iov has them in one piece: guards the log
 * against a caller whose records recovery would then refuse. */
static int check_first_head(const struct oplog_pool *p, const struct iovec *iov, uint64_t first_lsn,
			    uint64_t *ret_epoch)
{
	const uint8_t *head = iov->iov_base;
	uint64_t epoch = p->epoch;

	if (iov->iov_len >= sizeof(struct record_header) + sizeof(struct record_common)) {
		if (get_be64(head + offsetof(struct record_header, seq_id)) != first_lsn)
			return -EINVAL;
		epoch = get_be64(head + sizeof(struct record_header) +
				 offsetof(struct record_common, epoch));
	}
	if (epoch < p->epoch)
		return -EINVAL;
	*ret_epoch = epoch;
	return 0;
}

static void append_publish(struct oplog *log, struct oplog_pool *p, uint64_t bytes,
			   uint64_t first_lsn, uint32_t count, uint64_t epoch)
{
	pthread_mutex_lock(&log->lock);
	oplog_pool_mark(p, first_lsn, p->used);
	p->used += bytes;
	p->last_lsn += count;
	p->epoch = epoch;
	pthread_mutex_unlock(&log->lock);
	atomic_store_explicit(&log->last_lsn, p->last_lsn, memory_order_release);
	oplog_pool_forget(log->ops, p, p->used, &p->forgot);
}

int oplog_append(struct oplog *log, const struct iovec *iov, int iovcnt, uint64_t first_lsn,
		 uint32_t count, bool urgent)
{
	struct oplog_pool *p = oplog_active(log);
	uint64_t bytes = 0, limit = p->capacity, epoch, began;
	int i, rc;

	assert(p->generation != 0 && !p->torn && count > 0 && iovcnt > 0);
	if (log_is_dead(log))
		return -EIO;
	if (first_lsn != p->last_lsn + 1)
		return -EINVAL;
	rc = check_first_head(p, iov, first_lsn, &epoch);
	if (rc != 0)
		return rc;
	for (i = 0; i < iovcnt; i++)
		bytes += iov[i].iov_len;
	if (!urgent && !oplog_pool_reusable(log, oplog_other(log)))
		limit -= log->cfg.reserve_bytes < limit ? log->cfg.reserve_bytes : limit;
	if (p->used >= limit || bytes > limit - p->used)
		return -ENOSPC;
	began = log->append_time ? clock_mono_ns() : 0;
	rc = log->ops->append(p->dev, iov, iovcnt);
	if (log->append_time)
		metric_observe(log->append_time, clock_mono_ns() - began);
	if (rc == -ENOSPC)
		return rc;
	if (rc != 0)
		return log_kill(log);
	append_publish(log, p, bytes, first_lsn, count, epoch);
	return 0;
}

void oplog_covered(struct oplog *log, uint64_t lsn)
{
	uint64_t old = atomic_load_explicit(&log->covered_lsn, memory_order_relaxed);

	while (lsn > old &&
	       !atomic_compare_exchange_weak_explicit(&log->covered_lsn, &old, lsn,
						      memory_order_release, memory_order_relaxed))
		;
}

void oplog_hold(struct oplog *log, uint64_t lsn)
{
	atomic_store_explicit(&log->hold_lsn, lsn, memory_order_relaxed);
}

uint64_t oplog_first_lsn(struct oplog *log)
{
	const struct oplog_pool *cur, *old;
	uint64_t lsn = 0;

	pthread_mutex_lock(&log->lock);
	cur = oplog_active(log);
	old = oplog_other(log);
	if (oplog_pool_has_records(old))
		lsn = old->base_lsn;
	else if (oplog_pool_has_records(cur))
		lsn = cur->base_lsn;
	pthread_mutex_unlock(&log->lock);
	return lsn;
}

uint64_t oplog_last_lsn(struct oplog *log)
{
	return atomic_load_explicit(&log->last_lsn, memory_order_acquire);
}

void oplog_usage(struct oplog *log, struct oplog_usage *ret_usage)
{
	const struct oplog_pool *cur, *other;

	pthread_mutex_lock(&log->lock);
	cur = oplog_active(log);
	other = oplog_other(log);
	ret_usage->used_bytes = cur->used + other->used;
	ret_usage->capacity_bytes = cur->capacity + other->capacity;
	ret_usage->active_used_bytes = cur->used;
	ret_usage->active_capacity_bytes = cur->capacity;
	ret_usage->active_pool = log->active;
	ret_usage->active_base_lsn = cur->base_lsn;
	ret_usage->covered = oplog_pool_reusable(log, other);
	ret_usage->held = oplog_pool_held(log, other);
	ret_usage->can_switch = ret_usage->covered && !ret_usage->held;
	ret_usage->all_covered =
		oplog_last_lsn(log) <=
		atomic_load_explicit(&log->covered_lsn, memory_order_acquire);
	pthread_mutex_unlock(&log->lock);
}

int oplog_check(struct oplog *log)
{
	int i, rc = 0;

	for (i = 0; i < OPLOG_POOLS; i++)
		if (log->ops->check(log->pools[i].dev) != 0)
			rc = log_kill(log);
	return rc;
}

bool oplog_is_pmem(struct oplog *log)
{
	return log->ops->is_pmem(log->pools[0].dev) && log->ops->is_pmem(log->pools[1].dev);
}
