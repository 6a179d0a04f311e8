/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel tells of storage: see storage.h. */
#include "mkfs/storage.h"

#include "log/volume_place.h"

#include <blkid/blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

/* What blkid_do_safeprobe answers; anything else is an error. */
#define PROBE_FOUND 0
#define PROBE_NOTHING 1
#define PROBE_SEVERAL (-2)

/* "... MAJOR:MINOR root mountpoint options [optional]* - TYPE SOURCE options": proc(5). */
static bool mountinfo_match(const char *line, dev_t dev, char *type, char *source)
{
	unsigned major_no, minor_no;
	const char *tail = strstr(line, " - ");

	return tail && sscanf(line, "%*d %*d %u:%u", &major_no, &minor_no) == 2 &&
	       makedev(major_no, minor_no) == dev &&
	       sscanf(tail, " - %63s %255s", type, source) == 2;
}

void storage_fs_name(int dirfd, char *type, size_t type_cap, char *source, size_t source_cap)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char found_type[64] = "unknown", found_source[256] = "unknown", *line = NULL;
	size_t cap = 0;
	struct stat st;

	if (f && fstat(dirfd, &st) == 0) {
		while (getline(&line, &cap, f) > 0) {
			if (mountinfo_match(line, st.st_dev, found_type, found_source))
				break;
		}
	}
	free(line);
	if (f)
		fclose(f);
	snprintf(type, type_cap, "%s", found_type);
	snprintf(source, source_cap, "%s", found_source);
}

bool storage_new_files_are_dax(int dirfd)
{
	int fd = openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	bool dax;

	if (fd < 0)
		return false;
	dax = volume_fd_is_dax(fd);
	close(fd);
	return dax;
}

bool storage_is_tmpfs(int dirfd)
{
	struct statfs sfs;

	return fstatfs(dirfd, &sfs) == 0 &&
	       (sfs.f_type == TMPFS_MAGIC || sfs.f_type == RAMFS_MAGIC);
}

/* libblkid keeps no name of several, and looks for no partitions behind a doubt. */
static const char *signature_text(blkid_probe probe, int found)
{
	const char *value = NULL;

	if (found == PROBE_NOTHING)
		return "";
	if (found == PROBE_SEVERAL)
		return "several signatures: see wipefs(8)";
	if (blkid_probe_lookup_value(probe, "TYPE", &value, NULL) != 0 &&
	    blkid_probe_lookup_value(probe, "PTTYPE", &value, NULL) != 0)
		return "a signature without a name";
	return value;
}

void storage_signature(const char *path, char *ret_holds, size_t cap)
{
	blkid_probe probe;
	int found = -1;

	errno = 0;
	probe = blkid_new_probe_from_filename(path);
	if (probe) {
		blkid_probe_enable_superblocks(probe, 1);
		/* a damaged file system is somebody's data, too */
		blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_BADCSUM);
		blkid_probe_enable_partitions(probe, 1);
		errno = 0;
		found = blkid_do_safeprobe(probe);
	}
	if (found == PROBE_FOUND || found == PROBE_NOTHING || found == PROBE_SEVERAL)
		snprintf(ret_holds, cap, "%s", signature_text(probe, found));
	else
		snprintf(ret_holds, cap, "what can't be read: %s", strerror(errno ? errno : EIO));
	blkid_free_probe(probe);
}

uint64_t storage_memory_available(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	uint64_t kib = UINT64_MAX;
	char line[128];

	if (!f)
		return UINT64_MAX;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1)
			break;
	}
	fclose(f);
	return kib > UINT64_MAX / 1024 ? UINT64_MAX : kib * 1024;
}
