/* SPDX-License-Identifier: Apache-2.0 */
/* Life cycle, errors and figures of the mirror's side (see mirror_internal.h for who does what). */
#include "replication/mirror/mirror_internal.h"

#include "common/clock.h"
#include "common/thread.h"

#include <errno.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIRROR_RING_BYTES_MIN (4ULL << 20)
#define MIRROR_RING_BYTES_MAX (64ULL << 30) /* places must fit below the control values */

int mirror_fail(struct mirror *m, int err, const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&m->lock);
	va_start(ap, fmt);
	if (!m->failed)
		vsnprintf(m->last_error, sizeof(m->last_error), fmt, ap);
	va_end(ap);
	pthread_mutex_unlock(&m->lock);
	return err;
}

void mirror_fail_at_door(struct mirror *m, const char *peer, const char *why)
{
	pthread_mutex_lock(&m->lock);
	if (!m->failed && !m->connected)
		snprintf(m->last_error, sizeof(m->last_error), "%s: %s", peer, why);
	pthread_mutex_unlock(&m->lock);
}

void mirror_forget_error(struct mirror *m)
{
	pthread_mutex_lock(&m->lock);
	if (!m->failed)
		m->last_error[0] = '\0';
	pthread_mutex_unlock(&m->lock);
}

int mirror_fail_for_good(struct mirror *m, int err, const char *fmt, ...)
{
	char why[MIRROR_ERROR_BYTES];
	bool first = !m->stopped;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	m->stopped = true;
	pthread_mutex_lock(&m->lock);
	memcpy(m->last_error, why, sizeof(why));
	m->failed = true;
	pthread_mutex_unlock(&m->lock);
	if (first && m->ops->failed)
		m->ops->failed(m->ctx, why);
	if (first) /* it follows no more: not to be promoted unasked; a failure is in last_error */
		(void)mirror_note_state(m, &m->epochs, false);
	return err;
}

int mirror_note_state(struct mirror *m, const struct epochs *epochs, bool in_sync)
{
	int err = m->ops->note_state(m->ctx, epochs, in_sync ? m->epoch : 0);

	if (err)
		return mirror_fail(m, err, "cannot store whether this mirror is in sync: %s",
				   strerror(-err));
	if (epochs != &m->epochs)
		m->epochs = *epochs;
	pthread_mutex_lock(&m->lock);
	m->in_sync = in_sync;
	pthread_mutex_unlock(&m->lock);
	return 0;
}

/* Epoch of the last record: from the log or, when it was rewound, from the history. 0: unknown. */
static int mirror_find_last_epoch(struct mirror *m)
{
	struct epochs_entry e;
	struct record r;
	size_t len, bytes;
	uint64_t last;
	uint8_t *buf;

	m->last_epoch = 0;
	if (m->cfg.last_lsn == 0)
		return 0;
	buf = malloc(RECORD_BYTES_MAX);
	if (!buf)
		return -ENOMEM;
	if (oplog_read(m->log, m->cfg.last_lsn, buf, RECORD_BYTES_MAX, &len, &last) == 0 &&
	    record_decode(buf, len, &r, &bytes) == 0)
		m->last_epoch = r.epoch;
	free(buf);
	if (!m->last_epoch && epochs_at(&m->epochs, m->cfg.last_lsn, &e))
		m->last_epoch = e.epoch;
	return 0;
}

static int mirror_init(struct mirror *m)
{
	int err;

	if (m->cfg.ring_bytes == 0)
		m->cfg.ring_bytes = MIRROR_RING_BYTES_DEFAULT;
	if (m->cfg.lanes_max == 0 || m->cfg.lanes_max > TRANSPORT_LANES_MAX ||
	    m->cfg.ring_bytes % 4096 || m->cfg.ring_bytes < MIRROR_RING_BYTES_MIN ||
	    m->cfg.ring_bytes > MIRROR_RING_BYTES_MAX)
		return -EINVAL;
	m->promised = m->cfg.promised;
	m->in_sync = m->cfg.sync_epoch != 0;
	m->epochs = *m->cfg.epochs;
	m->cfg.epochs = &m->epochs;
	epochs_cut(&m->epochs, m->cfg.last_lsn);
	m->stage_mirror = metrics_stage(m->cfg.metrics, "mirror");
	m->stage_apply = metrics_stage(m->cfg.metrics, "apply");
	m->received_lsn = m->durable_lsn = m->applied_lsn = m->cfg.last_lsn;
	atomic_store(&m->seen_received, m->cfg.last_lsn);
	atomic_store(&m->seen_durable, m->cfg.last_lsn);
	atomic_store(&m->seen_applied, m->cfg.last_lsn);
	m->slots = calloc(REPL_WINDOW_RECORDS, sizeof(*m->slots));
	m->run.copies = malloc(MIRROR_COPY_CAPACITY);
	if (!m->slots || !m->run.copies)
		return -ENOMEM;
	m->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (m->stop_fd < 0)
		return -errno;
	err = mirror_find_last_epoch(m);
	m->run_epoch = m->last_epoch;
	return err;
}

