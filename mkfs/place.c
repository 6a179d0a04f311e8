/* SPDX-License-Identifier: Apache-2.0 */
/* What is where a volume is to be made: see place.h. */
#include "mkfs/place.h"

#include "common/because.h"
#include "log/volume.h"
#include "mkfs/device.h"
#include "mkfs/storage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

const char *const place_volume_files[] = {
	VOLUME_SUPERBLOCK_NAME, VOLUME_KEY_NAME, "log.0", "log.1", "ckpt", VOLUME_CONTROL_NAME,
	VOLUME_KEY_NAME ".tmp", NULL
};

const char *place_medium_name(enum place_medium m)
{
	return m == PLACE_PMEM ? "pmem" : m == PLACE_MEMORY ? "memory" : "file";
}

const char *place_medium_text(enum place_medium m)
{
	switch (m) {
	case PLACE_PMEM:
		return "real persistent memory (DAX): durable by cache flushes";
	case PLACE_MEMORY:
		return "memory only, not persistent: everything is lost at reboot or unmount";
	case PLACE_FILE:
	default:
		return "an ordinary file, not persistent memory: durable by msync, slower";
	}
}

static bool is_volume_file(const char *name)
{
	for (size_t i = 0; place_volume_files[i]; i++) {
		if (strcmp(name, place_volume_files[i]) == 0)
			return true;
	}
	return false;
}

/* Bytes that the entry and, for a directory, the files in it take. */
static uint64_t disk_bytes(int dirfd, const char *name)
{
	uint64_t bytes;
	struct stat st;
	struct dirent *e;
	DIR *d;
	int fd;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return 0;
	bytes = (uint64_t)st.st_blocks * 512;
	if (!S_ISDIR(st.st_mode))
		return bytes;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d)
		return bytes;
	while ((e = readdir(d))) {
		if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
			bytes += (uint64_t)st.st_blocks * 512;
	}
	closedir(d);
	return bytes;
}

/* Counts what is not a volume's own, and the bytes of what is. lost+found belongs to the disk. */
static int scan_entries(struct place *p, uint64_t *ret_own_bytes, unsigned *ret_own_files)
{
	int fd = openat(p->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d)
		return -errno;
	while ((e = readdir(d))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    strcmp(e->d_name, "lost+found") == 0)
			continue;
		if (is_volume_file(e->d_name)) {
			*ret_own_bytes += disk_bytes(fd, e->d_name);
			(*ret_own_files)++;
		} else {
			p->foreign_files++;
		}
	}
	closedir(d);
	return 0;
}

/* Says what the locked superblock file holds. */
static void judge_superblock(struct place *p)
{
	struct volume_super s;
	char uuid[VOLUME_UUID_TEXT_BYTES];
	unsigned copy;
	struct stat st;
	int err = volume_super_choose(p->lockfd, &s, &copy);

	p->content = PLACE_VOLUME;
	if (err == 0) {
		if (s.state == VOLUME_INCOMPLETE && s.promised_epoch == 0)
			p->content = PLACE_UNFINISHED;
		snprintf(p->what, sizeof(p->what), "%skvfs volume %s%s%s%s",
			 s.state == VOLUME_INCOMPLETE ? "an incomplete " : "the ",
			 volume_uuid_format(s.uuid, uuid), s.label[0] ? " (label '" : "", s.label,
			 s.label[0] ? "')" : "");
	} else if (err == -EPROTONOSUPPORT) {
		snprintf(p->what, sizeof(p->what), "a kvfs volume of another version");
	} else if (fstat(p->lockfd, &st) == 0 && st.st_size == 0) {
		p->content = PLACE_UNFINISHED; /* stopped before the first write */
	} else {
		snprintf(p->what, sizeof(p->what), "a kvfs volume with a damaged superblock");
	}
}

static int inspect_directory(struct place *p, const char **ret_why)
{
	uint64_t own_bytes = 0;
	unsigned own_files = 0;
	struct statvfs vfs;
	int err = volume_lock(p->dirfd, VOLUME_LOCK_WRITE, &p->lockfd);

	if (err == -EBUSY)
		return because(err, ret_why,
			       "%s: a volume in use by another kvfs mount, mirror, mkfs or "
			       "fsck; stop that first (-f does not help)",
			       p->path);
	if (err && err != -ENOENT)
		return because(err, ret_why, "%s/%s: %s", p->path, VOLUME_SUPERBLOCK_NAME,
			       strerror(-err));
	if (!err)
		judge_superblock(p);
	err = scan_entries(p, &own_bytes, &own_files);
	if (err)
		return because(err, ret_why, "%s: can't be listed: %s", p->path, strerror(-err));
	if (p->lockfd < 0)
		p->content = p->foreign_files || own_files ? PLACE_FOREIGN : PLACE_EMPTY;
	if (fstatvfs(p->dirfd, &vfs) != 0)
		return because(-errno, ret_why, "%s: free space is unknown: %s", p->path,
			       strerror(errno));
	if (faccessat(p->dirfd, ".", W_OK | X_OK, AT_EACCESS) != 0)
		return because(-errno, ret_why,
			       "%s: can't be written: %s; run as its owner or root, on a "
			       "file system mounted read-write",
			       p->path, strerror(errno));
	p->free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize + own_bytes;
	storage_fs_name(p->dirfd, p->fs_type, sizeof(p->fs_type), p->fs_source,
			sizeof(p->fs_source));
	p->medium = storage_new_files_are_dax(p->dirfd) ? PLACE_PMEM :
		    storage_is_tmpfs(p->dirfd) ? PLACE_MEMORY : PLACE_FILE;
	return 0;
}

