/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_OPLOG_UTIL_H
#define KVFS_TESTS_OPLOG_UTIL_H
/* Records and logs for the log's unit tests. Each record's bytes follow from its LSN alone. */
#include "log/logdev_fault.h"
#include "log/logdev_mem.h"
#include "log/oplog.h"

#include "common/crc32c.h"

#include <check.h>
#include <string.h>

#define UTIL_DATA_MAX 4096
#define UTIL_RECORD_MAX (128 + UTIL_DATA_MAX)
#define UTIL_GROUP_MAX 16

static const struct oplog_config util_cfg = {
	.uuid = { 0xaa, 0xbb }, .node_id = 5, .format_version = 1, .reserve_bytes = 0,
};

/* Value bytes of record lsn, between 1 and max. */
static inline size_t util_data(uint64_t lsn, size_t max, uint8_t *out)
{
	size_t len = 1 + (size_t)(lsn * 2654435761U) % max, i;

	for (i = 0; i < len; i++)
		out[i] = (uint8_t)(lsn * 31 + i);
	return len;
}

/* When the records say that they were made. */
static uint64_t util_timestamp_ns __attribute__((unused));

/* Encodes and seals a WRITE record; returns its length. */
static inline size_t util_record(uint64_t lsn, uint64_t epoch, size_t max, uint8_t *out)
{
	uint8_t data[UTIL_DATA_MAX];
	struct record r = { .opcode = RECORD_WRITE, .ino = lsn + 100, .data = data,
			    .timestamp_ns = util_timestamp_ns };
	size_t head;

	r.data_len = (uint32_t)util_data(lsn, max, data);
	head = record_head_bytes(&r);
	record_encode_head(&r, out);
	memcpy(out + head, data, r.data_len);
	record_seal(out, head, lsn, epoch, crc32c(0, data, r.data_len), r.data_len);
	return head + r.data_len;
}

/* One thread only: the bytes are in static memory. */
static inline int util_append(struct oplog *log, uint64_t first, uint32_t count, uint64_t epoch,
			      size_t max, bool urgent)
{
	static uint8_t bytes[UTIL_GROUP_MAX][UTIL_RECORD_MAX];
	struct iovec iov[UTIL_GROUP_MAX];
	uint32_t i;

	ck_assert_uint_le(count, UTIL_GROUP_MAX);
	for (i = 0; i < count; i++) {
		iov[i].iov_base = bytes[i];
		iov[i].iov_len = util_record(first + i, epoch, max, bytes[i]);
	}
	return oplog_append(log, iov, (int)count, first, count, urgent);
}

static inline void util_check_record(const struct record *r, uint64_t lsn, size_t max)
{
	uint8_t data[UTIL_DATA_MAX];
	size_t len = util_data(lsn, max, data);

	ck_assert_uint_eq(r->lsn, lsn);
	ck_assert_uint_eq(r->ino, lsn + 100);
	ck_assert_uint_eq(r->data_len, len);
	ck_assert_mem_eq(r->data, data, len);
}

struct util_replay {
	uint64_t next;
	size_t max;
};

static inline int util_apply(void *ctx, const struct record *r)
{
	struct util_replay *u = ctx;

	util_check_record(r, u->next, u->max);
	u->next++;
	return 0;
}

/* Replays after after_lsn; returns the last LSN seen (after_lsn when none). */
static inline uint64_t util_replay_all(struct oplog *log, uint64_t after_lsn, size_t max)
{
	struct util_replay u = { .next = after_lsn + 1, .max = max };
	uint64_t first = 0, last = 0;
	int rc = oplog_replay(log, after_lsn, util_apply, &u, &first, &last);

	ck_assert_msg(rc == 0, "replay %d, missing %lu..%lu", rc, first, last);
	return u.next - 1;
}

/* Small pools of the model medium (oplog_create makes none below LOGDEV_SIZE_MIN). */
static inline void util_mem_pools(uint64_t pool_bytes)
{
	logdev_mem_reset();
	ck_assert_int_eq(logdev_mem_ops.create(-1, "log.0", pool_bytes), 0);
	ck_assert_int_eq(logdev_mem_ops.create(-1, "log.1", pool_bytes), 0);
}

static inline struct oplog *util_open(const struct logdev_ops *ops, int dirfd,
				      const struct oplog_config *cfg, struct oplog_range *ret_range)
{
	const char *why = "?";
	struct oplog *log = NULL;
	int rc = oplog_open(ops, dirfd, cfg, &log, ret_range, &why);

	ck_assert_msg(rc == 0, "open %d: %s", rc, why);
	return log;
}

#endif
