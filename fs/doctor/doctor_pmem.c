/* SPDX-License-Identifier: Apache-2.0 */
/* Persistent memory: regions, namespaces, device-DAX, and file systems mounted on it. See
 * doctor.h. */
#include "fs/doctor/doctor_internal.h"

#include "common/units.h"

#include <stdlib.h>
#include <string.h>

#define ND "/sys/bus/nd/devices"
#define DAX "/sys/bus/dax/devices"

static void check_region(struct doctor *d, const char *region)
{
	char domain[64];
	int64_t read_only = 0;

	doctor_read_i64(d, &read_only, ND "/%s/read_only", region);
	if (read_only)
		doctor_say(d, "pmem.region", DOCTOR_FAIL, "echo 0 >" ND "/REGION/read_only",
			   "%s is read-only", region);
	else if (doctor_read(d, domain, sizeof(domain), ND "/%s/persistence_domain", region) != 0 ||
		 strcmp(domain, "unknown") == 0 || !domain[0])
		doctor_say(d, "pmem.region", DOCTOR_WARN, "ask the platform's vendor; an "
			   "emulated NVDIMM keeps its "
			   "contents as its host does", "%s does not say what survives a power "
			   "failure", region);
	else
		doctor_say(d, "pmem.region", DOCTOR_OK, "", "%s survives a power failure from "
			   "the %s on", region,
			   domain);
}

static void check_namespace(struct doctor *d, const char *name)
{
	char mode[32] = "", remedy[160], size[UNITS_TEXT_BYTES];
	int64_t bytes = 0;

	if (doctor_read_i64(d, &bytes, ND "/%s/size", name) != 0 || bytes <= 0)
		return; /* a seed for the next one */
	units_format_size((uint64_t)bytes, size);
	doctor_read(d, mode, sizeof(mode), ND "/%s/mode", name);
	snprintf(remedy, sizeof(remedy), "ndctl create-namespace -f -e %.60s -m fsdax (its "
		 "contents are lost)", name);
	if (strcmp(mode, "fsdax") == 0 || strcmp(mode, "memory") == 0)
		doctor_say(d, "pmem.namespace", DOCTOR_OK, "", "%s: %s, fsdax: for mkfs.kvfs "
			   "/dev/pmemN, or a file system "
			   "mounted with dax", name, size);
	else if (strcmp(mode, "devdax") == 0 || strcmp(mode, "dax") == 0)
		doctor_say(d, "pmem.namespace", DOCTOR_OK, "", "%s: %s, devdax: for logs "
			   "(mkfs.kvfs --log-device) or "
			   "the arena (memory=devdax:)", name, size);
	else
		doctor_say(d, "pmem.namespace", DOCTOR_WARN, remedy, "%s: %s in mode %s, without "
			   "DAX: logs there go "
			   "through the page cache", name, size, mode[0] ? mode : "unknown");
}

static void check_dax_device(struct doctor *d, const char *name)
{
	char size_text[UNITS_TEXT_BYTES];
	int64_t bytes = 0, align = 0, node = -1;

	if (doctor_read_i64(d, &bytes, DAX "/%s/size", name) != 0 || bytes <= 0)
		return;
	doctor_read_i64(d, &align, DAX "/%s/align", name);
	doctor_read_i64(d, &node, DAX "/%s/target_node", name);
	units_format_size((uint64_t)bytes, size_text);
	if (!doctor_has(d, "/dev/%s", name))
		doctor_say(d, "pmem.devdax", DOCTOR_WARN, "modprobe device_dax; daxctl "
			   "reconfigure-device --mode=devdax",
			   "%s: %s, but no /dev/%s: the kernel uses it as memory, or its driver "
			   "is missing", name,
			   size_text, name);
	else
		doctor_say(d, "pmem.devdax", DOCTOR_OK, "", "/dev/%s: %s, pages of %lld KiB, "
			   "node %lld", name,
			   size_text, (long long)(align >> 10), (long long)node);
}

/* Options of the mount and of its file system, words between commas. */
static bool options_have_dax(const char *options)
{
	for (const char *p = options; (p = strstr(p, "dax")); p += 3) {
		bool begins = p == options || p[-1] == ',' || p[-1] == ' ';

		if (begins && (p[3] == '\0' || p[3] == ',' || p[3] == ' ' || strncmp(p + 3,
		    "=always", 7) == 0))
			return true;
	}
	return false;
}

/* A line of mountinfo whose source is a PMEM device. */
static void check_mount(struct doctor *d, char *line)
{
	char point[256], type[64], source[256], options[256] = "", *tail = strstr(line, " - ");

	if (!tail || sscanf(line, "%*s %*s %*s %*s %255s", point) != 1 ||
	    sscanf(tail, " - %63s %255s %255s", type, source, options) < 2 ||
	    strncmp(source, "/dev/pmem", 9) != 0)
		return;
	if (options_have_dax(options))
		doctor_say(d, "pmem.mount", DOCTOR_OK, "", "%.200s (%s on %.40s) is mounted with "
			   "DAX", point, type, source);
	else
		doctor_say(d, "pmem.mount", DOCTOR_WARN, "mount it with -o dax (ext4 and xfs, "
			   "blocks of 4096 bytes)",
			   "%.200s (%s on %.40s) is mounted without dax: logs there go through "
			   "the page cache",
			   point, type, source);
}

static void check_mounts(struct doctor *d)
{
	static char text[256 * 1024];
	char *line, *rest = text;

	if (doctor_read(d, text, sizeof(text), "/proc/self/mountinfo") != 0)
		return;
	while ((line = strsep(&rest, "\n")))
		check_mount(d, line);
}

static void check_block_dax(struct doctor *d, const char *name)
{
	int64_t dax = 0;

	if (doctor_read_i64(d, &dax, "/sys/block/%s/queue/dax", name) != 0 || dax != 1)
		doctor_say(d, "pmem.block", DOCTOR_WARN, "make it an fsdax namespace with a map "
			   "(ndctl create-namespace -m fsdax)", "/dev/%s has no DAX", name);
	else
		doctor_say(d, "pmem.block", DOCTOR_OK, "", "/dev/%s has DAX", name);
}

static void each(struct doctor *d, const char *dir, const char *prefix,
		 void (*check)(struct doctor *d, const char *name))
{
	struct doctor_names names;

	doctor_list(d, &names, prefix, "%s", dir);
	for (size_t i = 0; i < names.count; i++)
		check(d, names.name[i]);
}

void doctor_check_pmem(struct doctor *d)
{
	size_t before = d->count;

	each(d, ND, "region", check_region);
	each(d, ND, "namespace", check_namespace);
	each(d, "/sys/block", "pmem", check_block_dax);
	each(d, DAX, "dax", check_dax_device);
	check_mounts(d);
	if (d->count == before)
		doctor_say(d, "pmem.devices", DOCTOR_NA, "", "no persistent memory: logs are "
			   "ordinary files, made "
			   "durable by msync");
}
