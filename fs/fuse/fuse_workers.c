/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads that serve FUSE requests ("kv-fuse-N"): each reads a request and runs its handler. A
 * handler may wait only for log room; when all do, a spare worker starts, so that reads and deletes
 * go on.
 */
#include "fs/fuse/fuse_ring.h"
#include "fs/fuse/fuse_session.h"

#include "common/clock.h"
#include "common/diag.h"
#include "common/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <linux/fuse.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#define FS_KICK_NS (10 * NSEC_PER_MSEC) /* between signals to a worker that is to leave */
#define FS_KICK_SIGNAL SIGUSR1
#define FS_LOOKS_A_TURN 8 /* for acknowledgements, between two looks for requests */

int fs_drain_device(struct fs *fs)
{
	int res = -EAGAIN;
	bool drive;

	fuse_ring_may_block();
	pthread_mutex_lock(&fs->device_lock);
	fs_drive_hold();
	while (fs->rings_alone &&
	       (res = fuse_session_receive_buf(fs->se, &fs->device_buf)) > 0) {
		const struct fuse_in_header *in = fs->device_buf.mem;

		/* of a request that came by a ring: libfuse would look for it under the kernel's
		 * number */
		if (in->opcode == FUSE_INTERRUPT)
			continue;
		fs_metrics_begin(&fs->metrics, &fs->device_buf, 0);
		fuse_session_process_buf(fs->se, &fs->device_buf);
		fs_metrics_end(&fs->metrics);
	}
	drive = fs_drive_release();
	pthread_mutex_unlock(&fs->device_lock);
	if (drive)
		fs_drive(fs);
	return res;
}

static void fs_let_kick(void)
{
	sigset_t kick;

	sigemptyset(&kick);
	sigaddset(&kick, FS_KICK_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &kick, NULL);
}

/* While records are on their way and no request is here: looks for their acknowledgements. A worker
 * beside others may find the request taken: it must not count on being back soon. */
static void fs_worker_help(struct fs *fs, struct primary_helper *helper)
{
	struct pollfd p = { .fd = fuse_session_fd(fs->se), .events = POLLIN };
	bool requests = false;
	unsigned looks = 0;

	helper->primary = fs->node->primary;
	if (!primary_help_begin(helper))
		return;
	while (!requests && primary_help(helper)) {
		if (++looks % FS_LOOKS_A_TURN)
			continue;
		requests = poll(&p, 1, 0) != 0;
		sched_yield(); /* the mirror may be waiting for its turn */
	}
	primary_help_end(helper, requests && atomic_load(&fs->workers_running) == 1);
}

static void *fs_worker(void *arg)
{
	struct fs *fs = arg;
	struct fuse_buf buf = { .mem = NULL };
	struct primary_helper helper = { .primary = NULL };

	fs_let_kick();
	while (!fs->stopping && !fuse_session_exited(fs->se)) {
		int res;

		fs_worker_help(fs, &helper);
		res = fuse_session_receive_buf(fs->se, &buf);
		if (res > 0) {
			fs_metrics_begin(&fs->metrics, &buf, 0);
			fuse_session_process_buf(fs->se, &buf);
			fs_metrics_end(&fs->metrics);
		} else if (res != -EINTR) {
			break;
		}
	}
	primary_helper_leave(&helper);
	free(buf.mem);
	fs_worker_left(fs);
	return NULL;
}

/* The one worker of the device beside rings; without them after all, one of several. */
static void *fs_device_worker(void *arg)
{
	struct fs *fs = arg;
	struct pollfd p = { .fd = fuse_session_fd(fs->se), .events = POLLIN };
	int res = -EAGAIN;

	fs_let_kick();
	while (fs->rings_alone && !fs->stopping && (res == -EINTR || res == -EAGAIN)) {
		poll(&p, 1, -1);
		res = fs_drain_device(fs);
	}
	if (!fs->rings_alone)
		return fs_worker(fs);
	fs_worker_left(fs);
	return NULL;
}

void fs_worker_left(struct fs *fs)
{
	uint64_t one = 1;

	if (atomic_fetch_sub(&fs->workers_running, 1) == 1 &&
	    write(fs->ended_fd, &one, sizeof(one)) < 0)
		diag_debug("eventfd: %s", strerror(errno));
}

static void fs_kicked(int sig)
{
}

static int fs_worker_start_locked(struct fs *fs)
{
	char name[24];
	int err;

	snprintf(name, sizeof(name), "kv-fuse-%u", fs->worker_count);
	atomic_fetch_add(&fs->workers_running, 1);
	err = thread_start(&fs->workers[fs->worker_count], name,
			   fs->rings_alone ? fs_device_worker : fs_worker, fs);
	if (err)
		atomic_fetch_sub(&fs->workers_running, 1);
	else
		fs->worker_count++;
	return err;
}

