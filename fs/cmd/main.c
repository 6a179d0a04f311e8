/* SPDX-License-Identifier: Apache-2.0 */
/* The kvfs program: finds the sub-command. Everything else is in cmd_*.c. */
#include "config.h"

#include "common/diag.h"
#include "common/io.h"
#include "fs/cmd/cmd.h"

#include <stdio.h>
#include <string.h>

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *synopsis;
	const char *help;
} commands[] = {
	{ "mount", cmd_mount, "[-f] [-o OPTIONS] VOLUME MOUNTPOINT",
	  "serve a volume as the primary" },
	{ "mirror", cmd_mirror, "[-f] [-o OPTIONS] VOLUME [MOUNTPOINT]",
	  "keep a copy of a primary's volume" },
	{ "umount", cmd_umount, "WHERE", "checkpoint, unmount, and wait for the end" },
	{ "status", cmd_status, "[--json] [--digest] WHERE", "show the state of what is served" },
	{ "top", cmd_top, "[--once] [--json] [--interval SEC] WHERE", "watch what is served" },
	{ "tune", cmd_tune, "[...] WHERE", "show and steer the tuner" },
	{ "checkpoint", cmd_checkpoint, "WHERE", "make a checkpoint now" },
	{ "doctor", cmd_doctor, "[--json] [--root DIR]",
	  "check what a deployment needs of this machine" },
	{ "bench", cmd_bench, "--dir DIR [...]", "measure any directory with a key-value load" },
};
#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static void main_usage(FILE *out)
{
	char left[64];
	size_t i;

	fprintf(out,
		"usage: kvfs COMMAND [...]\n\n"
		"A replicated key-value store that programs use as files. WHERE is a volume or a "
		"mount point.\n\n");
	for (i = 0; i < COMMAND_COUNT; i++) {
		snprintf(left, sizeof(left), "%s %s", commands[i].name, commands[i].synopsis);
		fprintf(out, "  kvfs %-46s  %s\n", left, commands[i].help);
	}
	fprintf(out,
		"\nkvfs COMMAND --help says more; kvfs --version prints the version. Volumes are "
		"made by mkfs.kvfs.\n");
}

/* What was printed has to have arrived. */
static int main_finish(int code)
{
	int err = io_flush_stdout();

	if (!err)
		return code;
	diag_error("cannot write the output: %s", strerror(-err));
	return code ? code : CMD_FAILED;
}

int main(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/'), *self = slash ? slash + 1 : argv[0];
	size_t i;

	io_process_init();
	diag_init("kvfs");
	if (strcmp(self, "mount.kvfs") == 0 || strcmp(self, "mount.fuse.kvfs") == 0)
		return main_finish(cmd_mount_helper(argc, argv));
	if (argc < 2) {
		main_usage(stderr);
		return CMD_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    strcmp(argv[1], "help") == 0) {
		main_usage(stdout);
		return main_finish(CMD_OK);
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
		printf("kvfs %s\n", PACKAGE_VERSION);
		return main_finish(CMD_OK);
	}
	for (i = 0; i < COMMAND_COUNT; i++) {
		if (strcmp(argv[1], commands[i].name) == 0)
			return main_finish(commands[i].run(argc - 1, argv + 1));
	}
	diag_error("unknown command '%s'; see kvfs --help", argv[1]);
	return CMD_USAGE;
}
