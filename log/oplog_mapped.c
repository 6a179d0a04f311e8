/* SPDX-License-Identifier: Apache-2.0 */
/* Records in a mapped pool, read so that a medium that can't give its bytes back is an error and
 * not the process's end (logdev_bus.h). Any thread; no lock is taken under the guard. */
#include "log/oplog_internal.h"

#include "common/byteorder.h"
#include "log/logdev_bus.h"

#include <string.h>

struct decode {
	const uint8_t *base;
	uint64_t len;
	struct record *r;
	size_t *bytes;
	int rc;
};

static void decode_mapped(void *arg)
{
	struct decode *d = arg;

	d->rc = record_decode(d->base, d->len, d->r, d->bytes);
}

int oplog_decode(const uint8_t *base, uint64_t len, struct record *ret_r, size_t *ret_bytes)
{
	struct decode d = { base, len, ret_r, ret_bytes, 0 };
	int rc = logdev_bus_guard(decode_mapped, &d);

	return rc != 0 ? rc : d.rc;
}

struct copy {
	void *to;
	const uint8_t *from;
	size_t len;
};

static void copy_mapped(void *arg)
{
	struct copy *c = arg;

	memcpy(c->to, c->from, c->len);
}

int oplog_copy(void *to, const uint8_t *from, size_t len)
{
	struct copy c = { to, from, len };

	return logdev_bus_guard(copy_mapped, &c);
}

struct beyond {
	const uint8_t *base;
	uint64_t from, stored, last_lsn, epoch;
	uint64_t offset, lsn; /* what was found */
	bool found;
};

static void beyond_mapped(void *arg)
{
	struct beyond *b = arg;
	uint64_t lsn_max = b->last_lsn + 1 + (b->stored - b->from) / RECORD_HEADER_BYTES;

	for (uint64_t at = b->from + 1; at + RECORD_HEADER_BYTES <= b->stored; at++) {
		uint64_t lsn = get_be64(b->base + at + offsetof(struct record_header, seq_id));
		struct record r;
		size_t bytes;

		if (lsn <= b->last_lsn + 1 || lsn > lsn_max)
			continue;
		if (record_decode(b->base + at, b->stored - at, &r, &bytes) == 0 &&
		    r.epoch >= b->epoch) {
			b->offset = at;
			b->lsn = lsn;
			b->found = true;
			return;
		}
	}
}

int oplog_find_beyond(const uint8_t *base, uint64_t from, uint64_t stored, uint64_t last_lsn,
		      uint64_t epoch, uint64_t *ret_offset, uint64_t *ret_lsn)
{
	struct beyond b = { base, from, stored, last_lsn, epoch, 0, 0, false };
	int rc = logdev_bus_guard(beyond_mapped, &b);

	if (rc != 0 || !b.found)
		return rc;
	*ret_offset = b.offset;
	*ret_lsn = b.lsn;
	return 1;
}
