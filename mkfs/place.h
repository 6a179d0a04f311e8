/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_MKFS_PLACE_H
#define KVFS_MKFS_PLACE_H
/*
 * The place a volume is to be made in: what is there, how much room, which kind of storage. A
 * directory, or a /dev/pmemN, which place_claim makes into a file system with DAX, mounted for this
 * process alone. Nothing here writes, but for an unnamed file that shows whether new files are DAX.
 * All block on the file system. 0 or -errno with a sentence in *ret_why
 * (common/because.h).
 */
#include "log/volume_place.h"

#include <stdbool.h>
#include <stdint.h>

enum place_medium {
	PLACE_FILE,   /* page cache over a disk: durable by msync */
	PLACE_PMEM,   /* DAX: durable by cache flushes */
	PLACE_MEMORY, /* tmpfs: gone at power-off */
};

enum place_content {
	PLACE_ABSENT,     /* the directory is to be made */
	PLACE_EMPTY,
	PLACE_FOREIGN,    /* files that are not a volume */
	PLACE_UNFINISHED, /* a volume whose mkfs did not finish */
	PLACE_VOLUME,     /* a volume, or the damaged rest of one */
	PLACE_SIGNATURE,  /* a device that holds something: what says what */
};

struct place {
	const char *path;
	enum place_content content;
	char what[160];         /* PLACE_VOLUME, PLACE_SIGNATURE: which one, for messages */
	bool is_block;          /* a block device: it has no directory before place_claim */
	struct volume_place on; /* dirfd is its; owned */
	int dirfd;              /* -1: absent */
	int lockfd;             /* its superblock locked; -1: it has none */
	uint64_t free_bytes;    /* for a volume, with what its old files give back */
	unsigned foreign_files; /* entries that are not the volume's own */
	enum place_medium medium;
	char fs_type[32];
	char fs_source[128];
};

/*
 * -ENOTDIR a file, or a device that is no persistent memory, -ENOENT no parent, -EBUSY a volume in
 * use, -EACCES, -EROFS, ... Whether the content may be overwritten is the caller's affair. On
 * success place_close is due.
 */
int place_open(const char *path, struct place *ret_place, const char **ret_why);
void place_close(struct place *p);

/* Makes the directory where it is absent, the file system on a device, and locks the superblock,
 * made if need be. free_bytes is what is free then. */
int place_claim(struct place *p, const char **ret_why);

/* After a failure: takes away what place_claim made, as far as it is empty. Closes the place. */
void place_abandon(struct place *p, bool was_absent);

/* A phrase: "an ordinary file (ext4 on /dev/vda), not persistent memory". */
const char *place_medium_name(enum place_medium m); /* for programs: "file", "pmem", "memory" */
const char *place_medium_text(enum place_medium m);

/* Names mkfs makes in a volume, "log.0" and so on; ends with NULL. */
extern const char *const place_volume_files[];

#endif