static bool fs_log_is_memory(const struct fs *fs)
{
	struct statfs st;

	return oplog_is_pmem(fs->node->log) ||
	       (fstatfs(fs->node->vol->dirfd, &st) == 0 && st.f_type == TMPFS_MAGIC);
}

static unsigned fs_workers_wanted(const struct fs *fs)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (fs->node->opt->threads)
		return fs->node->opt->threads;
	/* An append takes a microsecond there: a worker to two processors leaves room for the
	 * clients (measured on two: a third more puts). On a disk workers wait for the medium, and
	 * more of them share an append. */
	if (fs_log_is_memory(fs))
		cpus = cpus < 4 ? 1 : cpus / 2;
	else if (cpus < 2)
		cpus = 2;
	return cpus > FS_WORKERS_MAX ? FS_WORKERS_MAX : (unsigned)cpus;
}

static int fs_start_workers(struct fs *fs, unsigned workers)
{
	int err = 0;

	pthread_mutex_lock(&fs->workers_lock);
	fs->served = true;
	while (!err && fs->worker_count < workers)
		err = fs_worker_start_locked(fs);
	if (fs->worker_count)
		err = 0;
	pthread_mutex_unlock(&fs->workers_lock);
	return err;
}

/* A worker for the device answers the first request of all; then the kernel may go over
 * to the rings. */
static int fs_serve_rings(struct fs *fs)
{
	int fd = fuse_session_fd(fs->se), flags = fcntl(fd, F_GETFL);
	int err = fcntl(fd, F_SETFL, flags | O_NONBLOCK) ? -errno : 0;

	fs->rings_alone = true;
	if (!err)
		err = fs_start_workers(fs, 1);
	if (err)
		return err;
	err = fuse_rings_begin(fs->rings);
	if (err > 0) {
		fs->ring_count = (unsigned)err;
		return 0;
	}
	/* the device again, for everything; under the lock, so that no drain reads on and blocks */
	pthread_mutex_lock(&fs->device_lock);
	fs->rings_alone = false;
	fcntl(fd, F_SETFL, flags);
	pthread_mutex_unlock(&fs->device_lock);
	fs->rings_why = "refused by the kernel";
	diag_debug("FUSE over io_uring: %s", strerror(-err));
	return fs_start_workers(fs, fs_workers_wanted(fs));
}

int fs_serve(struct fs *fs)
{
	struct sigaction sa = { .sa_handler = fs_kicked }; /* no SA_RESTART: it ends a read */
	int err;

	sigaction(FS_KICK_SIGNAL, &sa, NULL);
	if (fs->node->opt->uring == OPTIONS_URING_OFF)
		fs->rings_why = "off by option";
	else if (fuse_rings_offered(fs) && (err = fuse_rings_create(fs, &fs->rings)) != 0) {
		fs->rings_why = "no ring can be made here";
		diag_debug("io_uring: %s", strerror(-err));
	}
	return fs->rings ? fs_serve_rings(fs) : fs_start_workers(fs, fs_workers_wanted(fs));
}

void fs_worker_waits(struct fs *fs)
{
	pthread_mutex_lock(&fs->workers_lock);
	fs->workers_waiting++;
	/* beside rings nobody who waits reads the device */
	if (!fs->rings_alone && fs->workers_waiting == fs->worker_count && !fs->stopping &&
	    fs->worker_count < FS_WORKERS_MAX + FS_SPARES_MAX)
		/* without it requests wait for this one's deadline */
		(void)fs_worker_start_locked(fs);
	pthread_mutex_unlock(&fs->workers_lock);
}

void fs_worker_goes_on(struct fs *fs)
{
	pthread_mutex_lock(&fs->workers_lock);
	fs->workers_waiting--;
	pthread_mutex_unlock(&fs->workers_lock);
}

static void fs_join(struct fs *fs, pthread_t thread, uint64_t grace_until_ns)
{
	struct timespec until;

	for (;;) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += FS_KICK_NS;
		until.tv_sec += until.tv_nsec / (long)NSEC_PER_SEC;
		until.tv_nsec %= (long)NSEC_PER_SEC;
		if (pthread_timedjoin_np(thread, NULL, &until) == 0)
			return;
		if (clock_mono_ns() < grace_until_ns)
			continue;
		fs->stopping = true;
		pthread_kill(thread, FS_KICK_SIGNAL);
	}
}

void fs_stop(struct fs *fs, uint64_t grace_ns)
{
	uint64_t until = clock_mono_ns() + grace_ns;
	unsigned joined = 0, count;

	/* a worker that waits for log room may start a spare while we join: look again */
	for (;;) {
		pthread_mutex_lock(&fs->workers_lock);
		count = fs->worker_count;
		pthread_mutex_unlock(&fs->workers_lock);
		if (joined == count)
			break;
		while (joined < count)
			fs_join(fs, fs->workers[joined++], until);
	}
	if (fs->rings) {
		bool now = fs->stopping;

		fs->stopping = true; /* nobody is there any more for what takes long */
		fuse_rings_stop(fs->rings, now);
	}
}
