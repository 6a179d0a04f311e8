/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_CKPT_INTERNAL_H
#define KVFS_LOG_CKPT_INTERNAL_H
/* What the checkpoint's own files share. */
#include "log/ckpt.h"
#include "log/ckpt_codec.h"
#include "log/ckpt_io.h"

#include <pthread.h>

#define CKPT_DIR_NAME "ckpt"
#define CKPT_NAME_BYTES 32 /* any name here, with ".tmp" */
#define CKPT_PINS_MAX 8
#define CKPT_BAD_MAX 8

struct ckpt_pin { /* count 0: free */
	struct ckpt_info info;
	unsigned int count;
};

struct ckpt {
	int dirfd;
	uint8_t uuid[16];
	struct ckpt_hooks hooks;   /* set before first use */
	pthread_mutex_t mutex;     /* guards all below; a leaf: nothing is locked under it */
	bool writing;              /* one writer at a time */
	struct ckpt_pin pins[CKPT_PINS_MAX];
	uint64_t bad[CKPT_BAD_MAX]; /* numbers that ckpt_read found damaged; 0: free */
	struct ckpt_stats stats;
	uint64_t start_ns;          /* of the running checkpoint */
};

enum ckpt_name_kind { CKPT_NAME_SEG, CKPT_NAME_MANIFEST, CKPT_NAME_TMP, CKPT_NAME_OTHER };

/* What a name in the directory is; *ret_number for the first two kinds. */
enum ckpt_name_kind ckpt_name_parse(const char *name, uint64_t *ret_number);

/*
 * Calls fn for each name in the directory, which fn may remove. fn's non-zero return ends the walk
 * and is returned. -EIO, -ENOMEM, -EMFILE.
 */
int ckpt_dir_each(struct ckpt *c,
		  int (*fn)(void *ctx, const char *name, enum ckpt_name_kind kind, uint64_t number),
		  void *ctx);

/* The numbers of all manifests, newest first, in an array the caller frees. */
int ckpt_dir_manifests(struct ckpt *c, uint64_t **ret_numbers, size_t *ret_count);

/* -ENOENT; -EBADMSG: damaged, unreadable or foreign; -EPROTONOSUPPORT; -ENOMEM, -EMFILE. */
int ckpt_manifest_load(struct ckpt *c, uint64_t number, struct ckpt_manifest *ret_m);

/* Writes m so that after a crash it is there whole or not at all. */
int ckpt_manifest_store(struct ckpt *c, const struct ckpt_manifest *m);

/* Removes manifest number and makes that durable. */
int ckpt_manifest_remove(struct ckpt *c, uint64_t number);

/*
 * Removes manifests, then segments, that neither keep[0..keep_count) nor a pin names, and
 * leftovers. Manifests that it can't read count as not named.
 */
int ckpt_dir_prune(struct ckpt *c, const struct ckpt_info *keep, size_t keep_count);

/* Pins by value; the caller's info stays valid until ckpt_unpin. -EBUSY: too many. */
int ckpt_pin_info(struct ckpt *c, const struct ckpt_info *info);

bool ckpt_is_bad(struct ckpt *c, uint64_t number);

/* A checkpoint being written: ckpt_writer.c fills it, ckpt_commit.c begins and ends it. */
struct ckpt_writer {
	struct ckpt *c;
	struct ckpt_io *io;
	struct ckpt_info base;      /* number 0: there is none */
	struct ckpt_manifest m;     /* base's segments, then the finished new ones */
	uint32_t segs_cap, base_segs;
	int err;                    /* the first; only abort is allowed then */

	struct ckpt_seg seg;        /* the segment being filled */
	struct ckpt_io_file *file;  /* its file; NULL until its first block is begun */
	struct ckpt_io_file *closing; /* the one before, full but not synced */

	uint8_t *buf;               /* the block being filled, NULL: none */
	uint8_t *block;             /* where in buf its header is */
	uint32_t used, room;        /* payload bytes */
	uint32_t item_count;
};

/* Ends the last segment and syncs all of them. The writer's first error. */
int ckpt_writer_finish(struct ckpt_writer *w);
/* Closes the open files after an error; waits for their writes. */
void ckpt_writer_discard(struct ckpt_writer *w);

#endif