static int mirror_start(struct mirror *m)
{
	int err = thread_start(&m->worker, "kv-mirror", mirror_thread, m);

	if (err)
		return err;
	m->worker_started = true;
	err = thread_start(&m->listener, "kv-listen", mirror_listen_thread, m);
	m->listener_started = !err;
	return err;
}

int mirror_create(struct oplog *log, struct ckpt *ckpt, const struct mirror_config *cfg,
		  const struct mirror_ops *ops, void *ctx, struct mirror **ret_m,
		  const char **ret_why)
{
	struct mirror *m;
	const char *why = "cannot start the mirror";
	int err;

	if (sodium_init() < 0)
		return -EIO;
	m = calloc(1, sizeof(*m));
	if (!m) {
		*ret_why = "out of memory";
		return -ENOMEM;
	}
	m->log = log;
	m->ckpt = ckpt;
	m->cfg = *cfg;
	m->ops = ops;
	m->ctx = ctx;
	m->stop_fd = m->setup_fd = -1;
	pthread_mutex_init(&m->lock, NULL);
	thread_cond_init(&m->changed);
	err = mirror_init(m);
	if (err == -EINVAL)
		why = "the ring must be 4 MiB to 64 GiB in whole pages, lanes 1 to 40";
	if (!err)
		err = mirror_listen_open(m, &why);
	m->cfg.listen = NULL; /* the caller's */
	if (!err)
		err = mirror_start(m);
	if (err) {
		*ret_why = why;
		mirror_destroy(m);
		return err;
	}
	*ret_m = m;
	return 0;
}

void mirror_interrupt_locked(struct mirror *m)
{
	if (m->wake_ep)
		m->wake_tops->wake(m->wake_ep);
	if (m->setup_fd >= 0)
		(void)shutdown(m->setup_fd, SHUT_RDWR);
}

static void mirror_stop(struct mirror *m)
{
	uint64_t one = 1;

	atomic_store_explicit(&m->stopping, true, memory_order_relaxed);
	pthread_mutex_lock(&m->lock);
	/* release: pairs with the acquire in mirror_leaving */
	atomic_store_explicit(&m->leave, true, memory_order_release);
	mirror_interrupt_locked(m);
	pthread_cond_broadcast(&m->changed);
	pthread_mutex_unlock(&m->lock);
	if (m->stop_fd >= 0 && write(m->stop_fd, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN); /* already readable */
}

void mirror_destroy(struct mirror *m)
{
	if (!m)
		return;
	mirror_stop(m);
	if (m->listener_started)
		pthread_join(m->listener, NULL);
	if (m->worker_started)
		pthread_join(m->worker, NULL);
	mirror_caller_free(m->caller);
	mirror_listen_close(m);
	if (m->stop_fd >= 0)
		close(m->stop_fd);
	pthread_cond_destroy(&m->changed);
	pthread_mutex_destroy(&m->lock);
	sodium_memzero(m->cfg.key, sizeof(m->cfg.key));
	free(m->slots);
	free(m->run.copies);
	free(m);
}

void mirror_stats(struct mirror *m, struct mirror_stats *ret_stats)
{
	struct mirror_stats s = {
		.received_lsn = atomic_load_explicit(&m->seen_received, memory_order_relaxed),
		.durable_lsn = atomic_load_explicit(&m->seen_durable, memory_order_relaxed),
		.applied_lsn = atomic_load_explicit(&m->seen_applied, memory_order_relaxed),
		.records = atomic_load_explicit(&m->records, memory_order_relaxed),
		.bytes = atomic_load_explicit(&m->bytes, memory_order_relaxed),
		.batches = atomic_load_explicit(&m->batches, memory_order_relaxed),
		.reordered = atomic_load_explicit(&m->reordered, memory_order_relaxed),
		.resync_done_bytes = atomic_load_explicit(&m->resync_done, memory_order_relaxed),
		.resync_total_bytes = atomic_load_explicit(&m->resync_total, memory_order_relaxed),
		.resync_installed_bytes =
			atomic_load_explicit(&m->resync_installed, memory_order_relaxed),
		.lanes = atomic_load_explicit(&m->lanes, memory_order_relaxed),
		.listen_port = m->listen_port,
	};

	pthread_mutex_lock(&m->lock);
	s.connected = m->wake_ep != NULL;
	s.resyncing = m->resyncing;
	s.in_sync = m->in_sync;
	s.failed = m->failed;
	s.epoch = m->session_epoch;
	memcpy(s.primary, m->primary, sizeof(s.primary));
	memcpy(s.transport, m->transport, sizeof(s.transport));
	s.mtu_bytes = m->mtu_bytes;
	memcpy(s.mtu_note, m->mtu_note, sizeof(s.mtu_note));
	memcpy(s.last_error, m->last_error, sizeof(s.last_error));
	pthread_mutex_unlock(&m->lock);
	*ret_stats = s;
}
