/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resync, the mirror's half, on kv-mirror: has kept what only it holds, forgets what it has, takes
 * the checkpoint's files into the checkpoint directory, makes them durable, installs them. What is
 * interrupted leaves a volume that says "incomplete", and the next session begins again.
 */
#include "replication/mirror/mirror_internal.h"

#include "common/byteorder.h"
#include "common/clock.h"
#include "common/io.h"
#include "replication/frame.h"
#include "replication/resync.h"
#include "replication/transport/transport_verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RESYNC_FRAME_NS (60 * NSEC_PER_SEC)
#define RESYNC_TELL_NS (100 * NSEC_PER_MSEC) /* progress of the install, at most so often */

struct resync {
	struct mirror *m;
	int control;             /* the connection */
	struct resync_image image;
	uint64_t told_ns;        /* when the primary was last told of the install */
	bool told_in_vain;       /* it takes no more */
	int file;                /* open and not complete: -1 none */
	uint8_t *buf;
};

static int resync_file_finish(struct resync *r)
{
	int err = fsync(r->file) == 0 ? 0 : -errno;

	if (close(r->file) != 0 && !err)
		err = -errno;
	r->file = -1;
	return err;
}

static int resync_file_begin(struct resync *r, const void *in, size_t len)
{
	struct resync_file f;
	int err = resync_image_file(&r->image, in, len, &f);

	if (err)
		return err;
	r->file = openat(ckpt_dirfd(r->m->ckpt), f.name,
			 O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (r->file < 0)
		return -errno;
	return f.bytes ? 0 : resync_file_finish(r);
}

static int resync_file_data(struct resync *r, size_t len)
{
	struct resync_image *i = &r->image;
	int err = resync_image_data(i, len);

	if (!err)
		err = io_write_full(r->file, r->buf, len);
	if (err)
		return err;
	atomic_store_explicit(&r->m->resync_done, i->bytes_seen, memory_order_relaxed);
	return i->file_left ? 0 : resync_file_finish(r);
}

static int resync_receive_files(struct resync *r)
{
	struct frame f;
	int err;

	for (;;) {
		verbs_devices_attend();
		err = frame_recv(r->control, r->buf, REPL_DATA_BYTES_MAX,
				 clock_mono_ns() + RESYNC_FRAME_NS, &r->m->leave, &f);
		if (err)
			return err;
		switch (f.type) {
		case REPL_RESYNC_FILE:
			err = resync_file_begin(r, r->buf, f.len);
			break;
		case REPL_RESYNC_DATA:
			err = resync_file_data(r, f.len);
			break;
		case REPL_RESYNC_END:
			err = resync_image_end(&r->image);
			return err ? err : io_fsync_dir(ckpt_dirfd(r->m->ckpt));
		default:
			return -EBADMSG;
		}
		if (err)
			return err;
	}
}

/* Of the image's bytes: what is read of its segments, which is all but the manifest. */
static int resync_note_installed(void *ctx, uint64_t done_bytes, uint64_t total_bytes)
{
	struct resync *r = ctx;
	struct repl_resync_progress w;
	uint64_t now = clock_mono_ns();
	uint64_t bytes = r->image.begin.total_bytes;
	double part = total_bytes ? (double)done_bytes / (double)total_bytes : 0;
	uint64_t installed = part < 1 ? (uint64_t)(part * (double)bytes) : bytes;

	atomic_store_explicit(&r->m->resync_installed, installed, memory_order_relaxed);
	if (atomic_load_explicit(&r->m->leave, memory_order_relaxed))
		return -ECANCELED;
	if (!r->m->tells_progress || r->told_in_vain || now - r->told_ns < RESYNC_TELL_NS)
		return 0;
	r->told_ns = now;
	w.installed_bytes = htobe64(installed);
	/* at once or never: a primary that does not read holds up no install */
	r->told_in_vain = frame_send(r->control, REPL_RESYNC_PROGRESS, &w, sizeof(w), now,
				     &r->m->leave) != 0;
	return 0;
}

static int resync_install(struct resync *r)
{
	const struct resync_begin *begin = &r->image.begin;
	struct mirror_progress progress = { resync_note_installed, r };
	struct mirror *m = r->m;
	struct repl_resync_done done = { .lsn = htobe64(begin->lsn) };
	struct epochs_entry e;
	uint64_t lsn;
	/* With the image comes its history; before install the volume counts as being resynced. */
	int err = mirror_note_state(m, &m->primary_epochs, false);

	if (!err)
		err = m->ops->resync_install(m->ctx, &progress, &lsn);
	if (err)
		return err;
	atomic_store_explicit(&m->resync_installed, begin->total_bytes, memory_order_relaxed);
	m->received_lsn = m->durable_lsn = m->applied_lsn = lsn;
	/* the image's own is that of the primary which wrote it, perhaps before its first record */
	m->last_epoch = epochs_at(&m->epochs, lsn, &e) ? e.epoch : begin->epoch;
	atomic_store_explicit(&m->seen_received, lsn, memory_order_relaxed);
	atomic_store_explicit(&m->seen_durable, lsn, memory_order_relaxed);
	atomic_store_explicit(&m->seen_applied, lsn, memory_order_relaxed);
	if (lsn != begin->lsn)
		return -EBADMSG;
	return frame_send(r->control, REPL_RESYNC_DONE, &done, sizeof(done),
			  clock_mono_ns() + RESYNC_FRAME_NS, &m->leave);
}

static void resync_show(struct mirror *m, bool on)
{
	pthread_mutex_lock(&m->lock);
	m->resyncing = on;
	pthread_mutex_unlock(&m->lock);
}

/* Lets what only this mirror holds be kept: what lies behind the last record known to be the
 * primary's too. */
static int resync_keep(const struct resync *r)
{
	struct mirror *m = r->m;
	uint64_t lsn = r->image.begin.lsn;
	uint64_t primary_lsn = m->primary_lsn > lsn ? m->primary_lsn : lsn;
	uint64_t common =
	    epochs_common(&m->epochs, m->durable_lsn, &m->primary_epochs, primary_lsn);

	if (common >= m->durable_lsn || !m->ops->resync_keep)
		return 0;
	return m->ops->resync_keep(m->ctx, common, m->durable_lsn, m->last_epoch);
}

static int resync_run(struct resync *r)
{
	struct mirror *m = r->m;
	int err = resync_keep(r);

	if (err)
		return mirror_fail(m, err, "resync: the records it would remove cannot be kept: %s",
				   strerror(-err));
	err = m->ops->resync_begin(m->ctx);
	if (err)
		return mirror_fail(m, err, "resync: cannot begin: %s", strerror(-err));
	/* From here on nothing is left of what the mirror held. */
	mirror_run_clear(&m->run);
	m->received_lsn = m->durable_lsn = m->applied_lsn = 0;
	m->last_epoch = 0;
	m->epochs.count = 0;
	m->wanted_pool = 0;
	err = resync_receive_files(r);
	if (r->file >= 0)
		close(r->file);
	if (err)
		return mirror_fail(m, err, "resync: %s", strerror(-err));
	err = resync_install(r);
	return err ? mirror_fail(m, err, "resync: cannot install the image: %s", strerror(-err))
		   : 0;
}

int resync_receive(struct mirror *m, int fd, const void *begin, size_t len)
{
	struct resync r = { .m = m, .control = fd, .file = -1 };
	int err = resync_begin_decode(begin, len, &r.image.begin);

	if (err || !m->ckpt)
		return mirror_fail(m, -EPROTO, "resync: the primary sent nonsense");
	r.buf = malloc(REPL_DATA_BYTES_MAX);
	if (!r.buf)
		return mirror_fail(m, -ENOMEM, "resync: out of memory");
	atomic_store_explicit(&m->resync_done, 0, memory_order_relaxed);
	atomic_store_explicit(&m->resync_installed, 0, memory_order_relaxed);
	atomic_store_explicit(&m->resync_total, r.image.begin.total_bytes, memory_order_relaxed);
	resync_show(m, true);
	err = resync_run(&r);
	resync_show(m, false);
	free(r.buf);
	return err;
}
