/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resync, the primary's half: decides whether the log still leads to where the mirror stands, and
 * if not sends the files of the newest checkpoint over the control connection, on the link's
 * thread. The checkpoint is pinned meanwhile. Whatever goes wrong ends the connection; the next one
 * begins again.
 */
#include "replication/primary/link.h"

#include "common/byteorder.h"
#include "common/clock.h"
#include "common/diag.h"
#include "common/io.h"
#include "replication/frame.h"
#include "replication/resync.h"
#include "replication/transport/transport_verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RESYNC_FRAME_NS (60 * NSEC_PER_SEC)
#define RESYNC_INSTALL_NS (600 * NSEC_PER_SEC)
#define RESYNC_LOOK_MS 20

/* Says once a session what the mirror holds and we do not. */
static void resync_warn_diverged(struct link *l, const struct epochs_entry *ours)
{
	char addr[sizeof(l->addr.host) + 16], here[EPOCH_TEXT_BYTES], there[EPOCH_TEXT_BYTES];
	char have[EPOCH_TEXT_BYTES + 40] = "none of that number";
	const struct handshake_welcome *w = &l->welcome;

	addr_format(&l->addr, addr, sizeof(addr));
	if (ours && ours->epoch == w->last_epoch && ours->node_id == w->last_node)
		snprintf(have, sizeof(have), "another, written by a copy of its volume");
	else if (ours)
		snprintf(have, sizeof(have), "one of epoch %s", epoch_format(ours->epoch, here));
	diag_warn("mirror %s holds a record %llu of epoch %s (node %08x), this primary has %s: it "
		  "gets a resync, and keeps "
		  "what that removes in a file cut-* of its volume",
		  addr, (unsigned long long)w->last_lsn, epoch_format(w->last_epoch, there),
		  w->last_node, have);
}

/*
 * The record that the mirror ends with is ours, with all before it, exactly when ours of that LSN
 * is of the same epoch, node and life. Else it diverged, or we no longer know.
 */
bool resync_needed(struct link *l)
{
	const struct handshake_welcome *w = &l->welcome;
	uint64_t first = oplog_first_lsn(l->primary->log);
	uint64_t last = oplog_last_lsn(l->primary->log);
	struct epochs_entry e;

	if (w->last_lsn > last) {
		resync_warn_diverged(l, NULL);
		return true;
	}
	if (w->last_lsn > 0) {
		if (!epochs_at(&l->primary->epochs, w->last_lsn, &e))
			return true;
		if (e.epoch != w->last_epoch || e.node_id != w->last_node ||
		    e.life != w->last_life) {
			resync_warn_diverged(l, &e);
			return true;
		}
	}
	return first ? w->last_lsn + 1 < first : w->last_lsn != last;
}

/* The log goes on where the image ends. */
static bool resync_reaches(struct link *l, const struct ckpt_info *info)
{
	uint64_t first = oplog_first_lsn(l->primary->log);

	return first ? info->lsn + 1 >= first : info->lsn == oplog_last_lsn(l->primary->log);
}

static int resync_pin(struct link *l, struct ckpt_info *ret_info)
{
	struct primary *p = l->primary;
	int err = ckpt_pin(p->ckpt, ret_info);

	if (!err && resync_reaches(l, ret_info))
		return 0;
	if (!err)
		ckpt_unpin(p->ckpt, ret_info);
	else if (err != -ENOENT)
		return err;
	err = p->cfg.checkpoint ? p->cfg.checkpoint(p->cfg.ctx) : -ENOENT;
	if (!err)
		err = ckpt_pin(p->ckpt, ret_info);
	if (err)
		return err;
	if (!resync_reaches(l, ret_info)) {
		ckpt_unpin(p->ckpt, ret_info);
		return -EAGAIN;
	}
	return 0;
}

/* Name of the image's file i; the manifest is the last. */
static int resync_file_name(const struct ckpt_info *info, uint64_t i, uint64_t count,
			    char name[REPL_NAME_BYTES])
{
	if (i + 1 == count)
		return ckpt_manifest_name(info->number, name, REPL_NAME_BYTES);
	return ckpt_seg_name(info->first_seg + i, name, REPL_NAME_BYTES);
}

