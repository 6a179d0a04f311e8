/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_RECORD_H
#define KVFS_LOG_RECORD_H
/*
 * Operation records in host form: build, seal, encode, check, decode.
 * Pure functions of their arguments; any thread.
 */
#include "log/record_format.h"

#include <stdbool.h>
#include <sys/uio.h>

/* One operation in host byte order. Names and data point into caller's memory. */
struct record {
	uint64_t lsn;
	uint64_t ino;
	uint64_t gen;
	uint64_t timestamp_ns;
	uint64_t epoch;
	enum record_opcode opcode;
	union {
		struct {
			uint8_t uuid[16];
			uint64_t generation;
			uint32_t format_version;
			uint32_t node_id;
		} generation;
		struct {
			uint64_t parent_ino;
			uint32_t mode, uid, gid, rdev;
		} create;                 /* name: the name; name2: symlink target */
		struct {
			uint64_t offset;
			bool clear_suid;
		} write;                  /* data: the bytes */
		struct {
			uint32_t valid_mask, mode, uid, gid;
			uint64_t size, atime_ns, mtime_ns, ctime_ns;
		} setattr;
		struct {
			uint64_t parent_ino;
		} link;                   /* name */
		struct {
			uint64_t parent_ino;
			bool is_dir;
		} unlink;                 /* name */
		struct {
			uint64_t old_parent_ino, new_parent_ino, target_ino;
			uint32_t flags;
		} rename;                 /* name: old; name2: new */
		struct {
			uint64_t offset, length;
			uint32_t mode;
		} fallocate;
		struct {
			uint64_t src_ino, src_offset, dst_offset, length;
		} copy;
	} u;
	const void *name;
	uint32_t name_len;
	const void *name2;
	uint32_t name2_len;
	const void *data;             /* WRITE: bytes; SETXATTR: value */
	uint32_t data_len;
};

/* Bytes of the encoded head (header, body and names) of r, at most RECORD_HEAD_MAX. */
#define RECORD_HEAD_MAX (RECORD_HEADER_BYTES + 64 + 256 + 4096)
size_t record_head_bytes(const struct record *r);

/* Bytes of the whole record: head and data. */
size_t record_bytes(const struct record *r);

/*
 * Writes header, body and names of r to out (record_head_bytes(r) bytes), with LSN, epoch
 * and checksum zero. What follows on media and wire is the data_len bytes of data.
 */
void record_encode_head(const struct record *r, void *out);

/*
 * Completes an encoded head: sets LSN and epoch and the checksum.
 * data_crc is crc32c(0, data, data_len) of the bytes that follow, so that the data are
 * read once, when they are copied, and not again under the lock that gives the LSN.
 */
void record_seal(void *head, size_t head_len, uint64_t lsn, uint64_t epoch,
		 uint32_t data_crc, size_t data_len);

/*
 * Length of the record that begins at buf, from its header alone: RECORD_HEADER_BYTES plus
 * value_len. Returns 0, -EAGAIN when fewer than RECORD_HEADER_BYTES are there, -EBADMSG when
 * the length is out of range.
 */
int record_peek_bytes(const void *buf, size_t len, size_t *ret_bytes);

/*
 * Checks and decodes the record at buf. Pointers in *ret_r point into buf.
 * Returns 0; -EAGAIN when buf ends before the record does; -EBADMSG when anything about it is
 * invalid (length, checksum, opcode, field ranges, names with '/' or NUL, "." and "..").
 */
int record_decode(const void *buf, size_t len, struct record *ret_r, size_t *ret_bytes);

/* The opcode's name for messages, "invalid" when there is none. */
const char *record_opcode_name(enum record_opcode opcode);

#endif
