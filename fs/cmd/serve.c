/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's life: see serve.h. SIGTERM and SIGINT, the shutdown command and an umount(8) all end
 * the same way: no new requests, what is queued committed, a checkpoint, links closed, exit 0. Main
 * thread.
 */
#include "fs/cmd/serve.h"

#include "common/clock.h"
#include "common/diag.h"
#include "fs/admin/control.h"
#include "fs/admin/metrics_http.h"
#include "fs/cmd/cmd.h"
#include "fs/cmd/daemon.h"
#include "fs/fuse/fuse_session.h"
#include "fs/fuse/mirror_view.h"
#include "fs/fuse/mountpoint.h"
#include "fs/node/node_tuner.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

/* for processes that still use a mount being taken away */
#define SERVE_GRACE_NS (2 * NSEC_PER_SEC)
#define SERVE_FILES_MIN 256

struct serve {
	const struct serve_args *args;
	struct node *node;
	struct fs *fs;
	struct view *view;
	struct control *control;
	struct metrics_http *http;
	int signal_fd;
	char why[NODE_WHY_BYTES];
};

static int serve_signals(struct serve *s)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->signal_fd < 0 ? -errno : 0;
}

/*
 * Memory segments, lanes and logs each take descriptors: better refused here than in the middle of
 * a resync. The log's library takes paths, so its pools are opened through /proc/self/fd.
 */
static int serve_check_machine(struct serve *s)
{
	struct rlimit files;

	if (access("/proc/self/fd", X_OK) != 0) {
		snprintf(s->why, sizeof(s->why),
			 "/proc is needed and is not there: mount -t proc proc /proc");
		return -ENOENT;
	}
	if (getrlimit(RLIMIT_NOFILE, &files) != 0)
		return -errno;
	if (files.rlim_max < SERVE_FILES_MIN) {
		snprintf(
			s->why, sizeof(s->why),
			"only %llu open files are allowed; raise the limit (ulimit -n) to at least "
			"%d",
			(unsigned long long)files.rlim_max, SERVE_FILES_MIN);
		return -EMFILE;
	}
	files.rlim_cur = files.rlim_max;
	return setrlimit(RLIMIT_NOFILE, &files) == 0 ? 0 : -errno;
}

static void serve_say_recovered(struct serve *s)
{
	const struct node *n = s->node;

	if (!n->recovered.replayed && !n->recovered.torn_tail && !n->recovered.orphans)
		return;
	diag_info("%s: recovered: checkpoint %" PRIu64 " (LSN %" PRIu64 ", %" PRIu64
		  " ms), %" PRIu64 " records replayed in %" PRIu64 " ms%s%s%s",
		  n->vol->path, n->recovered.ckpt_number, n->recovered.ckpt_lsn,
		  (uint64_t)(n->recovered.load_ns / NSEC_PER_MSEC), n->recovered.replayed,
		  (uint64_t)(n->recovered.replay_ns / NSEC_PER_MSEC),
		  n->recovered.taken_in_bytes ? ", some from behind the log's own end" : "",
		  n->recovered.torn_tail ? ", an unfinished record at the end dropped" : "",
		  n->recovered.orphans ? ", unlinked files freed" : "");
}

/* The file system, and with it what the replication side calls into. */
static int serve_open_fs(struct serve *s)
{
	int err = fs_create(s->node, &s->fs);

	if (!err && s->node->commit) {
		s->node->recovered.orphans = fs_recover_orphans(s->fs);
		fs_own_root(s->fs);
	} else if (!err) {
		err = fs_mount(s->fs, s->args->mountpoint, s->why);
		if (err)
			return err;
		err = view_create(s->fs, &s->view);
		s->node->view = s->view;
	}
	if (err)
		snprintf(s->why, sizeof(s->why), "cannot start: %s", strerror(-err));
	return err;
}

/* A given address that can't be had ends the start. */
static int serve_open_metrics(struct serve *s)
{
	char why[OPTIONS_WHY_BYTES] = "";
	int err = metrics_http_open(&s->args->opt.metrics, &s->http, why);

	if (err)
		snprintf(s->why, sizeof(s->why), "%s", why[0] ? why : strerror(-err));
	else if (why[0] && !s->http)
		diag_warn("%s", why);
	return err;
}

