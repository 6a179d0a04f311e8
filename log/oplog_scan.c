/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the pools hold when the log is opened. Runs before anyone else knows the log: no locks.
 *
 * Begin of a pool: rewind, append of the generation record, then records. A crash leaves, in this
 * order:
 *   before the rewind          both pools as they were; the older is wholly covered by a checkpoint
 *   after it                   an empty pool; the other goes on being the newest
 *   in the generation record   at most OPLOG_GENERATION_BYTES, invalid or of the pool's former
 *                              life: no record was in it yet, so it counts as empty
 *   after it                   a new, empty newest pool whose base is the older's last LSN + 1
 *   in an append               an invalid tail of the newest pool, or whole records behind the end
 *                              that the pool names; nothing of it was acknowledged
 * Where a pool ends is told by its records: its own end is one number without a checksum, and were
 * it damaged, acknowledged records would be lost for it. Whole records behind it are taken in.
 * Anything else is damage: a longer pool without its generation record, pools that don't meet, or
 * valid records behind an invalid one, and that is reported, not mended: what lies behind may have
 * been acknowledged, and to begin anew would destroy it.
 */
#include "log/oplog_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAKE_IN_BYTES (1U << 20)

void oplog_pool_forget(const struct logdev_ops *ops, const struct oplog_pool *p, uint64_t offset,
		       uint64_t *forgot)
{
	if (offset < OPLOG_KEEP_BYTES || offset - *forgot < OPLOG_FORGET_BYTES)
		return;
	ops->forget(p->dev, offset);
	*forgot = offset;
}

void oplog_pool_mark(struct oplog_pool *p, uint64_t lsn, uint64_t offset)
{
	struct oplog_mark *last = p->mark_count > 0 ? &p->marks[p->mark_count - 1] : NULL;

	if (last != NULL && offset - last->offset < OPLOG_MARK_BYTES &&
	    lsn - last->lsn < OPLOG_MARK_RECORDS)
		return;
	if (p->mark_count == p->mark_capacity) {
		size_t capacity = p->mark_capacity > 0 ? 2 * p->mark_capacity : 256;
		struct oplog_mark *grown = realloc(p->marks, capacity * sizeof(*grown));

		if (grown == NULL)
			return;
		p->marks = grown;
		p->mark_capacity = capacity;
	}
	p->marks[p->mark_count++] = (struct oplog_mark){ .lsn = lsn, .offset = offset };
}

struct oplog_mark oplog_pool_find(const struct oplog_pool *p, uint64_t lsn)
{
	struct oplog_mark found = { .lsn = p->base_lsn, .offset = OPLOG_GENERATION_BYTES };
	size_t low = 0, high = p->mark_count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (p->marks[mid].lsn <= lsn) {
			found = p->marks[mid];
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	return found;
}

static int check_generation(const struct oplog_config *cfg, const struct record *r,
			    const char **ret_why)
{
	if (memcmp(r->u.generation.uuid, cfg->uuid, sizeof(cfg->uuid)) != 0) {
		*ret_why = "a log pool belongs to another volume";
		return -EBADMSG;
	}
	if (r->u.generation.node_id != cfg->node_id) {
		*ret_why = "a log pool belongs to another node of this volume";
		return -EBADMSG;
	}
	if (r->u.generation.format_version != cfg->format_version) {
		*ret_why = "a log pool has another format version";
		return -EBADMSG;
	}
	return 0;
}

bool oplog_continues(const struct record *r, const struct oplog_end *end, bool named)
{
	return r->opcode != RECORD_GENERATION && r->lsn == end->last_lsn + 1 &&
	       r->epoch >= end->epoch &&
	       (named || r->timestamp_ns + OPLOG_LATE_NS >= end->begun_ns);
}

/* Records from the generation record on, up to the first that doesn't continue the log. -EIO: not
 * known where that is. */
static int scan_records(const struct logdev_ops *ops, struct oplog_pool *p, uint64_t stored,
			 uint64_t begun_ns)
{
	uint64_t forgot = 0;
	struct record r;
	size_t bytes;

	while (p->used < p->capacity) {
		struct oplog_end end = { p->last_lsn, p->epoch, begun_ns };
		int rc = oplog_decode(p->base + p->used, p->capacity - p->used, &r, &bytes);

		if (rc == -EIO)
			return rc;
		if (rc != 0 || !oplog_continues(&r, &end, p->used + bytes <= stored))
			break;
		oplog_pool_mark(p, r.lsn, p->used);
		p->last_lsn = r.lsn;
		p->epoch = r.epoch;
		p->used += bytes;
		oplog_pool_forget(ops, p, p->used, &forgot);
	}
	p->torn = p->used < stored;
	return 0;
}

int oplog_pool_scan(const struct logdev_ops *ops, const struct oplog_config *cfg,
		    struct oplog_pool *p, const char **ret_why)
{
	uint64_t stored = ops->used(p->dev);
	struct record r;
	size_t bytes;
	int rc;

