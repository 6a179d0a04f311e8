/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_RECORD_FORMAT_H
#define KVFS_LOG_RECORD_FORMAT_H
/*
 * The operation record: one namespace or value change, as it stands in the log and on the wire. All
 * integers are big-endian, nothing is padded implicitly.
 *
 *   header (40) | body: common part (16), then the opcode's fixed part | payload
 *
 * The payload is names or value bytes; its length is what is left of value_len. The checksum is
 * CRC32C over the data bytes of the payload first, then header (its own field taken as zero), body
 * and names: so a writer can sum the data while copying them, before the LSN is known, and only
 * chain the short head behind.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define RECORD_HEADER_BYTES 40
#define RECORD_NAME_MAX 255          /* bytes of one name, no NUL, no '/' */
#define RECORD_SYMLINK_MAX 4095      /* bytes of a link's target */
#define RECORD_XATTR_VALUE_MAX 65536
#define RECORD_DATA_MAX (1U << 20)   /* value bytes of one WRITE record */
/* The largest whole record: a WRITE of RECORD_DATA_MAX bytes and its body. */
#define RECORD_BYTES_MAX (RECORD_HEADER_BYTES + 64 + RECORD_DATA_MAX)

enum record_opcode {
	RECORD_GENERATION = 1, /* first record of a log pool */
	RECORD_NOOP = 2,       /* takes an LSN, changes nothing (new epoch, probe) */
	RECORD_CREATE = 3,     /* file, directory, symlink, fifo, socket, device */
	RECORD_WRITE = 4,
	RECORD_SETATTR = 5,    /* mode, owner, size, times: as valid_mask says */
	RECORD_LINK = 6,
	RECORD_UNLINK = 7,     /* also rmdir */
	RECORD_RENAME = 8,
	RECORD_FALLOCATE = 9,
	RECORD_COPY = 10,      /* copy_file_range inside the volume */
	RECORD_SETXATTR = 11,
	RECORD_REMOVEXATTR = 12,
	RECORD_INODE_FREE = 13, /* last reference to an unlinked inode is gone */
	RECORD_OPCODE_END
};

struct record_header {
	uint64_t seq_id;       /* LSN; for GENERATION the LSN the next record will have */
	uint64_t key_ino;      /* the object's id: inode number ... */
	uint64_t key_gen;      /* ... and generation */
	uint32_t value_len;    /* bytes after this header */
	uint32_t checksum;     /* CRC32C */
	uint64_t timestamp;    /* ns since 1970 */
} __attribute__((packed));
static_assert(sizeof(struct record_header) == RECORD_HEADER_BYTES, "record header");

struct record_common {
	uint64_t epoch;
	uint16_t opcode;
	uint16_t flags;        /* none defined yet: must be zero */
	uint32_t fixed_len;    /* bytes of the opcode's fixed part */
} __attribute__((packed));
static_assert(sizeof(struct record_common) == 16, "record common part");

/* payload: none. key is zero. */
struct record_generation {
	uint8_t uuid[16];      /* volume */
	uint64_t generation;   /* rises by one each time a pool is begun */
	uint32_t format_version;
	uint32_t node_id;
} __attribute__((packed));
static_assert(sizeof(struct record_generation) == 32, "generation record");

/* key: the new inode. payload: name_len name bytes, then the symlink target. */
struct record_create {
	uint64_t parent_ino;
	uint32_t mode;         /* with the file type bits */
	uint32_t uid;
	uint32_t gid;
	uint32_t rdev;
	uint16_t name_len;
	uint16_t target_len;
	uint32_t zero;
} __attribute__((packed));
static_assert(sizeof(struct record_create) == 32, "create record");

/* key: the inode. payload: the bytes. */
struct record_write {
	uint64_t offset;
	uint32_t length;       /* equals the payload's length */
	uint32_t clear_suid;   /* 1: drop setuid/setgid as write(2) does */
} __attribute__((packed));
static_assert(sizeof(struct record_write) == 16, "write record");

enum record_setattr_valid {
	RECORD_SET_MODE = 1,
	RECORD_SET_UID = 2,
	RECORD_SET_GID = 4,
	RECORD_SET_SIZE = 8,
	RECORD_SET_ATIME = 16,
	RECORD_SET_MTIME = 32,
	RECORD_SET_CTIME = 64, /* an explicit ctime; without it ctime = timestamp */
	RECORD_SET_ATIME_ONLY = 128, /* relatime update: ctime stays */
	RECORD_SET_ALL = 255
};

struct record_setattr {
	uint32_t valid_mask;
	uint32_t mode;         /* permission bits only */
	uint32_t uid;
	uint32_t gid;
	uint64_t size;
	uint64_t atime_ns;
	uint64_t mtime_ns;
	uint64_t ctime_ns;
} __attribute__((packed));
static_assert(sizeof(struct record_setattr) == 48, "setattr record");

/* key: the inode that gets another name. payload: the name. */
struct record_link {
	uint64_t parent_ino;
	uint16_t name_len;
	uint8_t zero[6];
} __attribute__((packed));
static_assert(sizeof(struct record_link) == 16, "link record");

/* key: the inode that loses the name. payload: the name. */
struct record_unlink {
	uint64_t parent_ino;
	uint16_t name_len;
	uint16_t is_dir;
	uint8_t zero[4];
} __attribute__((packed));
static_assert(sizeof(struct record_unlink) == 16, "unlink record");

/* key: the inode that moves. payload: old name, then new name. */
struct record_rename {
	uint64_t old_parent_ino;
	uint64_t new_parent_ino;
	uint64_t target_ino;   /* what new name was before, 0 if it was free */
	uint16_t old_name_len;
	uint16_t new_name_len;
	uint32_t flags;        /* 2 (RENAME_EXCHANGE) or 0 */
} __attribute__((packed));
static_assert(sizeof(struct record_rename) == 32, "rename record");

/* key: the inode. mode: the FALLOC_FL_* bits of fallocate(2) that are supported. */
struct record_fallocate {
	uint64_t offset;
	uint64_t length;
	uint32_t mode;
	uint32_t zero;
} __attribute__((packed));
static_assert(sizeof(struct record_fallocate) == 24, "fallocate record");

/* key: the destination. */
struct record_copy {
	uint64_t src_ino;
	uint64_t src_offset;
	uint64_t dst_offset;
	uint64_t length;
} __attribute__((packed));
static_assert(sizeof(struct record_copy) == 32, "copy record");

/* key: the inode. payload: name, then value (REMOVEXATTR: no value). */
struct record_xattr {
	uint16_t name_len;
	uint16_t zero;
	uint32_t value_len;
} __attribute__((packed));
static_assert(sizeof(struct record_xattr) == 8, "xattr record");

#endif
