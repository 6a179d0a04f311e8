/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mkfs.kvfs: options, the decisions that need the user's word (-f, sizes), and the one line that
 * says why not. Inspecting is place.c, making is make.c, the summary is mkfs_report.c.
 */
#include "common/diag.h"
#include "common/io.h"
#include "common/units.h"
#include "log/logdev.h"
#include "mkfs/cli.h"
#include "mkfs/device.h"
#include "mkfs/make.h"
#include "mkfs/mkfs_report.h"
#include "mkfs/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"

enum mkfs_exit { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };
enum { OPTION_JSON = 256, OPTION_JOIN, OPTION_KEY_COPY, OPTION_LOG_DEVICE, OPTION_PROGRESS };

static const struct cli_option options[] = {
	{ 'f', "force", NULL,
	  "overwrite a volume or what a device holds, or use a directory that is not "
	  "empty" },
	{ 'L', "label", "LABEL", "name of the volume, up to 63 bytes" },
	{ 's', "log-size", "SIZE", "size of both log pools together (512M, 1.5GiB)" },
	{ OPTION_JOIN, "join", "KEYFILE", "make a mirror's volume: UUID and key from KEYFILE" },
	{ OPTION_LOG_DEVICE, "log-device", "DEV",
	  "a device-DAX that becomes a log pool; give two" },
	{ OPTION_KEY_COPY, "key-copy", "FILE", "also write the key file to FILE" },
	{ 'n', "dry-run", NULL, "check everything, say what would be made, write nothing" },
	{ OPTION_JSON, "json", NULL, "print the summary as JSON" },
	{ OPTION_PROGRESS, "progress", NULL, "show progress even when stderr is not a terminal" },
	{ 'q', "quiet", NULL, "print no summary, no progress and no warnings" },
	{ 'V', "version", NULL, "print the version" },
	{ 'h', "help", NULL, "print this help" },
	{ 0, NULL, NULL, NULL }
};

static const struct cli cli = {
	.program = "mkfs.kvfs",
	.synopsis = "[OPTION]... VOLUME",
	.purpose = "Makes a kvfs volume in the directory VOLUME, which is made when it is missing, "
		   "or on /dev/pmemN.",
	.options = options,
	.footer = "Exit status: 0 made, 1 not made, 2 wrong usage. See mkfs.kvfs(8).",
};

struct mkfs_options {
	bool force, dry_run, json, progress, quiet;
	const char *label, *log_size, *join, *key_copy, *path;
	const char *log_device[2];
	unsigned log_devices; /* given */
};

/* -1: go on; else the exit status. */
static int parse_options(int argc, char **argv, struct mkfs_options *o)
{
	int code;

	while ((code = cli_next(&cli, argc, argv)) != -1) {
		switch (code) {
		case 'f': o->force = true; break;
		case 'L': o->label = optarg; break;
		case 's': o->log_size = optarg; break;
		case OPTION_JOIN: o->join = optarg; break;
		case OPTION_KEY_COPY: o->key_copy = optarg; break;
		case OPTION_LOG_DEVICE:
			if (o->log_devices < 2)
				o->log_device[o->log_devices] = optarg;
			o->log_devices++;
			break;
		case 'n': o->dry_run = true; break;
		case OPTION_JSON: o->json = true; break;
		case OPTION_PROGRESS: o->progress = true; break;
		case 'q': o->quiet = true; break;
		case 'V': printf("mkfs.kvfs %s\n", PACKAGE_VERSION); return EXIT_OK;
		case 'h': cli_print_help(&cli); return EXIT_OK;
		default: return EXIT_USAGE;
		}
	}
	if (argc - optind != 1 || argv[optind][0] == '\0') {
		diag_error("%s; see %s --help",
			   argc == optind ? "no VOLUME given" : "give exactly one VOLUME",
			   cli.program);
		return EXIT_USAGE;
	}
	o->path = argv[optind];
	if (o->log_devices != 0 && (o->log_devices != 2 || o->log_size)) {
		diag_error("%s; see %s --help",
			   o->log_devices != 2
			       ? "give --log-device twice or not at all"
			       : "give either --log-device or a log size: a device is used whole",
			   cli.program);
		return EXIT_USAGE;
	}
	return -1;
}

/* Both devices hold nothing, or -f says that it may go; the plan has their sizes and
 * full paths then. */
