/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_MOUNTPOINT_H
#define KVFS_FS_MOUNTPOINT_H
/* What is mounted where, from /proc/self/mountinfo, without touching a mount that may
 * hang. Main thread. */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct mount_info {
	char point[PATH_MAX];
	char source[PATH_MAX];
	char type[64];
};
#define MOUNT_TYPE_KVFS "fuse.kvfs"

/* path made absolute, without following its last component into a mount. -ENOENT, -ENAMETOOLONG. */
int mountpoint_absolute(const char *path, char ret_abs[PATH_MAX]);

/* The topmost mount on exactly this absolute path. -ENOENT: none. */
int mountpoint_find(const char *abs, struct mount_info *ret_info);

/* A kvfs mount whose daemon is dead. Asks the daemon if there is one. */
bool mountpoint_is_stale(const struct mount_info *info);

/* Takes the mount at abs away; as an ordinary user by fusermount3. -EBUSY, -EINVAL (no
 * mount), -EPERM, … */
int mountpoint_umount(const char *abs, bool lazy);

/* -EINVAL with why: a mount at abs would hide the volume, or lie in it. Both paths are resolved. */
int mountpoint_check_volume(const char *abs, const char *volume, char *why, size_t why_cap);

/* Whether path can be mounted on; a stale mount of a dead kvfs there is taken away first.
 * -errno with why. */
int mountpoint_check(const char *path, char ret_abs[PATH_MAX], char *why, size_t why_cap);

/* The volume's directory for WHERE, a volume or a mount point. -errno with why. */
int mountpoint_volume(const char *where, char ret_volume[PATH_MAX], char *why, size_t why_cap);

#endif
