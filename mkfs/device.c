/* SPDX-License-Identifier: Apache-2.0 */
/* Block devices and device-DAXes, inspected and made ready: see device.h. */
#include "mkfs/device.h"

#include "common/because.h"
#include "log/logdev.h"
#include "mkfs/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WIPE_BYTES 65536
#define JOURNAL_MIB "16"
#define INODE_EVERY_BYTES "65536" /* a volume has few files, all of them large */

extern char **environ;

/* Exclusively: so a device in use, mounted by whomever, is refused. */
static int block_open(const char *path, int flags, int *ret_fd, const char **ret_why)
{
	int fd = open(path, flags | O_EXCL | O_CLOEXEC);

	if (fd >= 0) {
		*ret_fd = fd;
		return 0;
	}
	if (errno == EBUSY)
		return because(-EBUSY, ret_why, "%s: in use (mounted, or by a kvfs); stop that "
			       "first (-f does "
			       "not help)", path);
	return because(-errno, ret_why, "%s: %s%s", path, strerror(errno),
		       errno == EACCES ? "; run as root" : errno == EROFS || errno == EPERM ?
		       "; it can't be written" : "");
}

int device_block_inspect(const char *path, uint64_t *ret_bytes, char *ret_holds, size_t cap,
			 const char **ret_why)
{
	char holds[64];
	uint64_t bytes = 0;
	int fd = -1, err;

	storage_signature(path, holds, sizeof(holds));
	if (!volume_block_has_dax(path))
		return because(-ENOTDIR, ret_why, "%s: an ordinary block device%s%s%s, not "
			       "persistent memory; make "
			       "a file system there, mount it, and give a directory on it", path,
			       holds[0] ? " (it holds: " : "", holds, holds[0] ? ")" : "");
	err = block_open(path, O_RDWR, &fd, ret_why);
	if (err)
		return err;
	if (ioctl(fd, BLKGETSIZE64, &bytes) != 0)
		err = because(-errno, ret_why, "%s: its size is unknown: %s", path,
		strerror(errno));
	close(fd);
	if (err)
		return err;
	*ret_bytes = bytes;
	snprintf(ret_holds, cap, "%s", holds);
	return 0;
}

uint64_t device_block_room(uint64_t bytes)
{
	uint64_t taken = bytes / 64 + (32ULL << 20); /* inode tables, journal, bitmaps */

	return bytes > taken ? bytes - taken : 0;
}

static int run(char *const argv[])
{
	posix_spawn_file_actions_t actions;
	int status, err;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
	err = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (err)
		return -err;
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return -ENOENT;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

/* Root's PATH may lack the places for administrators. */
static int run_mke2fs(const char *path)
{
	static const char *const programs[] = { "mke2fs", "/sbin/mke2fs", "/usr/sbin/mke2fs" };
	int err = -ENOENT;

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]) && err == -ENOENT; i++) {
		char *argv[] = { (char *)(uintptr_t)programs[i], (char *)"-q", (char *)"-F",
		(char *)"-t",
				 (char *)"ext4", (char *)"-b", (char *)"4096", (char *)"-m",
				 (char *)"0",
				 (char *)"-i", (char *)INODE_EVERY_BYTES, (char *)"-J",
				 (char *)"size=" JOURNAL_MIB, (char *)"-E",
				 (char *)"nodiscard,lazy_itable_init=0,stride=512,stripe_width=512",
				 (char *)"-L", (char *)"kvfs", (char *)"--", (char
				 *)(uintptr_t)path, NULL };

		err = run(argv);
	}
	return err;
}

int device_block_make(const char *path, struct volume_place *ret_place, const char **ret_why)
{
	int err = run_mke2fs(path);

	if (err == -ENOENT)
		return because(err, ret_why, "%s: no mke2fs, which makes its file system; "
			       "install e2fsprogs",
			       path);
	if (err)
		return because(err, ret_why, "%s: mke2fs could not make its file system", path);
	return volume_block_mount(path, true, ret_place, ret_why);
}

void device_block_wipe(const char *path)
{
	static const uint8_t zero[WIPE_BYTES];
	int fd = open(path, O_RDWR | O_EXCL | O_CLOEXEC);

	if (fd < 0)
		return;
	if (pwrite(fd, zero, sizeof(zero), 0) == (ssize_t)sizeof(zero))
		(void)fsync(fd);
	close(fd);
}

/* What the first bytes say: a pool of the log's library, another of its family, or anything. */
static const char *header_word(const uint8_t *p)
{
	if (memcmp(p, "PMEMLOG", 8) == 0)
		return "a log pool";
	for (size_t i = 0; i < LOGDEV_HEADER_BYTES; i++) {
		if (p[i])
			return "data";
	}
	return "";
}

int device_dax_inspect(const char *path, uint64_t *ret_bytes, const char **ret_holds, const char
		       **ret_why)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	uint64_t bytes, align;
	uint8_t *p;
	int err = 0;

	if (fd < 0)
		return because(-errno, ret_why, "%s: %s", path, strerror(errno));
	if (!volume_devdax(fd, &bytes, &align)) {
		close(fd);
		return because(-ENODEV, ret_why, "%s: not a device-DAX (/dev/daxX.Y); make one "
			       "with ndctl "
			       "create-namespace -m devdax", path);
	}
	p = mmap(NULL, align, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		err = because(-errno, ret_why, "%s: can't be mapped: %s", path, strerror(errno));
	} else if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		err = because(-EBUSY, ret_why, "%s: in use as a log; stop that first (-f does "
		"not help)", path);
	} else {
		*ret_holds = header_word(p);
		*ret_bytes = bytes;
	}
	if (p != MAP_FAILED)
		munmap(p, align);
	close(fd);
	return err;
}