static bool plan_log_devices(const struct mkfs_options *o, struct make_plan *plan)
{
	const char *holds, *why;
	uint64_t bytes;

	for (unsigned i = 0; i < o->log_devices; i++) {
		if (device_dax_inspect(o->log_device[i], &bytes, &holds, &why) != 0) {
			diag_error("%s", why);
			return false;
		}
		if (holds[0] && !o->force) {
			diag_error("%s: holds %s; -f overwrites it and loses it", o->log_device[i],
				   holds);
			return false;
		}
		plan->log_device[i] = realpath(o->log_device[i], NULL);
		if (!plan->log_device[i]) {
			diag_error("%s: %s", o->log_device[i], strerror(errno));
			return false;
		}
		plan->log_bytes += bytes;
	}
	if (o->log_devices && strcmp(plan->log_device[0], plan->log_device[1]) == 0) {
		diag_error("%s: given twice; the two logs need a device each", plan->log_device[0]);
		return false;
	}
	return true;
}

static void plan_free(struct make_plan *plan)
{
	free(plan->log_device[0]);
	free(plan->log_device[1]);
	sodium_memzero(plan, sizeof(*plan));
}

/* UUID and key from the other node's key file. */
static bool plan_join(const char *path, struct make_plan *plan)
{
	static const uint8_t no_uuid[16];
	struct stat st;
	int err = volume_key_read(AT_FDCWD, path, plan->key, plan->uuid);

	if (err == -EBADMSG)
		diag_error("%s: not a key file; give the file 'key' of the other node's volume",
			   path);
	else if (err)
		diag_error("%s: the key file can't be read: %s", path, strerror(-err));
	else if (memcmp(plan->uuid, no_uuid, sizeof(no_uuid)) == 0)
		diag_error("%s: it lacks the volume's UUID (second line); copy the whole key file",
			   path);
	else {
		if (stat(path, &st) == 0 && (st.st_mode & 077) != 0)
			diag_warn("%s: others can read this key (mode %04o); chmod 600 it", path,
				  (unsigned)st.st_mode & 07777);
		plan->joins = true;
		return true;
	}
	return false;
}

static bool plan_label(const char *label, struct make_plan *plan)
{
	if (label && !volume_label_valid(label, strlen(label))) {
		diag_error("label: at most %d bytes of UTF-8 without control characters",
			   VOLUME_LABEL_MAX);
		return false;
	}
	snprintf(plan->label, sizeof(plan->label), "%s", label ? label : "");
	return true;
}

/* -1: go on. The least that is never right is a usage error; the rest needs the place. */
static int plan_log_size(const char *text, struct make_plan *plan)
{
	char least[UNITS_TEXT_BYTES];

	if (!text)
		return -1;
	if (units_parse_size(text, &plan->log_bytes) != 0 || plan->log_bytes > INT64_MAX) {
		diag_error("log size '%s': not a size; write for example 512M or 1.5GiB", text);
		return EXIT_USAGE;
	}
	plan->log_bytes -= plan->log_bytes % MAKE_LOG_STEP;
	if (plan->log_bytes < 2 * LOGDEV_SIZE_MIN) {
		diag_error("log size '%s': too small; give at least %s", text,
			   units_format_size(2 * LOGDEV_SIZE_MIN, least));
		return EXIT_FAILED;
	}
	return -1;
}

static bool content_allowed(const struct place *p, bool force)
{
	if (p->content == PLACE_SIGNATURE && !force) {
		diag_error(
		    "%s: holds a file system or the like (%s); -f overwrites it and loses its data",
		    p->path, p->what);
		return false;
	}
	if (p->content == PLACE_VOLUME && !force) {
		diag_error("%s: holds %s; -f overwrites it and loses its data", p->path, p->what);
		return false;
	}
	if (p->content == PLACE_FOREIGN && !force) {
		diag_error("%s: not empty; give an empty or new directory, or -f to use this one",
			   p->path);
		return false;
	}
	if (p->content == PLACE_UNFINISHED)
		diag_info("%s: an earlier mkfs.kvfs did not finish here; it never served and is "
			  "made anew",
			  p->path);
	if (p->foreign_files > 0 && p->content != PLACE_ABSENT)
		diag_warn("%s: %u other file(s) there are left as they are", p->path,
			  p->foreign_files);
	return true;
}

/* The logs take nothing of the place. */
static bool devices_fit(const struct place *p)
{
	char have[UNITS_TEXT_BYTES];

	if (p->free_bytes >= MAKE_SPACE_BESIDE_LOGS)
		return true;
	diag_error("%s: only %s free for checkpoints; free some space or use another file system",
		   p->path, units_format_size(p->free_bytes, have));
	return false;
}

