/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building operation records: sizes, encoding and sealing. Decoding is in record_decode.c.
 * Pure functions, any thread, no errors: what a caller passes is its own operation, already
 * checked. Fields an operation does not use are written as zero, so that the same operation gives
 * the same bytes on every node.
 */
#include "log/record.h"
#include "log/record_internal.h"

#include "common/byteorder.h"
#include "common/crc32c.h"

#include <assert.h>
#include <string.h>

#define FIELD(out, type, member) ((uint8_t *)(out) + offsetof(struct type, member))

static const uint8_t fixed_bytes[RECORD_OPCODE_END] = {
	[RECORD_GENERATION] = sizeof(struct record_generation),
	[RECORD_NOOP] = 0,
	[RECORD_CREATE] = sizeof(struct record_create),
	[RECORD_WRITE] = sizeof(struct record_write),
	[RECORD_SETATTR] = sizeof(struct record_setattr),
	[RECORD_LINK] = sizeof(struct record_link),
	[RECORD_UNLINK] = sizeof(struct record_unlink),
	[RECORD_RENAME] = sizeof(struct record_rename),
	[RECORD_FALLOCATE] = sizeof(struct record_fallocate),
	[RECORD_COPY] = sizeof(struct record_copy),
	[RECORD_SETXATTR] = sizeof(struct record_xattr),
	[RECORD_REMOVEXATTR] = sizeof(struct record_xattr),
	[RECORD_INODE_FREE] = 0,
};

size_t record_fixed_bytes(unsigned opcode)
{
	return opcode < RECORD_OPCODE_END ? fixed_bytes[opcode] : 0;
}

static bool has_name(enum record_opcode opcode)
{
	switch (opcode) {
	case RECORD_CREATE:
	case RECORD_LINK:
	case RECORD_UNLINK:
	case RECORD_RENAME:
	case RECORD_SETXATTR:
	case RECORD_REMOVEXATTR:
		return true;
	default:
		return false;
	}
}

static size_t name_bytes(const struct record *r)
{
	return has_name(r->opcode) ? r->name_len : 0;
}

static size_t name2_bytes(const struct record *r)
{
	return r->opcode == RECORD_CREATE || r->opcode == RECORD_RENAME ? r->name2_len : 0;
}

static size_t data_bytes(const struct record *r)
{
	return r->opcode == RECORD_WRITE || r->opcode == RECORD_SETXATTR ? r->data_len : 0;
}

size_t record_head_bytes(const struct record *r)
{
	return sizeof(struct record_header) + sizeof(struct record_common) +
	       record_fixed_bytes(r->opcode) + name_bytes(r) + name2_bytes(r);
}

size_t record_bytes(const struct record *r)
{
	return record_head_bytes(r) + data_bytes(r);
}

static void encode_generation(const struct record *r, void *out)
{
	memcpy(FIELD(out, record_generation, uuid), r->u.generation.uuid, 16);
	put_be64(FIELD(out, record_generation, generation), r->u.generation.generation);
	put_be32(FIELD(out, record_generation, format_version), r->u.generation.format_version);
	put_be32(FIELD(out, record_generation, node_id), r->u.generation.node_id);
}

static void encode_create(const struct record *r, void *out)
{
	put_be64(FIELD(out, record_create, parent_ino), r->u.create.parent_ino);
	put_be32(FIELD(out, record_create, mode), r->u.create.mode);
	put_be32(FIELD(out, record_create, uid), r->u.create.uid);
	put_be32(FIELD(out, record_create, gid), r->u.create.gid);
	put_be32(FIELD(out, record_create, rdev), r->u.create.rdev);
	put_be16(FIELD(out, record_create, name_len), (uint16_t)r->name_len);
	put_be16(FIELD(out, record_create, target_len), (uint16_t)r->name2_len);
}

static void encode_setattr(const struct record *r, void *out)
{
	uint32_t valid = r->u.setattr.valid_mask;

	put_be32(FIELD(out, record_setattr, valid_mask), valid);
	if (valid & RECORD_SET_MODE)
		put_be32(FIELD(out, record_setattr, mode), r->u.setattr.mode);
	if (valid & RECORD_SET_UID)
		put_be32(FIELD(out, record_setattr, uid), r->u.setattr.uid);
	if (valid & RECORD_SET_GID)
		put_be32(FIELD(out, record_setattr, gid), r->u.setattr.gid);
	if (valid & RECORD_SET_SIZE)
		put_be64(FIELD(out, record_setattr, size), r->u.setattr.size);
	if (valid & (RECORD_SET_ATIME | RECORD_SET_ATIME_ONLY))
		put_be64(FIELD(out, record_setattr, atime_ns), r->u.setattr.atime_ns);
	if (valid & RECORD_SET_MTIME)
		put_be64(FIELD(out, record_setattr, mtime_ns), r->u.setattr.mtime_ns);
	if (valid & RECORD_SET_CTIME)
		put_be64(FIELD(out, record_setattr, ctime_ns), r->u.setattr.ctime_ns);
}

static void encode_rename(const struct record *r, void *out)
{
	put_be64(FIELD(out, record_rename, old_parent_ino), r->u.rename.old_parent_ino);
	put_be64(FIELD(out, record_rename, new_parent_ino), r->u.rename.new_parent_ino);
	put_be64(FIELD(out, record_rename, target_ino), r->u.rename.target_ino);
	put_be16(FIELD(out, record_rename, old_name_len), (uint16_t)r->name_len);
	put_be16(FIELD(out, record_rename, new_name_len), (uint16_t)r->name2_len);
	put_be32(FIELD(out, record_rename, flags), r->u.rename.flags);
}

