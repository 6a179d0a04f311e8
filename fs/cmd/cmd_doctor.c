/* SPDX-License-Identifier: Apache-2.0 */
/* kvfs doctor: see doctor.h. */
#include "fs/cmd/cmd.h"

#include "common/diag.h"
#include "fs/doctor/doctor.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static void doctor_usage(void)
{
	printf("usage: kvfs doctor [--json] [--root DIR]\n\n"
	       "Checks what a deployment of kvfs needs of this machine, and says what to do about "
	       "it.\n"
	       "Nothing is changed; scripts/tune-host applies what is safe.\n\n"
	       "  --json       as one JSON object\n"
	       "  --root DIR   read /proc, /sys, /dev and /etc below DIR (a copy of another "
	       "machine's)\n\n"
	       "Exit status: 0 nothing failed, 1 a check failed, 2 wrong usage.\n");
}

static int doctor_show(const char *root, bool as_json)
{
	struct doctor d;
	int err = doctor_run(&d, root), code;

	if (!err && as_json)
		err = doctor_print_json(&d, stdout);
	else if (!err)
		doctor_print(&d, stdout);
	if (err)
		diag_error("doctor: %s", strerror(-err));
	code = err || doctor_worst(&d) == DOCTOR_FAIL ? CMD_FAILED : CMD_OK;
	doctor_free(&d);
	return code;
}

int cmd_doctor(int argc, char **argv)
{
	const char *root = "";
	bool as_json = false;
	struct stat st;
	int i;

	for (i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
			doctor_usage();
			return CMD_OK;
		}
		if (strcmp(argv[i], "--json") == 0) {
			as_json = true;
		} else if (strcmp(argv[i], "--root") == 0 && i + 1 < argc) {
			root = argv[++i];
		} else {
			diag_error("usage: kvfs doctor [--json] [--root DIR]");
			return CMD_USAGE;
		}
	}
	if (root[0] && (stat(root, &st) != 0 || !S_ISDIR(st.st_mode))) {
		diag_error("--root %s: not a directory", root);
		return CMD_USAGE;
	}
	return doctor_show(root, as_json);
}
