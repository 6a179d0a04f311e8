/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The FUSE session: see fuse_session.h.
 *
 * Flags (all changes come through this mount, so on the primary the kernel may keep what it knows):
 * open, opendir, flush and create answer ENOSYS once and are never asked again (create becomes
 * MKNOD: one request and no RELEASE); entries, absent names, attributes and pages stay cached; no
 * writeback cache (data would sit unreplicated); locks are the kernel's own. A mirror's view caches
 * nothing by time and revalidates pages.
 */
#include "fs/fuse/fuse_session.h"

#include "common/clock.h"
#include "common/diag.h"
#include "fs/fuse/fuse_ring.h"
#include "fs/fuse/mountpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define FS_BACKGROUND_MAX 128

static _Thread_local char fs_fuse_message[256]; /* libfuse's last word, for why */

__attribute__((format(printf, 2, 0)))
static void fs_fuse_log(enum fuse_log_level level, const char *fmt, va_list ap)
{
	int len = vsnprintf(fs_fuse_message, sizeof(fs_fuse_message), fmt, ap);

	if (len > 0)
		fs_fuse_message[strcspn(fs_fuse_message, "\n")] = '\0';
	diag_debug("libfuse: %s", fs_fuse_message);
}

static void fs_init(void *userdata, struct fuse_conn_info *conn)
{
	struct fs *fs = userdata;
	unsigned off = FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_SPLICE_READ |
		       FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE | FUSE_CAP_POSIX_LOCKS |
		       FUSE_CAP_FLOCK_LOCKS | FUSE_CAP_HANDLE_KILLPRIV | FUSE_CAP_POSIX_ACL |
		       FUSE_CAP_EXPORT_SUPPORT | FUSE_CAP_DONT_MASK | FUSE_CAP_AUTO_INVAL_DATA;
	unsigned on = FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO | FUSE_CAP_PARALLEL_DIROPS |
		      FUSE_CAP_NO_OPEN_SUPPORT | FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO;

	on |= fs->mirror ? FUSE_CAP_AUTO_INVAL_DATA :
			   FUSE_CAP_NO_OPENDIR_SUPPORT | FUSE_CAP_CACHE_SYMLINKS;
	conn->want = (conn->want & ~off) | (on & conn->capable);
	conn->max_write = RECORD_DATA_MAX;
	conn->max_background = FS_BACKGROUND_MAX;
	conn->congestion_threshold = FS_BACKGROUND_MAX * 3 / 4;
	conn->time_gran = 1;
}

static void fs_nosys(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fuse_reply_err(req, ENOSYS);
}

static void fs_nosys_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
			    struct fuse_file_info *fi)
{
	fuse_reply_err(req, fs_of(req)->read_only ? EROFS : ENOSYS);
}

/* The view's directories change behind the kernel's back: a handle without the listing cache. */
static void fs_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (!fs_of(req)->mirror) {
		fuse_reply_err(req, ENOSYS);
		return;
	}
	fi->cache_readdir = 0;
	fi->keep_cache = 0;
	fuse_reply_open(req, fi);
}

static const struct fuse_lowlevel_ops fs_lowlevel_ops = {
	.init = fs_init,
	.lookup = fs_lookup,
	.forget = fs_forget,
	.forget_multi = fs_forget_multi,
	.getattr = fs_getattr,
	.setattr = fs_setattr,
	.readlink = fs_readlink,
	.mknod = fs_mknod,
	.mkdir = fs_mkdir,
	.unlink = fs_unlink,
	.rmdir = fs_rmdir,
	.symlink = fs_symlink,
	.rename = fs_rename,
	.link = fs_link,
	.open = fs_nosys,
	.opendir = fs_opendir,
	.flush = fs_nosys,
	.create = fs_nosys_create,
	.read = fs_read,
	.write = fs_write,
	.fsync = fs_fsync,
	.fsyncdir = fs_fsync,
	.readdir = fs_readdir,
	.readdirplus = fs_readdirplus,
	.statfs = fs_statfs,
	.setxattr = fs_setxattr,
	.getxattr = fs_getxattr,
	.listxattr = fs_listxattr,
	.removexattr = fs_removexattr,
	.fallocate = fs_fallocate,
	.copy_file_range = fs_copy_file_range,
	.lseek = fs_lseek,
};

