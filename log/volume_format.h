/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_VOLUME_FORMAT_H
#define KVFS_LOG_VOLUME_FORMAT_H
/*
 * The superblock as it stands on media: one 4096-byte copy. Big-endian, nothing padded implicitly.
 *
 * magic, format_version and checksum keep their places in every version, and the checksum is always
 * CRC32C over the 4096 bytes with its own field taken as zero: so a program can tell a newer format
 * from a damaged superblock. Bytes after the struct are zero and may be given a meaning by a compat
 * feature; a change that an older program must not ignore sets an incompat bit.
 */
#include "log/epoch.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define VOLUME_MAGIC "kvfsVOL\n"
#define VOLUME_MAGIC_BYTES 8

enum volume_media_flags {
	VOLUME_MEDIA_PMEM = 1,   /* the logs are on DAX */
	VOLUME_MEDIA_MIRROR = 2, /* made as a mirror and not promoted */
};

struct volume_media {
	uint8_t magic[VOLUME_MAGIC_BYTES];
	uint32_t format_version;
	uint32_t checksum;
	uint32_t feature_incompat;
	uint32_t feature_compat;
	uint8_t uuid[16];
	uint32_t state;
	uint32_t node_id;
	uint64_t sequence;       /* rises with each write; of two valid copies the higher counts */
	uint64_t log_bytes;
	uint64_t created_ns;
	uint64_t promised_epoch;
	uint8_t key_id[16];
	uint32_t flags;          /* enum volume_media_flags; others must be zero */
	uint32_t label_len;      /* 0..63 */
	uint8_t label[64];       /* the rest zero */
	uint32_t promised_node;  /* whose epoch promised_epoch is; 0: not known */
	uint32_t sync_count;     /* primary: of sync_nodes */
	uint64_t
	    sync_epoch; /* mirror: in sync, as the primary of that epoch said; 0: not in sync */
	uint32_t sync_nodes[16]; /* primary: mirrors without which nothing is acknowledged; the rest
				    zero */
	uint32_t epochs_count;   /* of epochs */
	uint32_t promised_life;  /* and of which start of it; 0: not known */
	uint8_t epochs[EPOCHS_BYTES_MAX]; /* where each epoch of the log's history began; the rest
					     zero */
} __attribute__((packed));
static_assert(sizeof(struct volume_media) == 1792, "superblock");
static_assert(offsetof(struct volume_media, promised_node) == 168, "what was added stands behind");
static_assert(offsetof(struct volume_media, checksum) == 12, "checksum's place");
static_assert(offsetof(struct volume_media, sequence) == 48, "sequence's place");

#endif