static int resync_sizes(struct link *l, const struct ckpt_info *info, uint64_t count,
			uint64_t *ret_total)
{
	char name[REPL_NAME_BYTES];
	uint64_t total = 0;
	struct stat st;

	for (uint64_t i = 0; i < count; i++) {
		int err = resync_file_name(info, i, count, name);

		if (err < 0)
			return err;
		if (fstatat(ckpt_dirfd(l->primary->ckpt), name, &st, AT_SYMLINK_NOFOLLOW) != 0)
			return -errno;
		total += (uint64_t)st.st_size;
	}
	*ret_total = total;
	return 0;
}

static int resync_send_frame(struct link *l, int fd, enum repl_frame_type type, const void *data,
			     size_t len)
{
	return frame_send(fd, type, data, len, clock_mono_ns() + RESYNC_FRAME_NS,
			  &l->primary->stopping);
}

static int resync_send_bytes(struct link *l, int fd, int file, uint64_t bytes, uint64_t began_ns)
{
	uint64_t done = 0;

	while (done < bytes) {
		size_t n = bytes - done < REPL_DATA_BYTES_MAX ? bytes - done : REPL_DATA_BYTES_MAX;
		uint64_t sum, elapsed;
		int err = io_pread_full(file, l->read_buf, n, (off_t)done);

		verbs_devices_attend();
		if (!err)
			err = resync_send_frame(l, fd, REPL_RESYNC_DATA, l->read_buf, n);
		if (err)
			return err;
		done += n;
		sum = atomic_fetch_add_explicit(&l->resync_done, n, memory_order_relaxed) + n;
		elapsed = clock_mono_ns() - began_ns;
		link_hold_resync(l, sum,
				 atomic_load_explicit(&l->resync_total, memory_order_relaxed),
				 clock_mono_ns());
		atomic_store_explicit(&l->resync_rate,
				      (uint64_t)((double)sum * 1e9 / (double)(elapsed + 1)),
				      memory_order_relaxed);
	}
	return 0;
}