int fs_create(struct node *n, struct fs **ret_fs)
{
	struct fs *fs = calloc(1, sizeof(*fs));
	int err;

	if (!fs)
		return -ENOMEM;
	fs->node = n;
	fs->commit = n->commit;
	fs->mirror = n->commit == NULL;
	fs->read_only = fs->mirror || n->opt->ro;
	fs->cache_seconds = fs->mirror ? 0.0 : FS_CACHE_SECONDS;
	fs->timeout_ns = n->opt->timeout_s * NSEC_PER_SEC;
	fs->xattr = n->opt->xattr;
	fs->noatime = n->opt->noatime;
	fs->nodiratime = n->opt->nodiratime;
	pthread_mutex_init(&fs->workers_lock, NULL);
	pthread_mutex_init(&fs->device_lock, NULL);
	fs->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fs->ended_fd < 0) {
		err = -errno;
		free(fs);
		return err;
	}
	fs_metrics_init(&fs->metrics, n->metrics);
	err = fs->mirror ? 0 : doubt_create(fs->metrics.doubt_told, &fs->doubt);
	if (err) {
		metrics_remove_collector(n->metrics, &fs->metrics);
		close(fs->ended_fd);
		free(fs);
		return err;
	}
	*ret_fs = fs;
	return 0;
}

struct fs_orphans {
	uint64_t *inos;
	size_t count, cap;
};

static void fs_collect_orphan(void *ctx, uint64_t ino)
{
	struct fs_orphans *o = ctx;

	if (o->count == o->cap) {
		size_t cap = o->cap ? o->cap * 2 : 64;
		uint64_t *inos = realloc(o->inos, cap * sizeof(*inos));

		if (!inos)
			return; /* stays until the next mount */
		o->inos = inos;
		o->cap = cap;
	}
	o->inos[o->count++] = ino;
}

/* What no name and no process holds. */
static unsigned fs_free_orphans(struct fs *fs)
{
	struct fs_orphans orphans = { .count = 0 };
	struct store *st;

	if (fs->read_only)
		return 0;
	st = fs_lock(fs);
	store_each_orphan_locked(st, fs_collect_orphan, &orphans);
	fs_unlock(fs, st);
	fs_free_inodes(fs, orphans.inos, (unsigned)orphans.count);
	free(orphans.inos);
	return (unsigned)orphans.count;
}

/* Room was made, perhaps. */
static void fs_ckpt_made(void *ctx)
{
	struct fs *fs = ctx;

	if (atomic_exchange_explicit(&fs->orphans_left, false, memory_order_relaxed))
		(void)fs_free_orphans(fs);
}

unsigned fs_recover_orphans(struct fs *fs)
{
	struct node *n = fs->node;

	pthread_mutex_lock(&n->lock); /* kv-ckpt runs already */
	n->ckpt_made = fs_ckpt_made;
	n->ckpt_made_ctx = fs;
	pthread_mutex_unlock(&n->lock);
	return fs_free_orphans(fs);
}

void fs_own_root(struct fs *fs)
{
	struct record r = {
		.opcode = RECORD_SETATTR,
		.ino = STORE_ROOT_INO,
		.timestamp_ns = clock_real_ns(),
		.u.setattr = { .valid_mask = RECORD_SET_UID | RECORD_SET_GID,
			       .uid = geteuid(),
			       .gid = getegid() },
	};
	struct store *st;
	bool is_new;

	if (fs->read_only || geteuid() == 0)
		return;
	st = fs_lock(fs);
	is_new = store_lsn_locked(st) == 0;
	fs_unlock(fs, st);
	if (!is_new)
		return;
	fs_submit(fs, NULL, FS_REPLY_NONE, &r, 0, NULL, NULL);
	fs_drive(fs);
}

/* text with what separates -o options escaped. */
static void fs_escape(const char *text, char *out, size_t cap)
{
	size_t n = 0;

	for (; *text && n + 3 < cap; text++) {
		if (*text == ',' || *text == '\\')
			out[n++] = '\\';
		out[n++] = *text;
	}
	out[n] = '\0';
}

