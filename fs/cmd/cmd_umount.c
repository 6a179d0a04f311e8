/* SPDX-License-Identifier: Apache-2.0 */
/* kvfs umount: asks the daemon to drain, checkpoint and leave, and waits until its
 * process is gone. */
#include "fs/cmd/cmd.h"

#include "common/clock.h"
#include "common/diag.h"
#include "fs/admin/control.h"
#include "fs/fuse/mountpoint.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define UMOUNT_ASK_SECONDS 60
#define UMOUNT_NS (900 * NSEC_PER_SEC)
#define UMOUNT_PROGRESS_MS 5000

static int umount_wait_gone(const struct control_end *end, const char *where)
{
	uint64_t began = clock_mono_ns();
	struct pollfd p = { .fd = end->pidfd, .events = POLLIN };
	const char *error;
	json_t *last;
	int n;

	while (end->pidfd >= 0 && (n = poll(&p, 1, UMOUNT_PROGRESS_MS)) <= 0) {
		uint64_t seconds = (clock_mono_ns() - began) / NSEC_PER_SEC;

		if (n < 0)
			continue; /* stopped, and going on */
		if (clock_mono_ns() - began > UMOUNT_NS) {
			diag_error("%s is unmounted, but its kvfs has not ended after %llu s",
				   where, (unsigned long long)seconds);
			return CMD_FAILED;
		}
		diag_info("%s: waiting for the last checkpoint (%llu s)", where,
			  (unsigned long long)seconds);
	}
	last = control_end_error(end);
	error = json_string_value(json_object_get(last, "error"));
	if (error)
		diag_error("%s", error);
	json_decref(last);
	return error ? CMD_FAILED : CMD_OK;
}

/* A mount whose daemon is dead can only be taken away. */
static bool umount_stale(const char *where)
{
	struct mount_info info;
	char abs[PATH_MAX];

	if (mountpoint_absolute(where, abs) != 0 || mountpoint_find(abs, &info) != 0 ||
	    !mountpoint_is_stale(&info))
		return false;
	return mountpoint_umount(abs, true) == 0;
}

int cmd_umount(int argc, char **argv)
{
	json_t *request, *reply = NULL;
	struct control_end end;
	int err, code = CMD_FAILED;
	const char *error;
	char why[512];

	if (argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)) {
		printf("usage: kvfs umount WHERE\n\n"
		       "Unmounts what is served at WHERE (a mount point or a volume): makes a "
		       "checkpoint and\nreturns when the process is gone. Also ends a mirror.\n");
		return CMD_OK;
	}
	if (argc != 2 || argv[1][0] == '-') {
		diag_error("usage: kvfs umount WHERE");
		return CMD_USAGE;
	}
	if (umount_stale(argv[1]))
		return CMD_OK;
	request = json_pack("{s:s}", "cmd", "shutdown");
	err = control_call(argv[1], request, UMOUNT_ASK_SECONDS, &reply, &end, why, sizeof(why));
	json_decref(request);
	if (err) {
		diag_error("%s", why);
		return CMD_FAILED;
	}
	error = json_string_value(json_object_get(reply, "error"));
	if (error)
		diag_error("%s", error);
	else
		code = umount_wait_gone(&end, argv[1]);
	control_end_close(&end);
	json_decref(reply);
	return code;
}
