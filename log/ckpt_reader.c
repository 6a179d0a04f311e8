/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a checkpoint in write order, in large pieces with the disk kept busy ahead of them. A
 * block's items are handed on only after its checksum has been found good.
 */
#include "log/ckpt_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BUF_BYTES (2 * (size_t)CKPT_BLOCK_BYTES_MAX)
#define READ_AHEAD_BYTES (8ULL << 20)
#define READ_AHEAD_STEP (512U << 10) /* the kernel cuts a larger piece of advice short */

struct reader {
	struct ckpt *c;
	const struct ckpt_read_ops *ops;
	void *ctx;
	uint64_t done_bytes, total_bytes;
	int callback_result; /* non-zero: ends the walk */

	uint8_t *buf;
	int fd;              /* the segment */
	uint64_t seg_bytes;
	uint64_t read_off;   /* of the next byte to read */
	uint64_t ahead_off;  /* read ahead up to here */
	size_t at, have;     /* unparsed bytes: buf[at, have) */
};

static void read_ahead(struct reader *r)
{
	uint64_t end = r->read_off + READ_AHEAD_BYTES;

	if (end > r->seg_bytes)
		end = r->seg_bytes;
	for (; r->ahead_off < end; r->ahead_off += READ_AHEAD_STEP)
		(void)posix_fadvise(r->fd, (off_t)r->ahead_off, READ_AHEAD_STEP,
				    POSIX_FADV_WILLNEED);
}

/* Moves what is left to the front and reads on. -ENODATA at the segment's end. */
static int refill(struct reader *r)
{
	size_t left = r->have - r->at;
	uint64_t want = r->seg_bytes - r->read_off;
	ssize_t n;

	if (want == 0)
		return -ENODATA;
	memmove(r->buf, r->buf + r->at, left);
	r->at = 0;
	r->have = left;
	if (want > READ_BUF_BYTES - left)
		want = READ_BUF_BYTES - left;
	read_ahead(r);
	do {
		n = pread(r->fd, r->buf + left, (size_t)want, (off_t)r->read_off);
	} while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n == 0 ? -ENODATA : -errno;
	r->have += (size_t)n;
	r->read_off += (uint64_t)n;
	return 0;
}

static int items_deliver(struct reader *r, uint64_t seg, const struct ckpt_block *b)
{
	uint32_t off = 0, seen = 0, len;
	const uint8_t *data;
	uint8_t type;
	int res;

	while ((res = ckpt_item_next(b, &off, &seen, &type, &data, &len)) == 1) {
		if (!r->ops || !r->ops->item)
			continue;
		r->callback_result = r->ops->item(r->ctx, seg, type, data, len);
		if (r->callback_result)
			return r->callback_result;
	}
	return res;
}

static int block_next(struct reader *r, uint64_t seg, uint32_t sequence, struct ckpt_block *ret_b)
{
	int err;

	while ((err = ckpt_block_decode(r->buf + r->at, r->have - r->at, seg, sequence, ret_b)) ==
	       -ENODATA) {
		err = refill(r);
		if (err)
			return err;
	}
	if (!err)
		r->at += ret_b->disk_bytes;
	return err;
}

static int header_read(struct reader *r, uint64_t seg)
{
	int err;

	while (r->have < CKPT_PAGE_BYTES) {
		err = refill(r);
		if (err)
			return err;
	}
	r->at = CKPT_PAGE_BYTES;
	return ckpt_seg_header_decode(r->buf, r->c->uuid, seg);
}

static void progress(struct reader *r, uint64_t bytes)
{
	r->done_bytes += bytes;
	if (r->ops && r->ops->progress)
		r->ops->progress(r->ctx, r->done_bytes, r->total_bytes);
}

static int blocks_read(struct reader *r, const struct ckpt_seg *s)
{
	uint64_t chain = s->seg, items = 0;
	struct ckpt_block b;
	int err = header_read(r, s->seg);

	if (err)
		return err;
	progress(r, CKPT_PAGE_BYTES);
	for (uint32_t i = 0; i < s->block_count; i++) {
		err = block_next(r, s->seg, i, &b);
		if (!err)
			err = items_deliver(r, s->seg, &b);
		if (err)
			return err;
		chain = ckpt_seg_chain(chain, b.checksum);
		items += b.item_count;
		progress(r, b.disk_bytes);
	}
	if (r->at != r->have || r->read_off != r->seg_bytes || chain != s->checksum ||
	    items != s->item_count)
		return -EBADMSG;
	return 0;
}

/* -ENODATA and -ENOENT here: the segment is short or missing. */
static int seg_read(struct reader *r, const struct ckpt_seg *s)
{
	char name[CKPT_NAME_BYTES];
	struct stat st;
	int err;

	ckpt_seg_name(s->seg, name, sizeof(name));
	r->fd = openat(r->c->dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (r->fd < 0)
		return errno == ELOOP ? -EBADMSG : -errno;
	r->seg_bytes = s->bytes;
	r->read_off = r->ahead_off = 0;
	r->at = r->have = 0;
	if (fstat(r->fd, &st) != 0)
		err = -errno;
	else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != s->bytes)
		err = -EBADMSG;
	else
		err = blocks_read(r, s);
	close(r->fd);
	return err;
}

static int segs_read(struct reader *r, const struct ckpt_manifest *m, uint64_t *ret_bad_seg)
{
	int err = 0;

	for (uint32_t i = 0; i < m->seg_count && !err; i++) {
		err = seg_read(r, &m->segs[i]);
		if (err && !r->callback_result)
			*ret_bad_seg = m->segs[i].seg;
	}
	if (r->callback_result)
		return r->callback_result;
	return err == -ENODATA || err == -ENOENT ? -EBADMSG : err;
}

static int pinned_read(struct reader *r, const struct ckpt_info *info, uint64_t *ret_bad_seg)
{
	struct ckpt_manifest m;
	int err = ckpt_manifest_load(r->c, info->number, &m);

	if (err)
		return err;
	if (m.info.lsn != info->lsn || m.info.time_ns != info->time_ns) {
		err = -ENOENT; /* another checkpoint of that number (after a wipe) */
	} else {
		r->total_bytes = m.info.bytes;
		err = segs_read(r, &m, ret_bad_seg);
	}
	ckpt_manifest_clear(&m);
	return err;
}

int ckpt_read(struct ckpt *c, const struct ckpt_info *info, const struct ckpt_read_ops *ops,
	      void *ctx, uint64_t *ret_bad_seg)
{
	struct reader r = { .c = c, .ops = ops, .ctx = ctx };
	uint64_t bad_seg = 0;
	int err = ckpt_pin_info(c, info);

	if (err)
		return err;
	r.buf = aligned_alloc(CKPT_PAGE_BYTES, READ_BUF_BYTES);
	err = r.buf ? pinned_read(&r, info, &bad_seg) : -ENOMEM;
	free(r.buf);
	ckpt_unpin(c, info);
	/* A checkpoint that can't be read is not built upon; see ckpt_begin. */
	if (!r.callback_result && (!err || err == -EBADMSG || err == -EIO))
		ckpt_mark_bad(c, info->number, err != 0);
	if (bad_seg && ret_bad_seg)
		*ret_bad_seg = bad_seg;
	return err;
}
