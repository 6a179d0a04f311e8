/* SPDX-License-Identifier: Apache-2.0 */
/* The command lines of kvfs mount and kvfs mirror: see serve.h. Runs before any thread. */
#include "fs/cmd/serve.h"

#include "common/diag.h"
#include "fs/cmd/cmd.h"
#include "fs/fuse/mountpoint.h"
#include "fs/node/node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void serve_usage(enum options_role role, FILE *out)
{
	if (role == OPTIONS_MOUNT)
		fprintf(out,
			"usage: kvfs mount [-f] [-o OPTION[=VALUE][,...]] VOLUME MOUNTPOINT\n"
			"\nServes VOLUME (see mkfs.kvfs) at MOUNTPOINT, as the primary: returns "
			"when it serves.\n");
	else
		fprintf(out,
			"usage: kvfs mirror [-f] [-o OPTION[=VALUE][,...]] VOLUME [MOUNTPOINT]\n"
			"\nKeeps a copy of another node's volume in VOLUME (see mkfs.kvfs --join); "
			"with MOUNTPOINT\n"
			"also shows it there, read-only.\n");
	fprintf(out,
		"\n  -f                        stay in the foreground\n"
		"  -h, --help                this text\n"
		"\nOptions, as -o NAME=VALUE, as --NAME=VALUE, in fstab, or as NAME=VALUE lines "
		"of\n"
		"/etc/kvfs.conf or VOLUME/kvfs.conf (the command line wins, then "
		"VOLUME/kvfs.conf):\n\n");
	options_help(role, out);
}

static const char *serve_name(enum options_role role)
{
	return role == OPTIONS_MOUNT ? "mount" : "mirror";
}

/* One argument that begins with '-'; *i moves over a value. Returns 0 or an exit code;
 * -1 - CMD_OK never. */
static int serve_parse_flag(struct serve_args *a, int argc, char **argv, int *i)
{
	char why[OPTIONS_WHY_BYTES];
	const char *arg = argv[*i];
	int err;

	if (strcmp(arg, "-f") == 0 || strcmp(arg, "--foreground") == 0) {
		a->foreground = true;
		return 0;
	}
	if (strncmp(arg, "-o", 2) == 0) {
		const char *list = arg[2] ? arg + 2 : *i + 1 < argc ? argv[++*i] : NULL;

		if (!list) {
			diag_error("-o needs a list of options; see kvfs %s --help",
				   serve_name(a->opt.role));
			return CMD_USAGE;
		}
		err = options_set_list(&a->opt, list, OPTIONS_COMMAND, why);
	} else if (strncmp(arg, "--", 2) == 0) {
		err = options_set(&a->opt, arg + 2, OPTIONS_COMMAND, why);
	} else {
		diag_error("unknown flag '%s'; see kvfs %s --help", arg, serve_name(a->opt.role));
		return CMD_USAGE;
	}
	if (err)
		diag_error("%s", why);
	return err ? CMD_USAGE : 0;
}

static int serve_read_files(struct serve_args *a)
{
	char why[OPTIONS_WHY_BYTES], path[PATH_MAX + 16];
	int err;

	snprintf(path, sizeof(path), "%s/kvfs.conf", a->volume);
	err = options_read_file(&a->opt, path, OPTIONS_VOLUME, why);
	if (!err)
		err = options_read_file(&a->opt, "/etc/kvfs.conf", OPTIONS_ETC, why);
	if (!err)
		err = options_finish(&a->opt, why);
	if (err)
		diag_error("%s", why);
	return !err ? 0 : err == -EINVAL ? CMD_USAGE : CMD_FAILED;
}

/* The volume by its full path: it becomes the mount's source, by which umount and
 * status find it. */
static int serve_resolve(struct serve_args *a, const char *volume, const char *mountpoint)
{
	char why[NODE_WHY_BYTES];

	if (!realpath(volume, a->volume))
		/* volume_open says what is wrong */
		snprintf(a->volume, sizeof(a->volume), "%s", volume);
	if (mountpoint && mountpoint_check(mountpoint, a->mountpoint, why, sizeof(why)) != 0) {
		diag_error("%s", why);
		return CMD_FAILED;
	}
	if (mountpoint &&
	    mountpoint_check_volume(a->mountpoint, a->volume, why, sizeof(why)) != 0) {
		diag_error("%s", why);
		return CMD_USAGE;
	}
	return 0;
}

int serve_parse(enum options_role role, int argc, char **argv, struct serve_args *ret_args)
{
	const char *places[2] = { NULL, NULL };
	int count = 0, i, code = 0;

	memset(ret_args, 0, sizeof(*ret_args));
	options_init(&ret_args->opt, role);
	for (i = 1; i < argc && !code; i++) {
		if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
			serve_usage(role, stdout);
			return CMD_OK;
		}
		if (argv[i][0] == '-' && argv[i][1])
			code = serve_parse_flag(ret_args, argc, argv, &i);
		else if (count < 2)
			places[count++] = argv[i];
		else
			count = 3;
	}
	if (code)
		return code;
	if (count < (role == OPTIONS_MOUNT ? 2 : 1) || count > 2) {
		diag_error("%s; see kvfs %s --help",
			   count > 2		 ? "too many arguments" :
			   role == OPTIONS_MOUNT ? "VOLUME and MOUNTPOINT are needed" :
						   "VOLUME is needed",
			   serve_name(role));
		return CMD_USAGE;
	}
	if (!*places[0] || (count == 2 && !*places[1])) {
		diag_error("%s is empty; see kvfs %s --help", !*places[0] ? "VOLUME" : "MOUNTPOINT",
			   serve_name(role));
		return CMD_USAGE;
	}
	snprintf(ret_args->volume, sizeof(ret_args->volume), "%s", places[0]);
	code = serve_read_files(ret_args);
	if (!code)
		code = serve_resolve(ret_args, places[0], places[1]);
	return code ? code : -1;
}