static struct fuse_session *fs_new_session(struct fs *fs)
{
	char source[8192], opts[9216];
	char *argv[] = { (char *)"kvfs", (char *)"-o", opts, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	struct fuse_session *se;

	fs_escape(fs->node->vol->path, source, sizeof(source));
	snprintf(opts, sizeof(opts), "fsname=%s,subtype=kvfs,default_permissions%s%s%s%s", source,
		 fs->node->opt->allow_other ? ",allow_other" : "", fs->read_only ? ",ro" : "",
		 fs->noatime ? ",noatime" : "", fs->node->opt->kernel);
	se = fuse_session_new(&args, &fs_lowlevel_ops, sizeof(fs_lowlevel_ops), fs);
	fuse_opt_free_args(&args);
	return se;
}

/* What fusermount3 (for ordinary users) wrote on what it took for stderr, as
 * libfuse's last word. */
static void fs_take_message(int fd)
{
	ssize_t len = pread(fd, fs_fuse_message, sizeof(fs_fuse_message) - 1, 0);
	const char *prefix = "fusermount3: ";

	if (len <= 0)
		return;
	fs_fuse_message[len] = '\0';
	fs_fuse_message[strcspn(fs_fuse_message, "\n")] = '\0';
	if (strncmp(fs_fuse_message, prefix, strlen(prefix)) == 0)
		memmove(fs_fuse_message, fs_fuse_message + strlen(prefix),
			strlen(fs_fuse_message + strlen(prefix)) + 1);
}

/* fuse_session_mount() with what its helper says kept for the one line that we print. */
static int fs_session_mount(struct fs *fs, const char *mountpoint)
{
	int said = memfd_create("fusermount3", MFD_CLOEXEC),
	    kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	int err;

	if (said >= 0 && kept >= 0)
		dup2(said, STDERR_FILENO);
	errno = 0;
	err = fuse_session_mount(fs->se, mountpoint) ? -(errno ? errno : EIO) : 0;
	if (said >= 0 && kept >= 0)
		dup2(kept, STDERR_FILENO);
	if (err && said >= 0)
		fs_take_message(said);
	if (kept >= 0)
		close(kept);
	if (said >= 0)
		close(said);
	return err;
}

int fs_mount(struct fs *fs, const char *mountpoint, char why[NODE_WHY_BYTES])
{
	int err;

	fuse_set_log_func(fs_fuse_log);
	fs_fuse_message[0] = '\0';
	fs->se = fs_new_session(fs);
	if (!fs->se) {
		snprintf(why, NODE_WHY_BYTES, "cannot make a FUSE session: %s",
			 fs_fuse_message[0] ? fs_fuse_message : "no memory");
		return -EINVAL;
	}
	fs->mountpoint = strdup(mountpoint);
	err = fs->mountpoint ? fs_session_mount(fs, mountpoint) : -ENOMEM;
	if (err) {
		snprintf(why, NODE_WHY_BYTES, "cannot mount on %s: %s%s", mountpoint,
			 fs_fuse_message[0] ? fs_fuse_message : strerror(-err),
			 access("/dev/fuse", F_OK) == 0 ?
				 "" : " (there is no /dev/fuse: modprobe fuse)");
		free(fs->mountpoint);
		fs->mountpoint = NULL;
		return -EIO;
	}
	if (fs->doubt)
		doubt_set_session(fs->doubt, fs->se);
	return 0;
}

int fs_unmount(struct fs *fs, bool lazy)
{
	int err;

	if (!fs->mountpoint || (fs->served && fs->workers_running == 0))
		return 0; /* the kernel has ended the session already */
	err = mountpoint_umount(fs->mountpoint, lazy);
	return err == -EINVAL || err == -ENOENT ? 0 : err;
}

void fs_destroy(struct fs *fs)
{
	if (!fs)
		return;
	if (doubt_destroy(fs->doubt) != 0)
		return; /* the process is about to end, and takes them along */
	if (fs->se)
		fuse_session_destroy(fs->se);
	fuse_rings_destroy(fs->rings);
	if (fs->ended_fd >= 0)
		close(fs->ended_fd);
	metrics_remove_collector(fs->node->metrics, &fs->metrics);
	free(fs->device_buf.mem);
	pthread_mutex_destroy(&fs->device_lock);
	pthread_mutex_destroy(&fs->workers_lock);
	free(fs->mountpoint);
	free(fs);
}
