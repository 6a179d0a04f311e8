/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs items into blocks, blocks into segments, and commits. A segment that is full is not synced at
 * once but when the next one is full too, so that the disk always has writes to do.
 *
 * Any failure leaves what was committed before untouched: new files only get names that no manifest on
 * media knows, and the manifest comes last.
 */
#include "log/ckpt_internal.h"

#include "common/clock.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct ckpt_writer {
	struct ckpt *c;
	struct ckpt_io *io;
	struct ckpt_info base;      /* number 0: there is none */
	struct ckpt_manifest m;     /* base's segments, then the finished new ones */
	uint32_t segs_cap, base_segs;
	int err;                    /* the first; only abort is allowed then */

	struct ckpt_seg seg;        /* the segment being filled */
	struct ckpt_io_file *file;  /* its file; NULL until its first block is begun */
	struct ckpt_io_file *closing; /* the one before, full but not synced */

	uint8_t *buf;               /* the block being filled, NULL: none */
	uint8_t *block;             /* where in buf its header is */
	uint32_t used, room;        /* payload bytes */
	uint32_t item_count;
};

/* The two newest sound checkpoints, and a number above every manifest's, sound or not. */
static int base_find(struct ckpt *c, struct ckpt_manifest good[2], int *ret_count,
		     uint64_t *ret_number)
{
	uint64_t *numbers;
	size_t count;
	int found = 0;
	int err = ckpt_dir_manifests(c, &numbers, &count);

	if (err)
		return err;
	for (size_t i = 0; i < count && found < 2; i++) {
		if (ckpt_is_bad(c, numbers[i]))
			continue;
		err = ckpt_manifest_load(c, numbers[i], &good[found]);
		if (!err)
			found++;
		else if (err != -EBADMSG)
			break;
		err = 0;
	}
	*ret_number = count > 0 ? numbers[0] + 1 : 1;
	free(numbers);
	if (!err && *ret_number == 0)
		err = -EOVERFLOW;
	*ret_count = found;
	return err;
}

/* A pinned checkpoint that is not built upon must not own the numbers that come next. */
static int pins_check(struct ckpt *c, uint64_t next_seg)
{
	int err = 0;

	pthread_mutex_lock(&c->mutex);
	for (unsigned int i = 0; i < CKPT_PINS_MAX; i++)
		if (c->pins[i].count > 0 && c->pins[i].info.last_seg >= next_seg)
			err = -EBUSY;
	pthread_mutex_unlock(&c->mutex);
	return err;
}

/* Takes over good[0] as the base and clears the directory of all that is neither it nor good[1]. */
static int writer_base(struct ckpt_writer *w)
{
	struct ckpt_manifest good[2] = { 0 };
	struct ckpt_info keep[2];
	uint64_t number = 0;
	int count = 0;
	int err = base_find(w->c, good, &count, &number);

	for (int i = 0; i < count; i++)
		keep[i] = good[i].info;
	if (!err)
		err = pins_check(w->c, count > 0 ? keep[0].last_seg + 1 : 1);
	if (!err)
		err = ckpt_dir_prune(w->c, keep, (size_t)count);
	ckpt_manifest_clear(&good[1]);
	if (err) {
		ckpt_manifest_clear(&good[0]);
		return err;
	}
	w->m = good[0];
	w->base = good[0].info;
	w->base_segs = w->segs_cap = w->m.seg_count;
	w->m.info.number = number;
	w->seg.seg = w->base.last_seg + 1;
	w->seg.checksum = w->seg.seg;
	return 0;
}

static int writing_claim(struct ckpt *c)
{
	int err = 0;

	pthread_mutex_lock(&c->mutex);
	if (c->writing) {
		err = -EBUSY;
	} else {
		c->writing = true;
		c->start_ns = clock_mono_ns();
		c->stats.written_bytes = 0;
	}
	pthread_mutex_unlock(&c->mutex);
	return err;
}

/* The end of a writer, whatever became of it. */
static void writer_free(struct ckpt_writer *w, bool committed)
{
	struct ckpt *c = w->c;

	ckpt_io_destroy(w->io);
	ckpt_manifest_clear(&w->m);
	pthread_mutex_lock(&c->mutex);
	c->stats.duration_ns = clock_mono_ns() - c->start_ns;
	c->stats.total_count += committed;
	c->writing = false;
	pthread_mutex_unlock(&c->mutex);
	free(w);
}

