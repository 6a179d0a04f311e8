/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checking and decoding operation records, from media or wire: nothing in them is trusted.
 * In three steps: the lengths (all sums bounded before any pointer is made), the checksum, the
 * meaning. Pure, any thread. -EAGAIN: not all bytes there yet; -EBADMSG: invalid.
 */
#include "log/record.h"
#include "log/record_internal.h"

#include "common/byteorder.h"
#include "common/crc32c.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/stat.h>

#define FIELD(in, type, member) ((const uint8_t *)(in) + offsetof(struct type, member))
#define HEAD_FIXED_BYTES (sizeof(struct record_header) + sizeof(struct record_common))

int record_peek_bytes(const void *buf, size_t len, size_t *ret_bytes)
{
	uint32_t value_len;

	if (len < sizeof(struct record_header))
		return -EAGAIN;
	value_len = get_be32(FIELD(buf, record_header, value_len));
	if (value_len < sizeof(struct record_common) ||
	    value_len > RECORD_BYTES_MAX - sizeof(struct record_header))
		return -EBADMSG;
	*ret_bytes = sizeof(struct record_header) + value_len;
	return 0;
}

/* Splits payload bytes into name, name2 and data as the fixed part says. */
static int decode_lengths(const uint8_t *fixed, const uint8_t *payload, size_t payload_len,
			  struct record *r)
{
	size_t name = 0, name2 = 0, data = 0;

	switch (r->opcode) {
	case RECORD_CREATE:
		name = get_be16(FIELD(fixed, record_create, name_len));
		name2 = get_be16(FIELD(fixed, record_create, target_len));
		break;
	case RECORD_WRITE:
		data = get_be32(FIELD(fixed, record_write, length));
		break;
	case RECORD_LINK:
		name = get_be16(FIELD(fixed, record_link, name_len));
		break;
	case RECORD_UNLINK:
		name = get_be16(FIELD(fixed, record_unlink, name_len));
		break;
	case RECORD_RENAME:
		name = get_be16(FIELD(fixed, record_rename, old_name_len));
		name2 = get_be16(FIELD(fixed, record_rename, new_name_len));
		break;
	case RECORD_SETXATTR:
	case RECORD_REMOVEXATTR:
		name = get_be16(FIELD(fixed, record_xattr, name_len));
		data = get_be32(FIELD(fixed, record_xattr, value_len));
		break;
	default:
		break;
	}
	if (data > payload_len || name + name2 != payload_len - data)
		return -EBADMSG;
	r->name = name > 0 ? payload : NULL;
	r->name_len = (uint32_t)name;
	r->name2 = name2 > 0 ? payload + name : NULL;
	r->name2_len = (uint32_t)name2;
	r->data = data > 0 ? payload + name + name2 : NULL;
	r->data_len = (uint32_t)data;
	return 0;
}

static bool checksum_ok(const uint8_t *buf, size_t bytes, size_t data_len)
{
	static const uint8_t zero[4];
	const size_t at = offsetof(struct record_header, checksum);
	size_t head_len = bytes - data_len;
	uint32_t crc = crc32c(0, buf + head_len, data_len);

	crc = crc32c(crc, buf, at);
	crc = crc32c(crc, zero, sizeof(zero));
	crc = crc32c(crc, buf + at + sizeof(zero), head_len - at - sizeof(zero));
	return crc == get_be32(buf + at);
}

static bool all_zero(const uint8_t *p, size_t len)
{
	uint8_t any = 0;

	while (len-- > 0)
		any |= *p++;
	return any == 0;
}