	p->base = ops->base(p->dev);
	p->capacity = ops->capacity(p->dev);
	if (stored == 0)
		return 0;
	rc = oplog_decode(p->base, stored, &r, &bytes);
	if (rc == -EIO)
		return rc;
	if (rc != 0 || r.opcode != RECORD_GENERATION) {
		if (stored <= OPLOG_GENERATION_BYTES)
			return 0; /* torn as it was written: see above */
		*ret_why = "the generation record of a log pool is damaged";
		return -EBADMSG;
	}
	rc = check_generation(cfg, &r, ret_why);
	if (rc != 0)
		return rc;
	p->generation = r.u.generation.generation;
	p->base_lsn = r.lsn;
	p->last_lsn = r.lsn - 1;
	p->epoch = r.epoch;
	p->used = bytes;
	return scan_records(ops, p, stored, r.timestamp_ns);
}

int oplog_check_tail(struct oplog *log, const char **ret_why)
{
	static _Thread_local char why[288];
	const struct oplog_pool *p = oplog_active(log);
	uint64_t offset, lsn;
	int rc;

	if (!p->torn)
		return 0;
	rc = oplog_find_beyond(p->base, p->used, log->ops->used(p->dev), p->last_lsn, p->epoch,
			       &offset, &lsn);
	if (rc <= 0)
		return rc;
	snprintf(
		why, sizeof(why),
		"log.%u is damaged at offset %" PRIu64 ": records after LSN %" PRIu64
		" are there but cannot be reached; make a mirror that has them the primary, or "
		"run fsck.kvfs -y to cut them off and keep them in a file",
		log->active, p->used, p->last_lsn);
	*ret_why = why;
	return -EBADMSG;
}

int oplog_take_in(struct oplog *log)
{
	struct oplog_pool *p = oplog_active(log);
	uint64_t at = log->ops->used(p->dev);
	uint8_t *copy;
	int rc = 0;

	if (p->generation == 0 || at >= p->used)
		return 0;
	copy = malloc(TAKE_IN_BYTES);
	if (copy == NULL)
		return -ENOMEM;
	while (rc == 0 && at < p->used) {
		struct iovec iov = { .iov_base = copy, .iov_len = TAKE_IN_BYTES };

		if (iov.iov_len > p->used - at)
			iov.iov_len = p->used - at;
		rc = oplog_copy(copy, p->base + at, iov.iov_len);
		if (rc == 0)
			rc = log->ops->append(p->dev, &iov, 1);
		at += iov.iov_len;
	}
	free(copy);
	return rc;
}

int oplog_pools_order(struct oplog *log, const char **ret_why)
{
	struct oplog_pool *old, *cur;

	log->active = log->pools[1].generation > log->pools[0].generation;
	cur = oplog_active(log);
	old = oplog_other(log);
	log->generation = cur->generation;
	if (old->generation == 0)
		return 0;
	if (old->generation == cur->generation) {
		*ret_why = "both log pools have the same generation";
		return -EBADMSG;
	}
	if (!oplog_pool_has_records(old) && !old->torn) {
		/* Nothing in it to lose: it may be a former life's generation record come back. */
		old->generation = 0;
		old->used = 0;
		return 0;
	}
	if (old->last_lsn + 1 < cur->base_lsn) {
		*ret_why =
			old->torn ?
				"the older log pool has damaged records before the newer begins" :
				"records between the two log pools are missing";
		return -EBADMSG;
	}
	if (old->last_lsn + 1 > cur->base_lsn) {
		*ret_why = "the two log pools overlap";
		return -EBADMSG;
	}
	if (cur->epoch < old->epoch) {
		*ret_why = "the newer log pool has an older epoch";
		return -EBADMSG;
	}
	return 0;
}
