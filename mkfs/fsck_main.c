/* SPDX-License-Identifier: Apache-2.0 */
/* fsck.kvfs: options, lock, and the order of the checks. Findings: fsck_report.c. */
#include "common/diag.h"
#include "common/io.h"
#include "mkfs/cli.h"
#include "mkfs/fsck_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"

enum { OPTION_JSON = 256, OPTION_PROGRESS };

static const struct cli_option options[] = {
	{ 'n', "no", NULL, "only check, change nothing (the default)" },
	{ 'y', "yes", NULL, "repair what can be repaired without further loss" },
	{ 'a', NULL, NULL, "as -y, for fsck(8), but never cuts records off" },
	{ 'p', NULL, NULL, "the same as -a" },
	{ OPTION_JSON, "json", NULL, "print the result as JSON" },
	{ OPTION_PROGRESS, "progress", NULL, "show progress even when stderr is not a terminal" },
	{ 'V', "version", NULL, "print the version" },
	{ 'h', "help", NULL, "print this help" },
	{ 0, NULL, NULL, NULL }
};

static const struct cli cli = {
	.program = "fsck.kvfs",
	.synopsis = "[OPTION]... VOLUME",
	.purpose =
	    "Checks the kvfs volume VOLUME, a directory or /dev/pmemN, which must not be in use.",
	.options = options,
	.footer = "Exit status, added up: 0 no problem, 1 problems corrected, 4 problems left,\n"
		  "8 operational error, 16 wrong usage. See fsck.kvfs(8).",
};

/* -1: go on; else the exit status. */
static int parse_options(int argc, char **argv, struct fsck *f, bool *ret_progress)
{
	bool no = false;
	int code;

	while ((code = cli_next(&cli, argc, argv)) != -1) {
		switch (code) {
		case 'n': no = true; break;
		case 'y': f->repair = f->cut = true; break;
		case 'a': case 'p': f->repair = true; break;
		case OPTION_JSON: f->json = true; break;
		case OPTION_PROGRESS: *ret_progress = true; break;
		case 'V': printf("fsck.kvfs %s\n", PACKAGE_VERSION); return FSCK_OK;
		case 'h': cli_print_help(&cli); return FSCK_OK;
		default: return FSCK_USAGE;
		}
	}
	if (no && f->repair) {
		diag_error("give either -n or -y");
		return FSCK_USAGE;
	}
	if (argc - optind != 1 || argv[optind][0] == '\0') {
		diag_error("%s; see %s --help",
			   argc == optind ? "no VOLUME given" : "give exactly one VOLUME",
			   cli.program);
		return FSCK_USAGE;
	}
	f->path = argv[optind];
	return -1;
}

static bool open_and_lock(struct fsck *f)
{
	const char *why;
	int err = volume_place_open(f->path, &f->place, &why);

	if (err) {
		diag_error("%s", why);
		return false;
	}
	f->dirfd = f->place.dirfd;
	err = volume_lock(f->dirfd, f->repair ? VOLUME_LOCK_WRITE : VOLUME_LOCK_READ_ONLY,
			  &f->lockfd);
	if (err == -ENOENT)
		diag_error("%s: not a kvfs volume: it has no superblock", f->path);
	else if (err == -EBUSY)
		diag_error(
		    "%s: in use by another kvfs mount, mirror, mkfs or fsck; stop that first",
		    f->path);
	else if (err)
		diag_error("%s/%s: %s", f->path, VOLUME_SUPERBLOCK_NAME, strerror(-err));
	return err == 0;
}

static void run_checks(struct fsck *f)
{
	if (fsck_check_super(f) != 0 || !f->super_valid || f->super.state != VOLUME_READY)
		return;
	if (fsck_check_key(f) != 0 || fsck_check_log(f) != 0 || fsck_check_ckpts(f) != 0)
		return;
	if (fsck_check_chain(f) == 0)
		fsck_check_strays(f);
}

static int fsck_run(int argc, char **argv)
{
	struct fsck f = { .dirfd = -1, .lockfd = -1, .place = VOLUME_PLACE_NONE };
	bool progress = false;
	int status;

	status = parse_options(argc, argv, &f, &progress);
	if (status >= 0)
		return status;
	f.findings = json_array();
	if (sodium_init() < 0 || !f.findings) {
		diag_error("out of memory or random numbers");
		return FSCK_OPERATIONAL;
	}
	progress_init(&f.progress, progress, false);
	if (open_and_lock(&f)) {
		run_checks(&f);
		fsck_summary(&f);
		status = fsck_exit_status(&f);
	} else {
		status = FSCK_OPERATIONAL;
	}
	if (f.lockfd >= 0)
		close(f.lockfd);
	volume_place_close(&f.place);
	json_decref(f.findings);
	return status;
}

int main(int argc, char **argv)
{
	int status;

	io_process_init();
	umask(077); /* the caller's may take our own rights away */
	diag_init(cli.program);
	status = fsck_run(argc, argv);
	return cli_output_arrived() ? status : status | FSCK_OPERATIONAL;
}
