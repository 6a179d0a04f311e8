/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_VOLUME_H
#define KVFS_LOG_VOLUME_H
/*
 * A volume: the directory mkfs.kvfs makes, or the top directory of a /dev/pmemN (volume_place.h),
 * and its superblock.
 *
 *   VOLUME/superblock   two copies of the superblock (offsets 0 and 64 KiB), also the lock (flock)
 *   VOLUME/key          the volume key, hex, and the volume's UUID; mode 0600
 *   VOLUME/log.0 log.1  libpmemlog pools, or symbolic links to device-DAXes that are pools
 *   VOLUME/ckpt/        checkpoint segments and manifests
 *   VOLUME/control      the running daemon's control socket
 *   VOLUME/cut-*        what was cut from the log: see kvfs(5)
 */
#include "log/ckpt_io.h"
#include "log/epoch.h"
#include "log/volume_place.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VOLUME_FORMAT_VERSION 2 /* 1 had no lives of epochs */
#define VOLUME_KEY_BYTES 32
#define VOLUME_LABEL_MAX 63
#define VOLUME_SYNC_MAX 16
#define VOLUME_SUPERBLOCK_NAME "superblock"
#define VOLUME_KEY_NAME "key"
#define VOLUME_CONTROL_NAME "control"

enum volume_state {
	VOLUME_INCOMPLETE = 1, /* mkfs did not finish */
	VOLUME_READY = 2,
	/* a resync was replacing everything: only kvfs mirror may open it, and begins anew */
	VOLUME_RESYNCING = 3,
};

enum volume_feature { /* incompat mask: an unknown bit refuses the volume */
	VOLUME_FEATURE_NONE = 0,
};

struct volume_super {
	uint8_t uuid[16];
	char label[VOLUME_LABEL_MAX + 1];
	uint32_t format_version;
	uint32_t feature_incompat, feature_compat;
	enum volume_state state;
	uint32_t node_id;        /* random, non-zero, differs between the volume's nodes */
	uint64_t log_bytes;      /* both pools together */
	uint64_t created_ns;
	uint64_t sequence;       /* of the last write; volume_write_super raises it */
	uint64_t promised_epoch; /* the newest epoch this node has promised to obey, or begun as a
				    primary */
	uint32_t promised_node;  /* whose it is; 0: not known */
	uint32_t promised_life;  /* which start of it (log/epoch.h); 0: not known */
	uint32_t sync_count;     /* primary: of sync_nodes */
	uint32_t sync_nodes[VOLUME_SYNC_MAX]; /* primary: mirrors without which it acknowledges
						 nothing */
	uint64_t sync_epoch;     /* mirror: in sync, said the primary of this epoch; 0: it is not */
	struct epochs epochs;    /* the history of its log */
	uint8_t key_id[16];      /* hash of the key: tells a wrong key file from a damaged one */
	bool is_pmem;            /* what mkfs found: logs on DAX */
	/* made by mkfs.kvfs --join: only a promotion lets it take writes */
	bool is_mirror;
};

struct volume {
	int dirfd;               /* place's */
	struct volume_place place; /* owned; the private mount of a /dev/pmemN ends with it */
	int lockfd;
	char *path;              /* absolute */
	/* How the superblock is written; NULL: the system's calls. Tests put others in. */
	const struct ckpt_file_ops *files;
	void *files_ctx;
	struct volume_super super;
	bool used_second_copy;   /* the first superblock copy was damaged */
	unsigned copy;           /* the copy super was read from: the other is written first */
	uint8_t key[VOLUME_KEY_BYTES];
};

/*
 * Opens path and locks it exclusively (not with readonly_probe, which locks nothing and reads only
 * the superblock). On error *ret_why is a full clear sentence (common/because.h) naming cause and
 * remedy: errors of volume_place_open, -ENODATA not a volume, -EUCLEAN incomplete, -EPROTONOSUPPORT
 * version or feature, -EBADMSG both copies damaged, -EBUSY in use, -EKEYREJECTED key missing or not
 * this volume's, -EACCES.
 */
int volume_open(const char *path, bool readonly_probe, struct volume **ret_v, const char **ret_why);
void volume_close(struct volume *v);

/*
 * Writes both copies durably, one after the other, that which is not in use first: so at each
 * moment one whole copy is on media. Blocks. -EIO, -ENOSPC.
 */
int volume_write_super(struct volume *v);

/*
 * The parts volume_open is made of, for mkfs.kvfs and fsck.kvfs, which also work on what is
 * incomplete or damaged.
 *
 * volume_lock opens the superblock file (create: makes an empty one) and locks it; closing the
 * descriptor unlocks. -ENOENT, -EBUSY, -EROFS, -EACCES.
 */
enum volume_lock_mode { VOLUME_LOCK_READ_ONLY, VOLUME_LOCK_WRITE, VOLUME_LOCK_CREATE };
int volume_lock(int dirfd, enum volume_lock_mode mode, int *ret_lockfd);

/* Reads copy 0 or 1. As volume_super_decode; a missing or short copy is -ENODATA; -EIO. */
int volume_super_read(int fd, unsigned copy, struct volume_super *ret_s);

/*
 * Chooses the copy that counts: the valid one with the higher sequence. -EPROTONOSUPPORT when
 * either is of another version, -ENODATA when neither has the magic, -EBADMSG when none is valid,
 * -EIO.
 */
int volume_super_choose(int fd, struct volume_super *ret_s, unsigned *ret_copy);

/* One 4096-byte copy. decode: -EBADMSG, -ENODATA (magic), -EPROTONOSUPPORT. Pure. */
#define VOLUME_SUPER_COPIES 2
#define VOLUME_SUPER_BYTES 4096
#define VOLUME_SUPER_COPY_OFFSET 65536
void volume_super_encode(const struct volume_super *s, uint8_t out[VOLUME_SUPER_BYTES]);
int volume_super_decode(const uint8_t in[VOLUME_SUPER_BYTES], struct volume_super *ret_s);

/* True for at most VOLUME_LABEL_MAX bytes of UTF-8 text without control characters. */
bool volume_label_valid(const char *label, size_t len);

/*
 * A key file: 64 hex digits, newline, then "uuid=" and the volume's UUID, newline. The second line
 * may be missing: *ret_uuid is all zero then. read: -EBADMSG when it is not one, errors of open.
 * write: the whole file, durable, mode 0600.
 */
int volume_key_read(int dirfd, const char *name, uint8_t ret_key[VOLUME_KEY_BYTES],
		    uint8_t ret_uuid[16]);
int volume_key_write(int dirfd, const char *name, const uint8_t key[VOLUME_KEY_BYTES],
		     const uint8_t uuid[16]);
void volume_key_id(const uint8_t key[VOLUME_KEY_BYTES], uint8_t ret_id[16]);

/* "3f1c…-…": 36 characters and NUL. parse takes exactly those 36. -EINVAL. */
#define VOLUME_UUID_TEXT_BYTES 37
char *volume_uuid_format(const uint8_t uuid[16], char out[VOLUME_UUID_TEXT_BYTES]);
int volume_uuid_parse(const char *text, size_t len, uint8_t ret_uuid[16]);

#endif
