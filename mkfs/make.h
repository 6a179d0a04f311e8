/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_MKFS_MAKE_H
#define KVFS_MKFS_MAKE_H
/*
 * Makes a volume. Order: superblock that says INCOMPLETE, durable; what an older volume left is
 * removed; key, log pools, checkpoint directory; all synced; superblock that says READY. A stop at
 * any point leaves something that says it is incomplete. One thread, and one that shows progress.
 */
#include "log/volume.h"
#include "mkfs/place.h"
#include "mkfs/progress.h"

#include <stdbool.h>
#include <stdint.h>

struct make_plan {
	char label[VOLUME_LABEL_MAX + 1];
	uint64_t log_bytes; /* both pools */
	uint8_t uuid[16];
	uint8_t key[VOLUME_KEY_BYTES];
	bool joins;         /* UUID and key are another node's */
	/* device-DAXes by their full paths, which become the pools; NULL: files */
	char *log_device[2];
};

/* Both pools together; whole pages of both kinds in each pool. */
#define MAKE_LOG_STEP (2ULL << 20)
/* What a volume takes beside its logs, with room for a first small checkpoint. */
#define MAKE_SPACE_BESIDE_LOGS (4ULL << 20)

/* A new UUID and key. */
void make_plan_random(struct make_plan *plan);

/* The default log size for so much free space; 0 when it is too little for any. */
uint64_t make_default_log_bytes(uint64_t free_bytes);

/*
 * Makes it in place, which place_open returned. *ret_super is what was written, *ret_medium what
 * the finished logs turned out to be on. On error, one sentence in *ret_why, and what was made is
 * removed.
 */
int make_volume(struct place *place, const struct make_plan *plan, struct progress *progress,
		struct volume_super *ret_super, enum place_medium *ret_medium,
		const char **ret_why);

#endif
