/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel, limits of files, FUSE and io_uring: see doctor.h. */
#include "fs/doctor/doctor_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILES_MIN 256
#define FUSE_BACKGROUND_MIN 128 /* requests of one user's mounts that the kernel may keep going */

static void check_release(struct doctor *d)
{
	unsigned major_no = 0, minor_no = 0;
	char text[128];

	if (doctor_read(d, text, sizeof(text), "/proc/sys/kernel/osrelease") != 0 ||
	    sscanf(text, "%u.%u", &major_no, &minor_no) != 2)
		doctor_say(d, "kernel.release", DOCTOR_NA, "mount -t proc proc /proc",
			   "the kernel's release can't be read");
	else if (major_no > 6 || (major_no == 6 && minor_no >= 1))
		doctor_say(d, "kernel.release", DOCTOR_OK, "", "Linux %s", text);
	else
		doctor_say(d, "kernel.release", DOCTOR_WARN, "use Linux 6.1 or later",
			   "Linux %s: memory can't be made huge pages without reserving them",
			   text);
}

static void check_files(struct doctor *d)
{
	uint64_t soft, hard;
	char text[4096], *line;

	if (doctor_read(d, text, sizeof(text), "/proc/self/limits") != 0 ||
	    !(line = strstr(text, "Max open files")) ||
	    sscanf(line, "Max open files %lu %lu", &soft, &hard) != 2)
		doctor_say(d, "limits.files", DOCTOR_NA, "", "the limit of open files is not "
			   "known");
	else if (hard < FILES_MIN)
		doctor_say(d, "limits.files", DOCTOR_FAIL, "ulimit -Hn 4096; a unit file: "
			   "LimitNOFILE=4096",
			   "only %lu open files are allowed, %d are needed", hard, FILES_MIN);
	else
		doctor_say(d, "limits.files", DOCTOR_OK, "", "%lu open files are allowed", hard);
}

void doctor_check_kernel(struct doctor *d)
{
	check_release(d);
	check_files(d);
}

/* -errno of opening /dev/fuse as a daemon would. */
static int fuse_device_error(const struct doctor *d)
{
	int fd, err;

	if (!d->live)
		return 0;
	fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	err = fd < 0 ? -errno : 0;
	if (fd >= 0)
		close(fd);
	return err;
}

static void check_fuse_device(struct doctor *d)
{
	int err;

	if (!doctor_has(d, "/dev/fuse")) {
		doctor_say(d, "fuse.device", DOCTOR_FAIL, "modprobe fuse; in a container: pass "
			   "/dev/fuse into it",
			   "no /dev/fuse: nothing can be mounted");
		return;
	}
	err = fuse_device_error(d);
	if (err)
		doctor_say(d, "fuse.device", DOCTOR_FAIL, err == -ENODEV || err == -ENXIO ?
			   "modprobe fuse" :
			   "run as root, or chmod 666 /dev/fuse",
			   "/dev/fuse can't be opened: %s", strerror(-err));
	else
		doctor_say(d, "fuse.device", DOCTOR_OK, "", "/dev/fuse is there");
}

static void check_fuse_users(struct doctor *d)
{
	static const char *const dirs[] = { "/usr/bin", "/bin", "/usr/local/bin" };
	char text[8192];
	bool helper = false, others;

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		helper = helper || doctor_has(d, "%s/fusermount3", dirs[i]);
	others = doctor_read(d, text, sizeof(text), "/etc/fuse.conf") == 0 &&
		 (strncmp(text, "user_allow_other", 16) == 0 || strstr(text, "\nuser_allow_other"));
	if (!helper)
		doctor_say(d, "fuse.users", DOCTOR_WARN, "apt-get install fuse3",
			   "no fusermount3: only root can mount");
	else
		doctor_say(d, "fuse.users", DOCTOR_OK, "", "users can mount%s", others ?
			   ", and let others in (allow_other)" :
			   "; allow_other is for root only (user_allow_other in /etc/fuse.conf "
			   "changes that)");
}

static void check_fuse_uring(struct doctor *d)
{
	char text[16];

	if (doctor_read(d, text, sizeof(text), "/sys/module/fuse/parameters/enable_uring") != 0)
		doctor_say(d, "fuse.uring", DOCTOR_NA, "", "this kernel has no FUSE over "
			   "io_uring (Linux 6.14)");
	else if (text[0] == 'Y' || text[0] == '1')
		doctor_say(d, "fuse.uring", DOCTOR_OK, "", "FUSE over io_uring is allowed");
	else
		doctor_say(d, "fuse.uring", DOCTOR_WARN, "scripts/tune-host, or echo Y "
			   ">/sys/module/fuse/parameters/enable_uring before the mount",
			   "FUSE over io_uring is off: small writes take half as long again");
}

static void check_fuse_limits(struct doctor *d)
{
	int64_t requests, congestion;

	if (doctor_read_i64(d, &requests, "/sys/module/fuse/parameters/max_user_bgreq") != 0 ||
	    doctor_read_i64(d, &congestion, "/sys/module/fuse/parameters/max_user_congthresh") != 0)
		doctor_say(d, "fuse.limits", DOCTOR_NA, "", "FUSE's limits for users are not "
			   "known (module not loaded)");
	else if (requests < FUSE_BACKGROUND_MIN || congestion < FUSE_BACKGROUND_MIN / 2)
		doctor_say(d, "fuse.limits", DOCTOR_WARN, "scripts/tune-host raises "
			   "max_user_bgreq and "
			   "max_user_congthresh in /sys/module/fuse/parameters",
			   "a user's mount may have %lld requests going, congested at %lld",
			   (long long)requests, (long long)congestion);
	else
		doctor_say(d, "fuse.limits", DOCTOR_OK, "", "a user's mount may have %lld "
			   "requests going",
			   (long long)requests);
}

/* -errno of a small ring on this kernel, as a checkpoint makes one. */
static int ring_error(const struct doctor *d)
{
	struct io_uring ring;
	int err;

	if (!d->live)
		return 0;
	err = io_uring_queue_init(4, &ring, 0);
	if (!err)
		io_uring_queue_exit(&ring);
	return err;
}

static void check_io_uring(struct doctor *d)
{
	int64_t disabled = 0;
	bool known = doctor_read_i64(d, &disabled, "/proc/sys/kernel/io_uring_disabled") == 0;
	int err = ring_error(d);

	if (disabled != 0)
		doctor_say(d, "io_uring", DOCTOR_WARN, disabled == 1 ? "run as root, put the "
			   "user into "
			   "kernel.io_uring_group, or sysctl kernel.io_uring_disabled=0" :
			   "sysctl kernel.io_uring_disabled=0, where the machine's policy allows "
			   "it",
			   "kernel.io_uring_disabled=%lld: checkpoints are written by pwrite, "
			   "slower",
			   (long long)disabled);
	else if (err)
		doctor_say(d, "io_uring", DOCTOR_WARN, err == -ENOMEM ? "ulimit -l unlimited" :
			   "allow io_uring in the container's seccomp profile",
			   "a ring can't be opened: %s; checkpoints are written by pwrite, "
			   "slower", strerror(-err));
	else if (!known && !d->live)
		doctor_say(d, "io_uring", DOCTOR_NA, "", "kernel.io_uring_disabled is not known");
	else
		doctor_say(d, "io_uring", DOCTOR_OK, "", "checkpoints can be written by io_uring");
}

void doctor_check_fuse(struct doctor *d)
{
	check_fuse_device(d);
	check_fuse_users(d);
	check_fuse_uring(d);
	check_fuse_limits(d);
	check_io_uring(d);
}
