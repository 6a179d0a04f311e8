/* SPDX-License-Identifier: Apache-2.0 */
/* Mount points by /proc/self/mountinfo (proc(5)): see mountpoint.h. */
#include "fs/fuse/mountpoint.h"

#include "common/diag.h"
#include "log/volume_place.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOUNTPOINT_MISSING "does not exist; make it with mkdir"
#define MOUNTPOINT_ASK_MS 5000

extern char **environ;

int mountpoint_absolute(const char *path, char ret_abs[PATH_MAX])
{
	char copy[PATH_MAX], parent[PATH_MAX];
	size_t len = strlen(path);
	const char *base;

	while (len > 1 && path[len - 1] == '/')
		len--;
	if (len == 0 || len >= sizeof(copy))
		return len ? -ENAMETOOLONG : -ENOENT;
	memcpy(copy, path, len);
	copy[len] = '\0';
	base = strrchr(copy, '/') ? strrchr(copy, '/') + 1 : copy;
	if (strcmp(copy, "/") == 0 || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
		return realpath(copy, ret_abs) ? 0 : -errno;
	if (base == copy) {
		if (!realpath(".", parent))
			return -errno;
	} else {
		char dir[PATH_MAX];
		size_t dir_len = (size_t)(base - copy);

		memcpy(dir, copy, dir_len);
		dir[dir_len] = '\0';
		if (!realpath(dir, parent))
			return -errno;
	}
	if (snprintf(ret_abs, PATH_MAX, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, base) >=
	    PATH_MAX)
		return -ENAMETOOLONG;
	return 0;
}

/* mountinfo writes space, tab, newline and backslash as \ooo. */
static void mountinfo_unescape(char *text)
{
	char *out = text;

	for (; *text; text++) {
		if (text[0] == '\\' && text[1] >= '0' && text[1] <= '3' && text[2] && text[3]) {
			*out++ =
			    (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0'));
			text += 3;
		} else {
			*out++ = *text;
		}
	}
	*out = '\0';
}

/* id parent major:minor root POINT options [fields…] - TYPE SOURCE superoptions */
static int mountinfo_parse(char *line, struct mount_info *ret_info)
{
	char *rest = strstr(line, " - "), *word = NULL;
	int i;

	if (!rest)
		return -EINVAL;
	*rest = '\0';
	rest += 3;
	for (i = 0; line && i < 5; i++)
		word = strsep(&line, " ");
	if (i < 5)
		return -EINVAL;
	mountinfo_unescape(word);
	snprintf(ret_info->point, sizeof(ret_info->point), "%s", word);
	word = strsep(&rest, " ");
	snprintf(ret_info->type, sizeof(ret_info->type), "%s", word);
	word = strsep(&rest, " \n");
	if (word)
		mountinfo_unescape(word);
	snprintf(ret_info->source, sizeof(ret_info->source), "%s", word ? word : "");
	return 0;
}

int mountpoint_find(const char *abs, struct mount_info *ret_info)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	struct mount_info info;
	char *line = NULL;
	size_t cap = 0;
	int err = -ENOENT;

	if (!f)
		return -errno;
	while (getline(&line, &cap, f) > 0) {
		if (mountinfo_parse(line, &info) == 0 && strcmp(info.point, abs) == 0) {
			*ret_info = info; /* later lines lie on top */
			err = 0;
		}
	}
	free(line);
	fclose(f);
	return err;
}

static int mountpoint_refuse(int err, const char *abs, const char *what, char *why, size_t why_cap)
{
	snprintf(why, why_cap, "mount point %.4095s %s", abs, what);
	return err;
}

/*
 * Asks by statfs, since the kernel may answer stat from its cache when the daemon is long gone. A
 * dying daemon lets it wait until it is gone, a stuck one for ever: so a child asks, which can be
 * given up.
 */
bool mountpoint_is_stale(const struct mount_info *info)
{
	struct pollfd p = { .events = POLLIN };
	int status = SIGKILL, options = 0; /* as of one that was killed */
	pid_t pid;

	if (strcmp(info->type, MOUNT_TYPE_KVFS) != 0 || (pid = fork()) < 0)
		return false;
	if (pid == 0) {
		struct statfs sf;

		_exit(statfs(info->point, &sf) != 0 && (errno == ENOTCONN || errno == ECONNABORTED)
			  ? 1
			  : 0);
	}
	p.fd = pidfd_open(pid, 0);
	if (p.fd < 0 || poll(&p, 1, MOUNTPOINT_ASK_MS) <= 0) {
		/* it may not die: a request on a stopped daemon's ring can't be killed. Then it
		 * goes with us. */
		kill(pid, SIGKILL);
		options = WNOHANG;
	}
	if (p.fd >= 0)
		close(p.fd);
	while (waitpid(pid, &status, options) < 0 && errno == EINTR)
		continue;
	return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

int mountpoint_umount(const char *abs, bool lazy)
{
	char *argv[] = { (char *)"fusermount3", (char *)(lazy ? "-uqz" : "-uq"), (char *)"--",
			 (char *)(uintptr_t)abs, NULL };
	pid_t pid;
	int status, err;

	if (geteuid() == 0)
		return umount2(abs, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0 ? 0 : -errno;
	err = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);
	if (err)
		return -err;
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EBUSY;
}

/* Whether inner is outer or lies in it; both are resolved. */
static bool mountpoint_covers(const char *outer, const char *inner)
{
	size_t len = strlen(outer);

	return strncmp(outer, inner, len) == 0 &&
	       (inner[len] == '/' || inner[len] == '\0' || len == 1);
}

int mountpoint_check_volume(const char *abs, const char *volume, char *why, size_t why_cap)
{
	bool hides = mountpoint_covers(abs, volume);

	if (!hides && !mountpoint_covers(volume, abs))
		return 0;
	return mountpoint_refuse(-EINVAL, abs,
				 hides ? "would hide the volume itself; name a directory elsewhere"
				       : "lies in the volume; name a directory elsewhere",
				 why, why_cap);
}

int mountpoint_check(const char *path, char ret_abs[PATH_MAX], char *why, size_t why_cap)
{
	struct mount_info info;
	struct stat st;
	int err = mountpoint_absolute(path, ret_abs);

	if (err)
		return mountpoint_refuse(
		    err, path, err == -ENOENT ? MOUNTPOINT_MISSING : strerror(-err), why, why_cap);
	while (mountpoint_find(ret_abs, &info) == 0) {
		if (!mountpoint_is_stale(&info)) {
			snprintf(why, why_cap,
				 "mount point %s is in use: %.1000s (%s) is mounted there; umount "
				 "it first or "
				 "name another",
				 ret_abs, info.source, info.type);
			return -EBUSY;
		}
		err = mountpoint_umount(ret_abs, true);
		if (err)
			return mountpoint_refuse(
			    err, ret_abs,
			    "holds the stale mount of a dead kvfs that cannot be "
			    "taken away; do it as root: umount -l",
			    why, why_cap);
		diag_info("took the stale mount of a dead kvfs off %s", ret_abs);
	}
	if (!realpath(path, ret_abs))
		return mountpoint_refuse(-errno, path,
					 errno == ENOENT ? MOUNTPOINT_MISSING : strerror(errno),
					 why, why_cap);
	if (stat(ret_abs, &st) != 0)
		return mountpoint_refuse(-errno, ret_abs, strerror(errno), why, why_cap);
	if (!S_ISDIR(st.st_mode))
		return mountpoint_refuse(-ENOTDIR, ret_abs, "is not a directory; name an empty one",
					 why, why_cap);
	return 0;
}

int mountpoint_volume(const char *where, char ret_volume[PATH_MAX], char *why, size_t why_cap)
{
	struct mount_info info;
	char abs[PATH_MAX], probe[PATH_MAX];
	int err = mountpoint_absolute(where, abs);

	if (!err && mountpoint_find(abs, &info) != 0 && realpath(where, probe))
		memcpy(abs, probe, sizeof(abs));
	if (!err && mountpoint_find(abs, &info) == 0 && strcmp(info.type, MOUNT_TYPE_KVFS) == 0) {
		snprintf(ret_volume, PATH_MAX, "%s", info.source);
		return 0;
	}
	if (!err && realpath(where, probe) && volume_block_has_dax(probe)) {
		snprintf(ret_volume, PATH_MAX, "%s", probe);
		return 0;
	}
	if (!err && (snprintf(probe, sizeof(probe), "%s/superblock", abs) >= PATH_MAX ||
		     access(probe, F_OK) != 0))
		err = -errno;
	if (!err) {
		snprintf(ret_volume, PATH_MAX, "%s", abs);
		return 0;
	}
	if (access(where, F_OK) != 0)
		snprintf(why, why_cap, "%s: %s", where, strerror(errno));
	else if (access("/proc/self/mountinfo", R_OK) != 0)
		snprintf(why, why_cap,
			 "%s is no kvfs volume, and mount points are not known without /proc",
			 where);
	else
		snprintf(why, why_cap, "%s is neither a kvfs volume nor a mount point of one",
			 where);
	return err;
}
