/* SPDX-License-Identifier: Apache-2.0 */
#include "mkfs/storage.h"

#include "log/volume_place.h"

#include <blkid/blkid.h>
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

bool storage_signature(const char *path, char *name, size_t cap)
{
	blkid_probe probe = blkid_new_probe_from_filename(path);
	const char *value = NULL;

	if (!probe)
		return false;
	blkid_probe_enable_superblocks(probe, 1);
	blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_TYPE);
	blkid_probe_enable_partitions(probe, 1);
	if (blkid_do_safeprobe(probe) != 1 &&
	    (blkid_probe_lookup_value(probe, "TYPE", &value, NULL) == 0 ||
	     blkid_probe_lookup_value(probe, "PTTYPE", &value, NULL) == 0))
		snprintf(name, cap, "%s", value);
	blkid_free_probe(probe);
	return value != NULL;
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