static bool name_ok(const char *name, size_t len)
{
	if (len == 0 || len > RECORD_NAME_MAX)
		return false;
	if (memchr(name, '/', len) != NULL || memchr(name, '\0', len) != NULL)
		return false;
	return !(name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')));
}

static bool range_ok(uint64_t offset, uint64_t length)
{
	return offset <= RECORD_OFFSET_MAX && length <= RECORD_OFFSET_MAX - offset;
}

static bool decode_generation(const uint8_t *in, struct record *r)
{
	memcpy(r->u.generation.uuid, FIELD(in, record_generation, uuid), 16);
	r->u.generation.generation = get_be64(FIELD(in, record_generation, generation));
	r->u.generation.format_version = get_be32(FIELD(in, record_generation, format_version));
	r->u.generation.node_id = get_be32(FIELD(in, record_generation, node_id));
	return r->ino == 0 && r->gen == 0 && r->u.generation.generation != 0;
}

static bool decode_create(const uint8_t *in, struct record *r)
{
	uint32_t mode = get_be32(FIELD(in, record_create, mode));
	uint32_t type = mode & S_IFMT;
	bool device = type == S_IFBLK || type == S_IFCHR;

	r->u.create.parent_ino = get_be64(FIELD(in, record_create, parent_ino));
	r->u.create.mode = mode;
	r->u.create.uid = get_be32(FIELD(in, record_create, uid));
	r->u.create.gid = get_be32(FIELD(in, record_create, gid));
	r->u.create.rdev = get_be32(FIELD(in, record_create, rdev));
	if (!device && type != S_IFREG && type != S_IFDIR && type != S_IFLNK &&
	    type != S_IFIFO && type != S_IFSOCK)
		return false;
	if ((mode & ~(uint32_t)(S_IFMT | 07777)) != 0 || (!device && r->u.create.rdev != 0))
		return false;
	if ((type == S_IFLNK) != (r->name2_len > 0) || r->name2_len > RECORD_SYMLINK_MAX)
		return false;
	if (r->name2_len > 0 && memchr(r->name2, '\0', r->name2_len) != NULL)
		return false;
	return r->u.create.parent_ino != 0 && name_ok(r->name, r->name_len) &&
	       get_be32(FIELD(in, record_create, zero)) == 0;
}

static bool decode_write(const uint8_t *in, struct record *r)
{
	uint32_t clear_suid = get_be32(FIELD(in, record_write, clear_suid));

	r->u.write.offset = get_be64(FIELD(in, record_write, offset));
	r->u.write.clear_suid = clear_suid == 1;
	return clear_suid <= 1 && r->data_len <= RECORD_DATA_MAX &&
	       range_ok(r->u.write.offset, r->data_len);
}

static bool decode_setattr(const uint8_t *in, struct record *r)
{
	uint32_t valid = get_be32(FIELD(in, record_setattr, valid_mask));
	bool atime = (valid & (RECORD_SET_ATIME | RECORD_SET_ATIME_ONLY)) != 0;

	r->u.setattr.valid_mask = valid;
	r->u.setattr.mode = get_be32(FIELD(in, record_setattr, mode));
	r->u.setattr.uid = get_be32(FIELD(in, record_setattr, uid));
	r->u.setattr.gid = get_be32(FIELD(in, record_setattr, gid));
	r->u.setattr.size = get_be64(FIELD(in, record_setattr, size));
	r->u.setattr.atime_ns = get_be64(FIELD(in, record_setattr, atime_ns));
	r->u.setattr.mtime_ns = get_be64(FIELD(in, record_setattr, mtime_ns));
	r->u.setattr.ctime_ns = get_be64(FIELD(in, record_setattr, ctime_ns));
	if ((valid & ~(uint32_t)RECORD_SET_ALL) != 0)
		return false;
	/* What is not set must be zero: one operation, one encoding. */
	return r->u.setattr.mode <= (valid & RECORD_SET_MODE ? 07777U : 0) &&
	       (valid & RECORD_SET_UID || r->u.setattr.uid == 0) &&
	       (valid & RECORD_SET_GID || r->u.setattr.gid == 0) &&
	       r->u.setattr.size <= (valid & RECORD_SET_SIZE ? RECORD_OFFSET_MAX : 0) &&
	       (atime || r->u.setattr.atime_ns == 0) &&
	       (valid & RECORD_SET_MTIME || r->u.setattr.mtime_ns == 0) &&
	       (valid & RECORD_SET_CTIME || r->u.setattr.ctime_ns == 0);
}

static bool decode_link(const uint8_t *in, struct record *r)
{
	r->u.link.parent_ino = get_be64(FIELD(in, record_link, parent_ino));
	return r->u.link.parent_ino != 0 && name_ok(r->name, r->name_len) &&
	       all_zero(FIELD(in, record_link, zero), sizeof(((struct record_link *)0)->zero));
}

static bool decode_unlink(const uint8_t *in, struct record *r)
{
	uint16_t is_dir = get_be16(FIELD(in, record_unlink, is_dir));

	r->u.unlink.parent_ino = get_be64(FIELD(in, record_unlink, parent_ino));
	r->u.unlink.is_dir = is_dir == 1;
	return is_dir <= 1 && r->u.unlink.parent_ino != 0 && name_ok(r->name, r->name_len) &&
	       all_zero(FIELD(in, record_unlink, zero), sizeof(((struct record_unlink *)0)->zero));
}

static bool decode_rename(const uint8_t *in, struct record *r)
{
	uint32_t flags = get_be32(FIELD(in, record_rename, flags));

	r->u.rename.old_parent_ino = get_be64(FIELD(in, record_rename, old_parent_ino));
	r->u.rename.new_parent_ino = get_be64(FIELD(in, record_rename, new_parent_ino));
	r->u.rename.target_ino = get_be64(FIELD(in, record_rename, target_ino));
	r->u.rename.flags = flags;
	if (flags != 0 && (flags != RECORD_RENAME_EXCHANGE || r->u.rename.target_ino == 0))
		return false;
	return r->u.rename.old_parent_ino != 0 && r->u.rename.new_parent_ino != 0 &&
	       name_ok(r->name, r->name_len) && name_ok(r->name2, r->name2_len);
}

static bool decode_fallocate(const uint8_t *in, struct record *r)
{
	uint32_t mode = get_be32(FIELD(in, record_fallocate, mode));

	r->u.fallocate.offset = get_be64(FIELD(in, record_fallocate, offset));
	r->u.fallocate.length = get_be64(FIELD(in, record_fallocate, length));
	r->u.fallocate.mode = mode;
	switch (mode) { /* the combinations fallocate(2) allows of the three bits */
	case 0:
	case FALLOC_FL_KEEP_SIZE:
	case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
	case FALLOC_FL_ZERO_RANGE:
	case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
		break;
	default:
		return false;
	}
	return r->u.fallocate.length != 0 &&
	       range_ok(r->u.fallocate.offset, r->u.fallocate.length) &&
	       get_be32(FIELD(in, record_fallocate, zero)) == 0;
}

static bool decode_copy(const uint8_t *in, struct record *r)
{
	r->u.copy.src_ino = get_be64(FIELD(in, record_copy, src_ino));
	r->u.copy.src_offset = get_be64(FIELD(in, record_copy, src_offset));
	r->u.copy.dst_offset = get_be64(FIELD(in, record_copy, dst_offset));
	r->u.copy.length = get_be64(FIELD(in, record_copy, length));
	return r->u.copy.src_ino != 0 && range_ok(r->u.copy.src_offset, r->u.copy.length) &&
	       range_ok(r->u.copy.dst_offset, r->u.copy.length);
}

static bool decode_xattr(const uint8_t *in, const struct record *r)
{
	if (r->name_len == 0 || r->name_len > RECORD_NAME_MAX ||
	    memchr(r->name, '\0', r->name_len) != NULL)
		return false;
	if (r->data_len > (r->opcode == RECORD_SETXATTR ? RECORD_XATTR_VALUE_MAX : 0))
		return false;
	return get_be16(FIELD(in, record_xattr, zero)) == 0;
}

static bool decode_fixed(const uint8_t *in, struct record *r)
{
	if (r->lsn == 0)
		return false;
	if (r->opcode == RECORD_GENERATION)
		return decode_generation(in, r);
	if (r->opcode == RECORD_NOOP)
		return true;
	if (r->ino == 0)
		return false;
	switch (r->opcode) {
	case RECORD_CREATE:
		return decode_create(in, r);
	case RECORD_WRITE:
		return decode_write(in, r);
	case RECORD_SETATTR:
		return decode_setattr(in, r);
	case RECORD_LINK:
		return decode_link(in, r);
	case RECORD_UNLINK:
		return decode_unlink(in, r);
	case RECORD_RENAME:
		return decode_rename(in, r);
	case RECORD_FALLOCATE:
		return decode_fallocate(in, r);
	case RECORD_COPY:
		return decode_copy(in, r);
	case RECORD_SETXATTR:
	case RECORD_REMOVEXATTR:
		return decode_xattr(in, r);
	case RECORD_INODE_FREE:
		return true;
	default:
		return false;
	}
}

int record_decode(const void *buf, size_t len, struct record *ret_r, size_t *ret_bytes)
{
	const uint8_t *p = buf, *common = p + sizeof(struct record_header);
	const uint8_t *fixed = p + HEAD_FIXED_BYTES;
	struct record r;
	size_t bytes, fixed_len;
	unsigned opcode;
	int rc = record_peek_bytes(buf, len, &bytes);

	if (rc != 0)
		return rc;
	if (len < bytes)
		return -EAGAIN;
	opcode = get_be16(FIELD(common, record_common, opcode));
	fixed_len = record_fixed_bytes(opcode);
	if (opcode == 0 || opcode >= RECORD_OPCODE_END ||
	    get_be32(FIELD(common, record_common, fixed_len)) != fixed_len ||
	    bytes < HEAD_FIXED_BYTES + fixed_len)
		return -EBADMSG;
	memset(&r, 0, sizeof(r));
	r.opcode = (enum record_opcode)opcode;
	rc = decode_lengths(fixed, fixed + fixed_len, bytes - HEAD_FIXED_BYTES - fixed_len, &r);
	if (rc != 0 || !checksum_ok(p, bytes, r.data_len))
		return -EBADMSG;
	r.lsn = get_be64(FIELD(p, record_header, seq_id));
	r.ino = get_be64(FIELD(p, record_header, key_ino));
	r.gen = get_be64(FIELD(p, record_header, key_gen));
	r.timestamp_ns = get_be64(FIELD(p, record_header, timestamp));
	r.epoch = get_be64(FIELD(common, record_common, epoch));
	if (get_be16(FIELD(common, record_common, flags)) != 0 || !decode_fixed(fixed, &r))
		return -EBADMSG;
	*ret_r = r;
	*ret_bytes = bytes;
	return 0;
}