static int serve_start_metrics(struct serve *s)
{
	int err = s->http ? metrics_http_start(s->http, s->node->metrics,
						     &metrics_http_usual) : 0;

	if (err)
		snprintf(s->why, sizeof(s->why), "cannot serve metrics: %s", strerror(-err));
	else if (s->http)
		s->node->metrics_address = metrics_http_address(s->http);
	return err;
}

/* A signal is pending, or the command that waited for the daemon is gone. */
static bool serve_interrupted(void *ctx)
{
	struct serve *s = ctx;
	struct pollfd p = { .fd = s->signal_fd, .events = POLLIN };

	return daemon_abandoned() || poll(&p, 1, 0) == 1;
}

static int serve_open(struct serve *s)
{
	const struct serve_args *a = s->args;
	bool primary = a->opt.role == OPTIONS_MOUNT;
	int err = node_open(&a->opt, a->volume, NULL, &s->node, s->why);

	if (!err && primary)
		err = serve_open_metrics(s);
	if (!err && primary) {
		s->node->interrupted = serve_interrupted;
		s->node->interrupted_ctx = s;
		err = node_start_primary(s->node, s->why);
	}
	if (!err && serve_interrupted(s)) {
		snprintf(s->why, sizeof(s->why), "%s: interrupted before it served", a->volume);
		err = -EINTR;
	}
	if (!err && a->mountpoint[0])
		err = serve_open_fs(s);
	if (!err && primary)
		err = fs_mount(s->fs, a->mountpoint, s->why);
	if (!err && !primary)
		err = node_start_mirror(s->node, s->why);
	if (!err && !primary) /* after listen=: the default port steps aside for that */
		err = serve_open_metrics(s);
	if (!err)
		err = serve_start_metrics(s);
	if (!err && primary)
		err = node_tuner_start(s->node, NULL, s->why, sizeof(s->why));
	if (!err)
		err = control_start(s->node, s->fs, &s->control, s->why);
	if (!err && s->fs && (err = fs_serve(s->fs)) != 0)
		snprintf(s->why, sizeof(s->why), "cannot start the workers: %s", strerror(-err));
	return err;
}

/* Until a signal, a shutdown command or the end of the mount. */
static void serve_wait(struct serve *s)
{
	struct pollfd fds[3] = {
		{ .fd = s->signal_fd, .events = POLLIN },
		{ .fd = control_shutdown_fd(s->control), .events = POLLIN },
		{ .fd = s->fs ? s->fs->ended_fd : -1, .events = POLLIN },
	};

	while (poll(fds, 3, -1) <= 0)
		continue;
	if (fds[0].revents)
		diag_info("%s: stopping on a signal", s->node->vol->path);
}

static int serve_close(struct serve *s)
{
	char why[NODE_WHY_BYTES];
	int err = 0, farewell_fd;

	if (s->fs && s->fs->mountpoint && fs_unmount(s->fs, false) == -EBUSY) {
		diag_warn("%s was in use and is taken away from under its users",
			  s->fs->mountpoint);
		fs_unmount(s->fs, true);
	}
	/* first what may wait in the kernel for a request that is to be answered */
	view_stop(s->view);
	if (s->fs)
		doubt_quiet(s->fs->doubt);
	if (s->fs)
		fs_stop(s->fs, SERVE_GRACE_NS);
	farewell_fd = control_stop(s->control); /* its threads look at what node_stop takes down */
	metrics_http_stop(s->http);
	if (s->node)
		err = node_stop(s->node);
	if (err) {
		snprintf(why, sizeof(why),
			 "%.400s: the last checkpoint failed: %s; the log has everything",
			 s->node->vol->path, strerror(-err));
		diag_error("%s", why);
	}
	control_farewell(farewell_fd, err ? why : NULL);
	if (view_destroy(s->view) == 0)
		fs_destroy(s->fs);
	node_close(s->node);
	close(s->signal_fd);
	return err;
}

int serve_run(void *args)
{
	struct serve s = { .args = args, .signal_fd = -1 };
	int err = serve_signals(&s);

	umask(077); /* the caller's may take our own rights away; requests bring theirs */
	if (!err)
		err = serve_check_machine(&s);
	if (!err)
		err = serve_open(&s);
	if (err) {
		diag_error("%s", s.why[0] ? s.why : strerror(-err));
		serve_close(&s);
		return CMD_FAILED;
	}
	serve_say_recovered(&s);
	daemon_ready();
	serve_wait(&s);
	return serve_close(&s) ? CMD_FAILED : CMD_OK;
}
