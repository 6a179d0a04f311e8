/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the log: replay at recovery, and copies of records by LSN for catch-up, beside the
 * appender. A pool is pinned (oplog_internal.h) while bytes are copied from it, so the lock is held
 * only to find it.
 */
#include "log/oplog_internal.h"

#include "log/logdev_bus.h"

#include <errno.h>
#include <string.h>

/* A pinned run of records: [offset, end) of pool holds lsn .. last_lsn. */
struct span {
	struct oplog_pool *pool;
	uint64_t offset, end;
	uint64_t lsn, last_lsn;
};

static bool pool_holds(const struct oplog_pool *p, uint64_t lsn)
{
	return oplog_pool_has_records(p) && lsn >= p->base_lsn && lsn <= p->last_lsn;
}

/* Pins the pool that holds lsn; the span begins at or before it. -EAGAIN, -ESTALE. */
static int span_pin(struct oplog *log, uint64_t lsn, struct span *s)
{
	struct oplog_pool *cur, *p = NULL;
	struct oplog_mark mark;
	int rc = 0;

	pthread_mutex_lock(&log->lock);
	cur = oplog_active(log);
	if (pool_holds(cur, lsn))
		p = cur;
	else if (pool_holds(oplog_other(log), lsn))
		p = oplog_other(log);
	else if (lsn != 0 && (cur->generation == 0 || lsn > cur->last_lsn))
		rc = -EAGAIN;
	else
		rc = -ESTALE;
	if (p != NULL) {
		mark = oplog_pool_find(p, lsn);
		p->readers++;
		*s = (struct span){ .pool = p, .offset = mark.offset, .end = p->used,
				    .lsn = mark.lsn, .last_lsn = p->last_lsn };
	}
	pthread_mutex_unlock(&log->lock);
	return rc;
}

static void span_unpin(struct oplog *log, struct span *s)
{
	pthread_mutex_lock(&log->lock);
	if (--s->pool->readers == 0)
		pthread_cond_broadcast(&log->readers_gone);
	pthread_mutex_unlock(&log->lock);
}

/* Size of the record at the span's offset. -EBADMSG: memory or medium changed under us. */
static int span_peek(const struct span *s, size_t *ret_bytes)
{
	int rc = record_peek_bytes(s->pool->base + s->offset, s->end - s->offset, ret_bytes);

	return rc != 0 || *ret_bytes > s->end - s->offset ? -EBADMSG : 0;
}

static int span_skip_to(struct span *s, uint64_t lsn)
{
	while (s->lsn < lsn) {
		size_t bytes;
		int rc = span_peek(s, &bytes);

		if (rc != 0)
			return rc;
		s->offset += bytes;
		s->lsn++;
	}
	return 0;
}

/* Copies whole records while they fit; moves the span behind them. -EMSGSIZE: not one fits. */
static int span_copy(struct span *s, void *buf, size_t cap, size_t *ret_len)
{
	uint64_t begin = s->offset;

	while (s->lsn <= s->last_lsn) {
		size_t bytes;
		int rc = span_peek(s, &bytes);

		if (rc != 0)
			return rc;
		if (bytes > cap - (s->offset - begin))
			break;
		s->offset += bytes;
		s->lsn++;
	}
	if (s->offset == begin)
		return -EMSGSIZE;
	memcpy(buf, s->pool->base + begin, s->offset - begin);
	*ret_len = s->offset - begin;
	return 0;
}

struct span_read {
	struct span *s;
	uint64_t from_lsn;
	void *buf;
	size_t cap, len;
	int rc;
};

static void span_read_mapped(void *arg)
{
	struct span_read *r = arg;

	r->rc = span_skip_to(r->s, r->from_lsn);
	if (r->rc == 0)
		r->rc = span_copy(r->s, r->buf, r->cap, &r->len);
}

/* -EIO: the medium can't give the bytes back. */
static int span_read(struct span *s, uint64_t from_lsn, void *buf, size_t cap, size_t *ret_len)
{
	struct span_read r = { s, from_lsn, buf, cap, 0, 0 };
	int rc = logdev_bus_guard(span_read_mapped, &r);

	*ret_len = rc == 0 && r.rc == 0 ? r.len : 0;
	return rc != 0 ? rc : r.rc;
}

int oplog_read(struct oplog *log, uint64_t from_lsn, void *buf, size_t cap, size_t *ret_len,
	       uint64_t *ret_last_lsn)
{
	uint64_t next = from_lsn;
	size_t done = 0;
	bool more = true;
	int rc = 0;

	/* at most once a pool, and again for what was appended meanwhile */
	while (more && rc == 0) {
		struct span s;
		size_t len = 0;

		rc = span_pin(log, next, &s);
		if (rc != 0)
			break;
		rc = span_read(&s, next, (uint8_t *)buf + done, cap - done, &len);
		if (rc == 0) { /* without state of a reader: once in each OPLOG_FORGET_BYTES */
			uint64_t forgot = s.offset - s.offset % OPLOG_FORGET_BYTES;

			if (s.offset - len < forgot)
				forgot -= OPLOG_FORGET_BYTES;
			oplog_pool_forget(log->ops, s.pool, s.offset, &forgot);
		}
		span_unpin(log, &s);
		done += len;
		next = rc == 0 ? s.lsn : next;
		more = s.lsn > s.last_lsn && done < cap;
	}
	if (done == 0)
		return rc;
	*ret_len = done;
	*ret_last_lsn = next - 1;
	return 0;
}

static int replay_pool(struct oplog *log, struct oplog_pool *p, uint64_t after_lsn,
		       int (*apply)(void *ctx, const struct record *r), void *ctx)
{
	uint64_t forgot = 0;
	struct oplog_mark at;
	struct record r;
	size_t bytes;
	int rc;

	if (!oplog_pool_has_records(p) || p->last_lsn <= after_lsn)
		return 0;
	at = oplog_pool_find(p, after_lsn + 1);
	while (at.offset < p->used) {
		/* Checked again: between the scan and now the medium could have failed. */
		rc = oplog_decode(p->base + at.offset, p->used - at.offset, &r, &bytes);
		if (rc != 0)
			return rc == -EIO ? rc : -EBADMSG;
		at.offset += bytes;
		rc = r.lsn > after_lsn ? apply(ctx, &r) : 0;
		if (rc != 0)
			return rc;
		oplog_pool_forget(log->ops, p, at.offset, &forgot);
	}
	return 0;
}

int oplog_replay(struct oplog *log, uint64_t after_lsn,
		 int (*apply)(void *ctx, const struct record *r), void *ctx,
		 uint64_t *ret_missing_first, uint64_t *ret_missing_last)
{
	struct oplog_pool *cur = oplog_active(log), *old = oplog_other(log);
	uint64_t base = oplog_pool_has_records(old) ? old->base_lsn : cur->base_lsn;
	int rc;

	if (cur->generation == 0)
		return 0;
	if (base > after_lsn + 1) {
		*ret_missing_first = after_lsn + 1;
		*ret_missing_last = base - 1;
		return -ENODATA;
	}
	rc = replay_pool(log, old, after_lsn, apply, ctx);
	return rc != 0 ? rc : replay_pool(log, cur, after_lsn, apply, ctx);
}