static void encode_copy(const struct record *r, void *out)
{
	put_be64(FIELD(out, record_copy, src_ino), r->u.copy.src_ino);
	put_be64(FIELD(out, record_copy, src_offset), r->u.copy.src_offset);
	put_be64(FIELD(out, record_copy, dst_offset), r->u.copy.dst_offset);
	put_be64(FIELD(out, record_copy, length), r->u.copy.length);
}

/* The opcode's fixed part, into zeroed memory. */
static void encode_fixed(const struct record *r, void *out)
{
	switch (r->opcode) {
	case RECORD_GENERATION:
		encode_generation(r, out);
		break;
	case RECORD_CREATE:
		encode_create(r, out);
		break;
	case RECORD_WRITE:
		put_be64(FIELD(out, record_write, offset), r->u.write.offset);
		put_be32(FIELD(out, record_write, length), r->data_len);
		put_be32(FIELD(out, record_write, clear_suid), r->u.write.clear_suid);
		break;
	case RECORD_SETATTR:
		encode_setattr(r, out);
		break;
	case RECORD_LINK:
		put_be64(FIELD(out, record_link, parent_ino), r->u.link.parent_ino);
		put_be16(FIELD(out, record_link, name_len), (uint16_t)r->name_len);
		break;
	case RECORD_UNLINK:
		put_be64(FIELD(out, record_unlink, parent_ino), r->u.unlink.parent_ino);
		put_be16(FIELD(out, record_unlink, name_len), (uint16_t)r->name_len);
		put_be16(FIELD(out, record_unlink, is_dir), r->u.unlink.is_dir);
		break;
	case RECORD_RENAME:
		encode_rename(r, out);
		break;
	case RECORD_FALLOCATE:
		put_be64(FIELD(out, record_fallocate, offset), r->u.fallocate.offset);
		put_be64(FIELD(out, record_fallocate, length), r->u.fallocate.length);
		put_be32(FIELD(out, record_fallocate, mode), r->u.fallocate.mode);
		break;
	case RECORD_COPY:
		encode_copy(r, out);
		break;
	case RECORD_SETXATTR:
	case RECORD_REMOVEXATTR:
		put_be16(FIELD(out, record_xattr, name_len), (uint16_t)r->name_len);
		put_be32(FIELD(out, record_xattr, value_len), (uint32_t)data_bytes(r));
		break;
	case RECORD_NOOP:
	case RECORD_INODE_FREE:
	case RECORD_OPCODE_END:
		break;
	}
}

void record_encode_head(const struct record *r, void *out)
{
	size_t fixed = record_fixed_bytes(r->opcode);
	uint8_t *common = (uint8_t *)out + sizeof(struct record_header);
	uint8_t *body = common + sizeof(struct record_common);

	assert(r->opcode > 0 && r->opcode < RECORD_OPCODE_END);
	memset(out, 0, sizeof(struct record_header) + sizeof(struct record_common) + fixed);
	put_be64(FIELD(out, record_header, key_ino), r->ino);
	put_be64(FIELD(out, record_header, key_gen), r->gen);
	put_be32(FIELD(out, record_header, value_len),
		 (uint32_t)(record_bytes(r) - sizeof(struct record_header)));
	put_be64(FIELD(out, record_header, timestamp), r->timestamp_ns);
	put_be16(FIELD(common, record_common, opcode), (uint16_t)r->opcode);
	put_be32(FIELD(common, record_common, fixed_len), (uint32_t)fixed);
	encode_fixed(r, body);
	if (name_bytes(r) > 0)
		memcpy(body + fixed, r->name, name_bytes(r));
	if (name2_bytes(r) > 0)
		memcpy(body + fixed + name_bytes(r), r->name2, name2_bytes(r));
}

void record_seal(void *head, size_t head_len, uint64_t lsn, uint64_t epoch, uint32_t data_crc,
		 size_t data_len)
{
	uint8_t *common = (uint8_t *)head + sizeof(struct record_header);

	assert(get_be32(FIELD(head, record_header, value_len)) ==
	       head_len - sizeof(struct record_header) + data_len);
	put_be64(FIELD(head, record_header, seq_id), lsn);
	put_be64(FIELD(common, record_common, epoch), epoch);
	put_be32(FIELD(head, record_header, checksum), 0);
	put_be32(FIELD(head, record_header, checksum), crc32c(data_crc, head, head_len));
}

const char *record_opcode_name(enum record_opcode opcode)
{
	static const char *const names[RECORD_OPCODE_END] = {
		[RECORD_GENERATION] = "generation", [RECORD_NOOP] = "noop",
		[RECORD_CREATE] = "create",         [RECORD_WRITE] = "write",
		[RECORD_SETATTR] = "setattr",       [RECORD_LINK] = "link",
		[RECORD_UNLINK] = "unlink",         [RECORD_RENAME] = "rename",
		[RECORD_FALLOCATE] = "fallocate",   [RECORD_COPY] = "copy",
		[RECORD_SETXATTR] = "setxattr",     [RECORD_REMOVEXATTR] = "removexattr",
		[RECORD_INODE_FREE] = "inode_free",
	};

	if ((unsigned)opcode >= RECORD_OPCODE_END || names[opcode] == NULL)
		return "invalid";
	return names[opcode];
}
