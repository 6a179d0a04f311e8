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
#include "fs/fuse_session.h"

#include "common/clock.h"
#include "common/diag.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#define FS_BACKGROUND_MAX 128

extern char **environ;

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

	on |= fs->mirror ? FUSE_CAP_AUTO_INVAL_DATA : FUSE_CAP_NO_OPENDIR_SUPPORT | FUSE_CAP_CACHE_SYMLINKS;
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
	pthread_mutex_init(&fs->workers_lock, NULL);
	fs->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fs->ended_fd < 0) {
		int err = -errno;

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

unsigned fs_free_orphans(struct fs *fs)
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

int fs_mount(struct fs *fs, const char *mountpoint, char why[NODE_WHY_BYTES])
{
	fuse_set_log_func(fs_fuse_log);
	fs_fuse_message[0] = '\0';
	fs->se = fs_new_session(fs);
	if (!fs->se) {
		snprintf(why, NODE_WHY_BYTES, "cannot make a FUSE session: %s",
			 fs_fuse_message[0] ? fs_fuse_message : "no memory");
		return -EINVAL;
	}
	fs->mountpoint = strdup(mountpoint);
	errno = 0;
	if (!fs->mountpoint || fuse_session_mount(fs->se, mountpoint) != 0) {
		snprintf(why, NODE_WHY_BYTES, "cannot mount on %.200s: %s%s", mountpoint,
			 fs_fuse_message[0] ? fs_fuse_message : strerror(errno ? errno : EIO),
			 access("/dev/fuse", F_OK) == 0 ? "" : " (there is no /dev/fuse: modprobe fuse)");
		free(fs->mountpoint);
		fs->mountpoint = NULL;
		return -EIO;
	}
	return 0;
}

static int fs_run_fusermount(const char *mountpoint, bool lazy)
{
	char *argv[] = { (char *)"fusermount3", (char *)(lazy ? "-uqz" : "-uq"), (char *)"--",
			 (char *)(uintptr_t)mountpoint, NULL };
	pid_t pid;
	int status, err = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);

	if (err)
		return -err;
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EBUSY;
}

int fs_unmount(struct fs *fs, bool lazy)
{
	if (!fs->mountpoint || (fs->served && fs->workers_running == 0))
		return 0; /* the kernel has ended the session already */
	if (geteuid() != 0)
		return fs_run_fusermount(fs->mountpoint, lazy);
	if (umount2(fs->mountpoint, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
		return 0;
	return errno == EINVAL || errno == ENOENT ? 0 : -errno;
}

void fs_destroy(struct fs *fs)
{
	if (!fs)
		return;
	if (fs->se)
		fuse_session_destroy(fs->se);
	if (fs->ended_fd >= 0)
		close(fs->ended_fd);
	pthread_mutex_destroy(&fs->workers_lock);
	free(fs->mountpoint);
	free(fs);
}
