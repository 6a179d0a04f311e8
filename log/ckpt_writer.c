/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs items into blocks and blocks into segments. A segment that is full is not synced at once
 * but when the next one is full too, so that the disk always has writes to do.
 */
#include "log/ckpt_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint64_t ckpt_writer_seg(const struct ckpt_writer *w)
{
	return w->seg.seg;
}

static int seg_open(struct ckpt_writer *w)
{
	char name[CKPT_NAME_BYTES];

	if (w->m.seg_count == CKPT_SEGS_MAX)
		return -EFBIG;
	ckpt_seg_name(w->seg.seg, name, sizeof(name));
	return ckpt_io_file_open(w->io, w->c->dirfd, name, &w->file);
}

static int block_begin(struct ckpt_writer *w)
{
	bool first = !w->file;
	int err = first ? seg_open(w) : 0;

	if (!err)
		err = ckpt_io_buffer_get(w->io, &w->buf);
	if (err)
		return err;
	w->block = w->buf;
	if (first) {
		ckpt_seg_header_encode(w->buf, w->c->uuid, w->seg.seg, w->m.info.number);
		w->block += CKPT_PAGE_BYTES;
		w->seg.bytes = CKPT_PAGE_BYTES;
	}
	w->room = CKPT_BLOCK_BYTES_MAX - (uint32_t)(w->block - w->buf) -
		  (uint32_t)sizeof(struct ckpt_block_header);
	w->used = w->item_count = 0;
	return 0;
}

static void stats_update(struct ckpt_writer *w, uint64_t bytes)
{
	struct ckpt *c = w->c;

	pthread_mutex_lock(&c->mutex);
	c->stats.written_bytes += bytes;
	c->stats.total_written_bytes += bytes;
	c->stats.direct_io = ckpt_io_is_direct(w->io);
	c->stats.io_uring = ckpt_io_is_uring(w->io);
	pthread_mutex_unlock(&c->mutex);
}

static int block_flush(struct ckpt_writer *w)
{
	uint32_t disk_bytes = ckpt_block_disk_bytes(w->used);
	size_t len = (size_t)(w->block - w->buf) + disk_bytes;
	uint64_t sum =
		ckpt_block_seal(w->block, w->seg.seg, w->seg.block_count, w->used, w->item_count);
	uint8_t *buf = w->buf;

	w->seg.checksum = ckpt_seg_chain(w->seg.checksum, sum);
	w->seg.bytes += disk_bytes;
	w->seg.item_count += w->item_count;
	w->seg.block_count++;
	w->buf = NULL;
	stats_update(w, len);
	return ckpt_io_write(w->io, w->file, buf, len);
}

static int segs_push(struct ckpt_writer *w)
{
	struct ckpt_manifest *m = &w->m;

	if (m->seg_count == w->segs_cap) {
		uint32_t cap = w->segs_cap + w->segs_cap / 2 + 16;
		struct ckpt_seg *v = reallocarray(m->segs, cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		m->segs = v;
		w->segs_cap = cap;
	}
	m->segs[m->seg_count++] = w->seg;
	return 0;
}

static int closing_finish(struct ckpt_writer *w)
{
	struct ckpt_io_file *f = w->closing;

	w->closing = NULL;
	return f ? ckpt_io_file_finish(w->io, f) : 0;
}

/* Ends the segment being filled, if it has items. */
static int seg_close(struct ckpt_writer *w)
{
	uint64_t next = w->seg.seg + 1;
	int err = w->buf ? block_flush(w) : 0;

	if (err || !w->file)
		return err;
	err = segs_push(w);
	if (err)
		return err;
	w->seg = (struct ckpt_seg){ .seg = next, .checksum = next };
	err = closing_finish(w);
	w->closing = w->file;
	w->file = NULL;
	ckpt_io_file_start_sync(w->closing);
	return err;
}

static int writer_fail(struct ckpt_writer *w, int err)
{
	if (err && !w->err)
		w->err = err;
	return err;
}

int ckpt_writer_add(struct ckpt_writer *w, uint8_t type, const struct iovec *iov, int iovcnt,
		    uint64_t *ret_seg, uint32_t *ret_bytes)
{
	size_t len = 0;
	uint64_t seg = w->seg.seg;
	uint8_t *p;
	int err = w->err;

	assert(type != 0);
	for (int i = 0; i < iovcnt; i++)
		len += iov[i].iov_len;
	if (!err && len > CKPT_ITEM_BYTES_MAX)
		err = -EMSGSIZE;
	if (!err && w->buf && CKPT_ITEM_HEADER_BYTES + len > w->room - w->used)
		err = block_flush(w);
	if (!err && !w->buf)
		err = block_begin(w);
	if (err)
		return writer_fail(w, err);

	p = w->block + sizeof(struct ckpt_block_header) + w->used;
	ckpt_item_header_put(p, type, (uint32_t)len);
	p += CKPT_ITEM_HEADER_BYTES;
	for (int i = 0; i < iovcnt; i++) {
		if (iov[i].iov_len > 0)
			memcpy(p, iov[i].iov_base, iov[i].iov_len);
		p += iov[i].iov_len;
	}
	w->used += CKPT_ITEM_HEADER_BYTES + (uint32_t)len;
	w->item_count++;
	/* Here and not before the next item, so that ckpt_writer_seg always tells the truth. */
	if (w->seg.bytes + w->used >= w->c->hooks.seg_bytes)
		err = seg_close(w);
	if (err)
		return writer_fail(w, err);
	*ret_seg = seg;
	*ret_bytes = CKPT_ITEM_HEADER_BYTES + (uint32_t)len;
	return 0;
}

int ckpt_writer_finish(struct ckpt_writer *w)
{
	int err = w->err ? w->err : seg_close(w);

	return err ? err : closing_finish(w);
}

void ckpt_writer_discard(struct ckpt_writer *w)
{
	ckpt_io_file_discard(w->io, w->closing);
	ckpt_io_file_discard(w->io, w->file);
	w->closing = w->file = NULL;
}