static bool sizes_fit(const struct place *p, struct make_plan *plan)
{
	char want[UNITS_TEXT_BYTES], have[UNITS_TEXT_BYTES], least[UNITS_TEXT_BYTES];
	uint64_t memory = storage_memory_available();

	units_format_size(p->free_bytes, have);
	if (plan->log_device[0])
		return devices_fit(p);
	if (plan->log_bytes == 0)
		plan->log_bytes = make_default_log_bytes(p->free_bytes);
	if (plan->log_bytes == 0) {
		diag_error(
		    "%s: only %s free; a volume needs at least %s: free some space or use another "
		    "file system",
		    p->path, have,
		    units_format_size(2 * LOGDEV_SIZE_MIN + MAKE_SPACE_BESIDE_LOGS, least));
		return false;
	}
	units_format_size(plan->log_bytes, want);
	if (plan->log_bytes > p->free_bytes ||
	    p->free_bytes - plan->log_bytes < MAKE_SPACE_BESIDE_LOGS) {
		diag_error(
		    "%s: only %s free for logs of %s; free some space or give a smaller log (-s)",
		    p->path, have, want);
		return false;
	}
	if (p->medium == PLACE_MEMORY && plan->log_bytes > memory) {
		diag_error("%s: logs of %s on a file system in memory, of which only %s is "
			   "available; give "
			   "a smaller log (-s)",
			   p->path, want, units_format_size(memory, have));
		return false;
	}
	if (p->free_bytes - plan->log_bytes < plan->log_bytes)
		diag_warn("%s: only %s left for checkpoints beside logs of %s", p->path,
			  units_format_size(p->free_bytes - plan->log_bytes, have), want);
	return true;
}

static bool key_copy_allowed(const struct mkfs_options *o)
{
	if (!o->key_copy || o->force || access(o->key_copy, F_OK) != 0)
		return true;
	diag_error("%s: exists, and may be another volume's key; -f overwrites it", o->key_copy);
	return false;
}

static bool copy_key(const char *path, const struct make_plan *plan)
{
	char *dir = strdup(path), *base = strdup(path);
	int fd = -1, err = -ENOMEM;

	if (dir && base) {
		fd = open(dirname(dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		err = fd < 0 ? -errno : volume_key_write(fd, basename(base), plan->key, plan->uuid);
	}
	if (fd >= 0)
		close(fd);
	free(dir);
	free(base);
	if (err)
		diag_error("%s: the copy of the key can't be written: %s; the volume is made", path,
			   strerror(-err));
	return err == 0;
}

static int make_in_place(struct place *place, struct make_plan *plan, const struct mkfs_options *o)
{
	struct mkfs_report report = { .plan = plan, .place = place, .medium = place->medium };
	struct progress progress;
	const char *why;

	if (!content_allowed(place, o->force) || !sizes_fit(place, plan))
		return EXIT_FAILED;
	if (!o->dry_run) {
		progress_init(&progress, o->progress, o->quiet);
		if (make_volume(place, plan, &progress, &report.super, &report.medium, &why) != 0) {
			diag_error("%s", why);
			return EXIT_FAILED;
		}
		report.made = true;
		if (o->key_copy && !copy_key(o->key_copy, plan))
			return EXIT_FAILED;
		if (report.medium == PLACE_PMEM && !plan->log_device[0] &&
		    place->medium != PLACE_PMEM)
			diag_warn("%s: treated as persistent memory, but the file system does not "
				  "say DAX; is "
				  "PMEM_IS_PMEM_FORCE set?",
				  place->path);
	}
	if (o->json && mkfs_report_json(&report) != 0) {
		diag_error("out of memory%s", report.made ? "; the volume is made" : "");
		return EXIT_FAILED;
	}
	if (!o->json && !o->quiet)
		mkfs_report_text(&report);
	return EXIT_OK;
}

static int mkfs_run(int argc, char **argv)
{
	struct mkfs_options o = { 0 };
	struct make_plan plan = { 0 };
	struct place place;
	const char *why;
	int status;

	status = parse_options(argc, argv, &o);
	if (status >= 0)
		return status;
	if (o.quiet)
		diag_set_level(DIAG_ERROR);
	if (sodium_init() < 0) {
		diag_error("libsodium can't be initialised (no random numbers?)");
		return EXIT_FAILED;
	}
	make_plan_random(&plan);
	if (!plan_label(o.label, &plan))
		return EXIT_USAGE;
	status = plan_log_size(o.log_size, &plan);
	if (status >= 0)
		return status;
	if ((o.join && !plan_join(o.join, &plan)) || !plan_log_devices(&o, &plan) ||
	    !key_copy_allowed(&o))
		return EXIT_FAILED;
	if (access("/proc/self/fd", X_OK) != 0) {
		diag_error("/proc is needed and is not there: mount -t proc proc /proc");
		return EXIT_FAILED;
	}
	if (place_open(o.path, &place, &why) != 0) {
		diag_error("%s", why);
		return EXIT_FAILED;
	}
	status = make_in_place(&place, &plan, &o);
	place_close(&place);
	plan_free(&plan);
	return status;
}

int main(int argc, char **argv)
{
	int status;

	io_process_init();
	umask(077); /* the caller's may take our own rights away */
	diag_init(cli.program);
	status = mkfs_run(argc, argv);
	return cli_output_arrived() || status ? status : EXIT_FAILED;
}
