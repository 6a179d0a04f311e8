/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a checkpoint begins and ends. Any failure leaves what was committed before untouched: new
 * files only get names that no manifest on media knows, and the manifest comes last.
 */
#include "log/ckpt_internal.h"

#include "common/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

static void new_segs_remove(struct ckpt_writer *w)
{
	const struct ckpt_hooks *h = &w->c->hooks;
	char name[CKPT_NAME_BYTES];

	for (uint64_t seg = w->base.last_seg + 1; seg <= w->seg.seg; seg++) {
		ckpt_seg_name(seg, name, sizeof(name));
		(void)h->ops->unlink(h->ops_ctx, w->c->dirfd, name);
	}
}

void ckpt_abort(struct ckpt_writer *w)
{
	if (!w)
		return;
	ckpt_writer_discard(w);
	new_segs_remove(w);
	writer_free(w, false);
}

static int segs_make_durable(struct ckpt_writer *w)
{
	const struct ckpt_hooks *h = &w->c->hooks;
	int err = ckpt_writer_finish(w);

	return err ? err : h->ops->fsync_dir(h->ops_ctx, w->c->dirfd);
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
 * Stores the manifest. Where that fails it may stand on media nonetheless; if it can't be taken
 * back, its segments must stay with it (*ret_keep_segs): the next ckpt_begin sorts that out.
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
		ckpt_writer_discard(w);
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
