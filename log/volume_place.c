/* SPDX-License-Identifier: Apache-2.0 */
/* Directories, private mounts and device-DAXes: see volume_place.h. */
#include "log/volume_place.h"

#include "common/because.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* A number in /sys/dev/KIND/MAJOR:MINOR/NAME. */
static bool sys_read(const char *kind, dev_t dev, const char *name, uint64_t *ret_value)
{
	char path[96], text[32], *end;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/sys/dev/%s/%u:%u/%s", kind, major(dev), minor(dev), name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	*ret_value = strtoull(text, &end, 0);
	return end != text;
}

bool volume_place_is_block(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISBLK(st.st_mode);
}

bool volume_block_has_dax(const char *path)
{
	struct stat st;
	uint64_t dax = 0;

	return stat(path, &st) == 0 && S_ISBLK(st.st_mode) &&
	       sys_read("block", st.st_rdev, "queue/dax", &dax) && dax == 1;
}

bool volume_devdax(int fd, uint64_t *ret_bytes, uint64_t *ret_align)
{
	char path[96], target[PATH_MAX];
	uint64_t bytes, align;
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) != 0 || !S_ISCHR(st.st_mode))
		return false;
	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/subsystem", major(st.st_rdev),
		 minor(st.st_rdev));
	n = readlink(path, target, sizeof(target) - 1);
	if (n < 4)
		return false;
	target[n] = '\0';
	if (strcmp(target + n - 4, "/dax") != 0 || !sys_read("char", st.st_rdev, "size", &bytes)
	    || !bytes)
		return false;
	if (!sys_read("char", st.st_rdev, "align", &align) || align == 0)
		align = 2ULL << 20;
	*ret_bytes = bytes;
	*ret_align = align;
	return true;
}

/* Cache flushes are enough only where the kernel promises that a fault's metadata is on the
 * medium. */
static bool fd_maps_sync(int fd)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);

	if (p == MAP_FAILED)
		return false;
	munmap(p, page);
	return true;
}

bool volume_fd_is_dax(int fd)
{
	uint64_t bytes, align;
	struct statx stx;

	if (volume_devdax(fd, &bytes, &align))
		return true;
	return statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &stx) == 0 &&
	       (stx.stx_attributes_mask & STATX_ATTR_DAX) && (stx.stx_attributes &
	       STATX_ATTR_DAX) &&
	       fd_maps_sync(fd);
}

/* What the kernel said about a failed step: "e text" lines. */
static void fs_message(int fsfd, char *out, size_t cap)
{
	char text[256];
	ssize_t n = read(fsfd, text, sizeof(text) - 1);

	out[0] = '\0';
	if (n <= 2)
		return;
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	snprintf(out, cap, " (%.200s)", text + 2);
}

static int fs_mount(const char *type, const char *path, bool dax, int *ret_mountfd, char *message,
		    size_t cap)
{
	int fsfd = fsopen(type, FSOPEN_CLOEXEC), err = 0, fd = -1;

	message[0] = '\0';
	if (fsfd < 0)
		return -errno;
	if (fsconfig(fsfd, FSCONFIG_SET_STRING, "source", path, 0) != 0 ||
	    (dax && fsconfig(fsfd, FSCONFIG_SET_STRING, "dax", "always", 0) != 0) ||
	    fsconfig(fsfd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0)
		err = -errno;
	if (!err) {
		fd = fsmount(fsfd, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
			     MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOATIME);
		err = fd < 0 ? -errno : 0;
	}
	if (err)
		fs_message(fsfd, message, cap);
	close(fsfd);
	if (!err)
		*ret_mountfd = fd;
	return err;
}

static int mount_failed(const char *path, int err, const char *message, const char **ret_why)
{
	switch (err) {
	case -EPERM:
	case -EACCES:
		return because(err, ret_why, "%s: mounting it needs root", path);
	case -EINVAL:
	case -EUCLEAN:
		return because(-ENODATA, ret_why,
			       "%s: holds no file system that can be mounted%s; make a volume "
			       "there with mkfs.kvfs", path, message);
	case -EBUSY:
		return because(err, ret_why, "%s: in use by something else%s; stop that first",
			       path, message);
	default:
		return because(err, ret_why, "%s: its file system can't be mounted: %s%s", path,
			       strerror(-err), message);
	}
}

static bool new_files_are_dax(int dirfd)
{
	int fd = openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	bool dax = fd >= 0 && volume_fd_is_dax(fd);

	if (fd >= 0)
		close(fd);
	return dax;
}

int volume_block_mount(const char *path, bool dax, struct volume_place *ret_place,
		       const char **ret_why)
{
	static const char *const types[] = { "ext4", "xfs" };
	struct volume_place p = VOLUME_PLACE_NONE;
	char message[256] = "", text[256];
	int err = -EINVAL;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]) && p.mountfd < 0; i++) {
		int rc = fs_mount(types[i], path, dax, &p.mountfd, text, sizeof(text));

		if (i == 0 || (rc != -EINVAL && rc != -ENODEV)) { /* ENODEV: not in this kernel */
			err = rc;
			memcpy(message, text, sizeof(message));
		}
	}
	if (p.mountfd < 0)
		return mount_failed(path, err, message, ret_why);
	p.dirfd = openat(p.mountfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	err = p.dirfd < 0 ? -errno : 0;
	if (err)
		because(err, ret_why, "%s: its top directory can't be opened: %s", path,
			strerror(-err));
	else if (dax && !new_files_are_dax(p.dirfd))
		err = because(-ENODEV, ret_why,
			      "%s: the kernel gives no DAX for its file system (it must have "
			      "blocks of 4096 bytes; is it mounted elsewhere without dax?)", path);
	if (err)
		volume_place_close(&p);
	else
		*ret_place = p;
	return err;
}

static int open_failed(const char *path, int err, const char **ret_why)
{
	switch (err) {
	case -ENOENT:
		return because(err, ret_why,
			       "%s: no such directory; make a volume there with mkfs.kvfs", path);
	case -ENOTDIR:
		return because(err, ret_why,
			       "%s: not a directory; a volume is the directory that mkfs.kvfs "
			       "made, or a /dev/pmemN", path);
	case -EACCES:
	case -EPERM:
		return because(-EACCES, ret_why,
			       "%s: permission denied; run as the volume's owner or root", path);
	default:
		return because(err, ret_why, "%s: can't be opened: %s", path, strerror(-err));
	}
}

int volume_place_open(const char *path, struct volume_place *ret_place, const char **ret_why)
{
	struct volume_place p = VOLUME_PLACE_NONE;

	if (volume_place_is_block(path)) {
		if (!volume_block_has_dax(path))
			return because(-ENOTDIR, ret_why,
				       "%s: an ordinary block device, not persistent memory; "
				       "give the directory of a volume, or a /dev/pmemN with DAX",
				       path);
		return volume_block_mount(path, true, ret_place, ret_why);
	}
	p.dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p.dirfd < 0)
		return open_failed(path, -errno, ret_why);
	*ret_place = p;
	return 0;
}

void volume_place_close(struct volume_place *p)
{
	if (p->dirfd >= 0)
		close(p->dirfd);
	if (p->mountfd >= 0)
		close(p->mountfd);
	*p = (struct volume_place)VOLUME_PLACE_NONE;
}
