/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_MKFS_FSCK_INTERNAL_H
#define KVFS_MKFS_FSCK_INTERNAL_H
/*
 * What fsck.kvfs's parts share. The checks run one after the other in one thread, each reporting
 * what it finds by fsck_problem and fsck_note:
 *   fsck_super.c  superblock copies, key
 *   fsck_log.c    every record of both pools; fsck_cut.c cuts a damaged one off
 *   fsck_ckpt.c   every manifest and segment, files of none; with fsck_index.h, the index
 *   fsck_chain.c  whether a checkpoint and the log together reach; what may be dropped
 * A check returns 0 also when it found problems; -errno is an operational error, already reported.
 */
#include "log/ckpt.h"
#include "log/oplog.h"
#include "log/volume.h"
#include "mkfs/progress.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum fsck_exit { /* as fsck(8); they add up */
	FSCK_OK = 0,
	FSCK_CORRECTED = 1,
	FSCK_UNCORRECTED = 4,
	FSCK_OPERATIONAL = 8,
	FSCK_USAGE = 16,
};

/* Where a finding is; zero or negative members are left out. */
struct fsck_place {
	const char *file;
	int64_t offset; /* -1: none */
	uint64_t lsn;
	uint64_t seg;
};

struct fsck_pool {
	const char *name;
	const struct logdev_ops *ops; /* how it is opened */
	bool opened;
	bool generation_valid; /* it begins with this volume's generation record */
	bool torn;             /* at used_bytes begins what is not valid */
	bool unreadable;       /* or what the medium can't give back */
	uint64_t generation, base_lsn, last_lsn, epoch;
	uint64_t records;      /* without the generation record */
	uint64_t used_bytes;   /* valid */
	uint64_t stored_bytes; /* all */
	uint64_t island_offset, island_lsn; /* a valid record behind the damage; offset 0: none */
};

struct fsck_ckpt {
	struct ckpt_info info;
	bool valid;    /* every segment was read and is good, and so is the index in them */
	uint64_t items;
};

struct fsck {
	const char *path;
	bool repair;   /* -y, -a, -p */
	bool cut;      /* -y: somebody decides against what lies behind the damage */
	bool json;
	struct progress progress;
	int dirfd, lockfd;
	struct volume_place place; /* dirfd is its */
	struct volume_super super;
	bool super_valid;
	struct fsck_pool pools[OPLOG_POOLS];
	struct fsck_ckpt ckpts[2]; /* newest first */
	int ckpt_count;
	uint64_t newest_listed; /* number of the newest checkpoint with a valid manifest */
	bool keep_strays;       /* a damaged checkpoint stays: its files may still be of use */
	json_t *findings;
	unsigned corrected, left, notes;
	bool operational;
};

/*
 * Reports a problem. repairable: says that -y repairs it; true then with -y, and the caller repairs
 * it and calls fsck_repaired with the result.
 */
bool fsck_problem(struct fsck *f, const struct fsck_place *place, bool repairable, const char *fmt,
		  ...) __attribute__((format(printf, 4, 5)));
void fsck_repaired(struct fsck *f, int err, const char *what);

/* Something worth saying that is not wrong. */
void fsck_note(struct fsck *f, const struct fsck_place *place, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* What a problem that is reported later consists of. */
void fsck_detail(struct fsck *f, const struct fsck_place *place, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Couldn't check: reports it once. Returns err. */
int fsck_fail(struct fsck *f, const char *what, int err);

int fsck_exit_status(const struct fsck *f);
void fsck_summary(struct fsck *f);

int fsck_check_super(struct fsck *f);
int fsck_check_key(struct fsck *f);
int fsck_check_log(struct fsck *f);
int fsck_check_ckpts(struct fsck *f);

/*
 * Cuts the open pool off behind its valid records: what follows goes to a new file "cut-LSN" in the
 * volume (its name in ret_name), and a pool with the valid part takes the old one's place. Nothing
 * is lost at any point. dev still shows the old pool. -ENOSPC, -EIO.
 */
#define FSCK_CUT_NAME_BYTES 48
struct logdev;
int fsck_log_cut(struct fsck *f, struct fsck_pool *p, struct logdev *dev,
		 char ret_name[FSCK_CUT_NAME_BYTES]);

/* Needs the results of the log and the checkpoints. Repairs, too. */
int fsck_check_chain(struct fsck *f);

/* Removes the manifest, durably. */
int fsck_ckpt_drop(struct fsck *f, uint64_t number);

bool fsck_name_is_manifest(const char *name, uint64_t *ret_number);

/* Files in the checkpoint directory that no kept checkpoint names. After fsck_check_chain. */
int fsck_check_strays(struct fsck *f);

#endif