/* The directory that an absent path is to be made in. */
static int inspect_parent(struct place *p, const char **ret_why)
{
	char *copy = strdup(p->path);
	const char *parent = copy ? dirname(copy) : NULL;
	struct place above = { .path = parent, .on = VOLUME_PLACE_NONE, .dirfd = -1, .lockfd = -1 };
	int err = -ENOMEM;

	if (!copy)
		return because(err, ret_why, "out of memory");
	above.on.dirfd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	above.dirfd = above.on.dirfd;
	if (above.dirfd < 0)
		err = because(-errno, ret_why,
			      "%s: can't be made: its parent directory %s: %s; make that "
			      "first",
			      p->path, parent, strerror(errno));
	else
		err = inspect_directory(&above, ret_why);
	if (!err) {
		struct statvfs vfs;

		above.content = PLACE_ABSENT;
		above.foreign_files = 0;
		if (fstatvfs(above.dirfd, &vfs) == 0) /* nothing there is ours to free */
			above.free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	}
	above.path = p->path;
	place_close(&above);
	free(copy);
	if (!err)
		*p = above;
	return err;
}

static int refuse_non_directory(const char *path, mode_t mode, const char **ret_why)
{
	char type[64] = "", holds[96] = "";

	if (S_ISREG(mode))
		storage_signature(path, type, sizeof(type));
	if (type[0])
		snprintf(holds, sizeof(holds), " (it holds: %s)", type);
	if (S_ISCHR(mode))
		return because(-ENOTDIR, ret_why,
			       "%s: a character device; a device-DAX can hold a log: "
			       "--log-device twice, with a directory for the rest",
			       path);
	return because(-ENOTDIR, ret_why,
		       "%s: a %s%s, not a directory; a volume is a directory, or a "
		       "/dev/pmemN",
		       path, S_ISREG(mode) ? "file" : "special file", holds);
}

/* A device of persistent memory: nothing is done to it yet. */
static int inspect_block(struct place *p, const char **ret_why)
{
	char holds[64];
	uint64_t bytes;
	int err = device_block_inspect(p->path, &bytes, holds, sizeof(holds), ret_why);

	if (err)
		return err;
	p->is_block = true;
	p->content = holds[0] ? PLACE_SIGNATURE : PLACE_EMPTY;
	snprintf(p->what, sizeof(p->what), "%s", holds);
	p->free_bytes = device_block_room(bytes);
	p->medium = PLACE_PMEM;
	snprintf(p->fs_type, sizeof(p->fs_type), "ext4");
	snprintf(p->fs_source, sizeof(p->fs_source), "%.127s", p->path);
	return 0;
}

int place_open(const char *path, struct place *ret_place, const char **ret_why)
{
	struct place p = { .path = path, .on = VOLUME_PLACE_NONE, .dirfd = -1, .lockfd = -1 };
	struct stat st;
	int err;

	if (stat(path, &st) != 0) {
		if (errno != ENOENT)
			return because(-errno, ret_why, "%s: %s", path, strerror(errno));
		if (lstat(path, &st) == 0)
			return because(-ENOENT, ret_why, "%s: a symbolic link that leads nowhere",
				       path);
		err = inspect_parent(&p, ret_why);
	} else if (S_ISBLK(st.st_mode)) {
		err = inspect_block(&p, ret_why);
	} else if (!S_ISDIR(st.st_mode)) {
		return refuse_non_directory(path, st.st_mode, ret_why);
	} else {
		err = volume_place_open(path, &p.on, ret_why);
		if (err)
			return err;
		p.dirfd = p.on.dirfd;
		err = inspect_directory(&p, ret_why);
	}
	if (err)
		place_close(&p);
	else
		*ret_place = p;
	return err;
}

void place_close(struct place *p)
{
	if (p->lockfd >= 0)
		close(p->lockfd);
	volume_place_close(&p->on);
	p->lockfd = p->dirfd = -1;
}

void place_abandon(struct place *p, bool was_absent)
{
	place_close(p);
	if (p->is_block)
		device_block_wipe(p->path);
	else if (was_absent)
		rmdir(p->path);
}

static int claim_block(struct place *p, const char **ret_why)
{
	struct statvfs vfs;
	int err = device_block_make(p->path, &p->on, ret_why);

	if (err) {
		if (err != -ENOENT) /* no mke2fs: nothing was touched */
			device_block_wipe(p->path);
		return err;
	}
	p->dirfd = p->on.dirfd;
	if (fstatvfs(p->dirfd, &vfs) == 0)
		p->free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	return 0;
}

static int claim_directory(struct place *p, const char **ret_why)
{
	if (mkdir(p->path, 0700) != 0)
		return because(-errno, ret_why, "%s: can't be made: %s", p->path, strerror(errno));
	p->on.dirfd = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->on.dirfd < 0)
		return because(-errno, ret_why, "%s: can't be opened: %s", p->path,
			       strerror(errno));
	p->dirfd = p->on.dirfd;
	return 0;
}

int place_claim(struct place *p, const char **ret_why)
{
	int err = 0;

	if (p->is_block)
		err = claim_block(p, ret_why);
	else if (p->dirfd < 0)
		err = claim_directory(p, ret_why);
	if (err)
		return err;
	if (p->lockfd >= 0)
		return 0;
	err = volume_lock(p->dirfd, VOLUME_LOCK_CREATE, &p->lockfd);
	if (err)
		return because(err, ret_why, "%s/%s: can't be made and locked: %s", p->path,
			       VOLUME_SUPERBLOCK_NAME, strerror(-err));
	return 0;
}