int ckpt_begin(struct ckpt *c, uint64_t lsn, uint64_t epoch, struct ckpt_writer **ret_w)
{
	struct ckpt_writer *w;
	int err = writing_claim(c);

	if (err)
		return err;
	w = calloc(1, sizeof(*w));
	if (!w) {
		pthread_mutex_lock(&c->mutex);
		c->writing = false;
		pthread_mutex_unlock(&c->mutex);
		return -ENOMEM;
	}
	w->c = c;
	err = writer_base(w);
	if (!err)
		err = ckpt_io_create(&c->hooks, &w->io);
	if (err) {
		writer_free(w, false);
		return err;
	}
	w->m.info.lsn = lsn;
	w->m.info.epoch = epoch;
	*ret_w = w;
	return 0;
}

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
	uint64_t sum = ckpt_block_seal(w->block, w->seg.seg, w->seg.block_count, w->used, w->item_count);
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

static void new_segs_remove(struct ckpt_writer *w)
{
	const struct ckpt_hooks *h = &w->c->hooks;
	char name[CKPT_NAME_BYTES];

	for (uint64_t seg = w->base.last_seg + 1; seg <= w->seg.seg; seg++) {
		ckpt_seg_name(seg, name, sizeof(name));
		(void)h->ops->unlink(h->ops_ctx, w->c->dirfd, name);
	}
}

static void files_discard(struct ckpt_writer *w)
{
	ckpt_io_file_discard(w->io, w->closing);
	ckpt_io_file_discard(w->io, w->file);
	w->closing = w->file = NULL;
}

void ckpt_abort(struct ckpt_writer *w)
{
	if (!w)
		return;
	files_discard(w);
	new_segs_remove(w);
	writer_free(w, false);
}

static int segs_make_durable(struct ckpt_writer *w)
{
	const struct ckpt_hooks *h = &w->c->hooks;
	int err = w->err;

	if (!err)
		err = seg_close(w);
	if (!err)
		err = closing_finish(w);
	if (!err)
		err = h->ops->fsync_dir(h->ops_ctx, w->c->dirfd);
	return err;
}

/* Fills in the manifest's run: entries from first_seg to the last new segment. */
static int run_choose(struct ckpt_writer *w, uint64_t first_seg)
{
	struct ckpt_manifest *m = &w->m;
	uint64_t oldest = w->base.number ? w->base.first_seg : 1;
	uint32_t skip;

	if (first_seg == 0)
		first_seg = oldest;
	if (first_seg < oldest || first_seg > w->seg.seg)
		return -EINVAL;
	skip = (uint32_t)(first_seg - oldest);
	if (skip > 0) {
		m->seg_count -= skip;
		memmove(m->segs, m->segs + skip, m->seg_count * sizeof(*m->segs));
	}
	m->info.first_seg = first_seg;
	m->info.last_seg = w->seg.seg - 1;
	m->info.bytes = 0;
	for (uint32_t i = 0; i < m->seg_count; i++)
		m->info.bytes += m->segs[i].bytes;
	return 0;
}

/*
 * Stores the manifest. Where that fails it may stand on media nonetheless; if it can't be taken back,
 * its segments must stay with it (*ret_keep_segs): the next ckpt_begin sorts that out.
 */
static int manifest_commit(struct ckpt_writer *w, bool *ret_keep_segs)
{
	int err = ckpt_manifest_store(w->c, &w->m);

	if (err)
		*ret_keep_segs = ckpt_manifest_remove(w->c, w->m.info.number) != 0;
	return err;
}

int ckpt_commit(struct ckpt_writer *w, uint64_t first_seg, uint64_t next_ino,
		struct ckpt_info *ret_info)
{
	struct ckpt *c = w->c;
	struct ckpt_info keep[2] = { { 0 }, w->base };
	bool keep_segs = false;
	int err = segs_make_durable(w);

	if (!err)
		err = run_choose(w, first_seg);
	if (!err) {
		w->m.info.next_ino = next_ino;
		w->m.info.time_ns = clock_real_ns();
		err = manifest_commit(w, &keep_segs);
	}
	if (err) {
		files_discard(w);
		if (!keep_segs)
			new_segs_remove(w);
		writer_free(w, false);
		return err;
	}
	keep[0] = w->m.info;
	/* It stands. What can't be removed now goes with the next. */
	(void)ckpt_dir_prune(c, keep, keep[1].number ? 2 : 1);
	writer_free(w, true);
	*ret_info = keep[0];
	return 0;
}