static int resync_send_file(struct link *l, int fd, const char *name, uint64_t began_ns)
{
	struct resync_file f = { 0 };
	struct repl_resync_file msg;
	struct stat st;
	int file = openat(ckpt_dirfd(l->primary->ckpt), name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	int err = 0;

	if (file < 0)
		return -errno;
	if (fstat(file, &st) != 0)
		err = -errno;
	if (!err) {
		snprintf(f.name, sizeof(f.name), "%s", name);
		f.bytes = (uint64_t)st.st_size;
		resync_file_encode(&f, &msg);
		err = resync_send_frame(l, fd, REPL_RESYNC_FILE, &msg, sizeof(msg));
	}
	if (!err)
		err = resync_send_bytes(l, fd, file, (uint64_t)st.st_size, began_ns);
	close(file);
	return err;
}

static int resync_send_image(struct link *l, int fd, const struct ckpt_info *info)
{
	uint64_t segs = info->last_seg < info->first_seg ? 0 : info->last_seg - info->first_seg + 1;
	uint64_t total = 0, began_ns = clock_mono_ns();
	struct resync_begin begin = { .lsn = info->lsn, .epoch = info->epoch, .files = segs + 1 };
	struct repl_resync_begin msg;
	char name[REPL_NAME_BYTES];
	int err = resync_sizes(l, info, segs + 1, &total);

	if (err)
		return err;
	begin.total_bytes = total;
	resync_begin_encode(&begin, &msg);
	atomic_store_explicit(&l->resync_total, total, memory_order_relaxed);
	err = resync_send_frame(l, fd, REPL_RESYNC_BEGIN, &msg, sizeof(msg));
	for (uint64_t i = 0; !err && i <= segs; i++) {
		err = resync_file_name(info, i, segs + 1, name);
		if (err >= 0)
			err = resync_send_file(l, fd, name, began_ns);
	}
	return err ? err : resync_send_frame(l, fd, REPL_RESYNC_END, NULL, 0);
}

/* Until something comes, or nothing may come any more. Meanwhile the log grows: the writers are
 * slowed so that it goes on reaching to the image. */
static void resync_await_frame(struct link *l, int fd, uint64_t end_ns)
{
	uint64_t installed = atomic_load_explicit(&l->resync_installed, memory_order_relaxed);
	uint64_t total = atomic_load_explicit(&l->resync_total, memory_order_relaxed);
	struct pollfd p = { .fd = fd, .events = POLLIN };

	do
		link_hold_install(l, installed, total, clock_mono_ns());
	while (poll(&p, 1, RESYNC_LOOK_MS) == 0 && clock_mono_ns() < end_ns &&
	       !atomic_load_explicit(&l->primary->stopping, memory_order_relaxed));
}

static int resync_take_progress(struct link *l, const void *in, size_t len, bool *ret_more)
{
	uint64_t total = atomic_load_explicit(&l->resync_total, memory_order_relaxed);
	uint64_t installed;
	int err = resync_progress_decode(in, len, total, &installed);

	if (err)
		return err;
	/* less than before is none, or up and down would never end */
	*ret_more = installed > atomic_load_explicit(&l->resync_installed, memory_order_relaxed);
	if (*ret_more)
		atomic_store_explicit(&l->resync_installed, installed, memory_order_relaxed);
	return 0;
}

static int resync_await_done(struct link *l, int fd, uint64_t lsn)
{
	uint64_t end_ns = clock_mono_ns() + RESYNC_INSTALL_NS;
	uint8_t buf[REPL_SMALL_BYTES_MAX];
	struct frame f;
	int err;

	link_hold_install_begin(l, clock_mono_ns());
	for (;;) {
		bool more;

		resync_await_frame(l, fd, end_ns);
		err = frame_recv(fd, buf, sizeof(buf), end_ns, &l->primary->stopping, &f);
		if (err || f.type != REPL_RESYNC_PROGRESS)
			break;
		err = resync_take_progress(l, buf, f.len, &more);
		if (err)
			break;
		if (more) /* a large image may take longer than one that stands still is given */
			end_ns = clock_mono_ns() + RESYNC_INSTALL_NS;
	}
	if (err)
		return err;
	if (f.type != REPL_RESYNC_DONE || resync_done_decode(buf, f.len, lsn) != 0)
		return -EPROTO;
	atomic_store_explicit(&l->resync_installed,
			      atomic_load_explicit(&l->resync_total, memory_order_relaxed),
			      memory_order_relaxed);
	return 0;
}

int resync_send(struct link *l, int fd)
{
	struct ckpt_info info;
	int err;

	/* Nothing is shown of the resync before this one: its checkpoint may take a while. */
	atomic_store_explicit(&l->resync_done, 0, memory_order_relaxed);
	atomic_store_explicit(&l->resync_installed, 0, memory_order_relaxed);
	atomic_store_explicit(&l->resync_total, 0, memory_order_relaxed);
	atomic_store_explicit(&l->resync_rate, 0, memory_order_relaxed);
	err = resync_pin(l, &info);
	if (err)
		return link_fail(l, err == -ENOSPC ? -EIO : err, "no checkpoint to resync from: %s",
				 strerror(-err));
	link_hold_begin(l, info.lsn + 1, 0);
	err = resync_send_image(l, fd, &info);
	if (!err)
		err = resync_await_done(l, fd, info.lsn);
	ckpt_unpin(l->primary->ckpt, &info);
	if (err)
		return link_fail(l, err == -ESTALE ? -EAGAIN : err, "resync: %s", strerror(-err));
	if (!resync_reaches(l, &info))
		return link_fail(l, -EAGAIN, "resync: the log was rewound meanwhile");
	l->welcome.last_lsn = info.lsn;
	l->welcome.last_epoch = info.epoch;
	return 0;
}
