/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding and decoding of checkpoint items: see image_item.h. */
#include "fs/store/image_item.h"

#include "common/byteorder.h"
#include "fs/store/store_internal.h"

#include <errno.h>
#include <string.h>

static size_t encode_inode(const struct image_item *it, uint8_t *out)
{
	struct image_inode_item *d = (struct image_inode_item *)out;

	put_be64(&d->ino, it->ino);
	put_be64(&d->parent_ino, it->parent_ino);
	put_be64(&d->last_lsn, it->last_lsn);
	put_be64(&d->atime_ns, it->atime_ns);
	put_be64(&d->mtime_ns, it->mtime_ns);
	put_be64(&d->ctime_ns, it->ctime_ns);
	put_be64(&d->size, S_ISDIR(it->mode) ? it->cookie : it->size);
	put_be32(&d->mode, it->mode);
	put_be32(&d->uid, it->uid);
	put_be32(&d->gid, it->gid);
	put_be32(&d->rdev, it->rdev);
	put_be32(&d->nlink, it->nlink);
	put_be32(&d->gen, it->gen);
	put_be32(&d->xattr_len, it->xattr_len);
	put_be32(&d->inline_cap, it->cap);
	put_be32(&d->inline_len, it->bytes_len);
	put_be16(&d->target_len, (uint16_t)it->text_len);
	d->chunked = it->chunked;
	d->zero = 0;
	if (it->text_len)
		memcpy(out + sizeof(*d), it->text, it->text_len);
	return sizeof(*d) + it->text_len;
}

static size_t encode_name(const struct image_item *it, uint8_t *out)
{
	struct image_name_item *d = (struct image_name_item *)out;

	put_be64(&d->parent_ino, it->parent_ino);
	put_be64(&d->cookie, it->cookie);
	put_be64(&d->ino, it->ino);
	d->len = (uint8_t)it->text_len;
	memcpy(out + sizeof(*d), it->text, it->text_len);
	return sizeof(*d) + it->text_len;
}

static size_t encode_chunk(const struct image_item *it, uint8_t *out)
{
	struct image_chunk_item *d = (struct image_chunk_item *)out;

	put_be64(&d->ino, it->ino);
	put_be64(&d->idx, it->first);
	put_be32(&d->cap, it->cap);
	put_be32(&d->len, it->bytes_len);
	return sizeof(*d);
}

size_t image_item_encode_head(const struct image_item *it, uint8_t out[IMAGE_HEAD_MAX])
{
	struct image_chunks_gone_item *gone = (struct image_chunks_gone_item *)out;

	switch (it->type) {
	case IMAGE_ITEM_INODE:
		return encode_inode(it, out);
	case IMAGE_ITEM_NAME:
	case IMAGE_ITEM_NAME_GONE:
		return encode_name(it, out);
	case IMAGE_ITEM_CHUNK:
		return encode_chunk(it, out);
	case IMAGE_ITEM_INODE_GONE:
		put_be64(out, it->ino);
		return sizeof(struct image_inode_gone_item);
	case IMAGE_ITEM_CHUNKS_GONE:
		put_be64(&gone->ino, it->ino);
		put_be64(&gone->first, it->first);
		put_be64(&gone->last, it->last);
		return sizeof(*gone);
	case IMAGE_ITEM_TYPE_END:
		break;
	}
	assert(!"item type");
	return 0;
}

/* What the file's type says about the other fields. */
static int check_inode(const struct image_item *it)
{
	uint32_t type = it->mode & S_IFMT;

	if (it->ino == 0 || (it->mode & ~(uint32_t)(S_IFMT | 07777)))
		return -EBADMSG;
	if (type != S_IFREG && (it->chunked || it->cap || it->size))
		return -EBADMSG;
	if (type != S_IFLNK && it->text_len)
		return -EBADMSG;
	switch (type) {
	case S_IFREG:
		if (it->size > VALUE_SIZE_MAX || it->cap > SLAB_SLOT_MAX || it->bytes_len > it->cap)
			return -EBADMSG;
		if (it->chunked)
			return it->cap ? -EBADMSG : 0;
		return it->size > VALUE_CHUNK_BYTES || (it->cap && it->bytes_len != it->size) ?
			       -EBADMSG : 0;
	case S_IFDIR:
		return it->cookie < STORE_COOKIE_FIRST || it->cookie >= UINT64_MAX >> 1 ||
				       it->parent_ino == 0 || it->bytes_len ?
			       -EBADMSG : 0;
	case S_IFLNK:
		return it->text_len == 0 || it->text_len > RECORD_SYMLINK_MAX || it->bytes_len ||
		       memchr(it->text, 0, it->text_len) ? -EBADMSG : 0;
	case S_IFIFO:
	case S_IFSOCK:
	case S_IFCHR:
	case S_IFBLK:
		return it->bytes_len ? -EBADMSG : 0;
	default:
		return -EBADMSG;
	}
}

static int decode_inode(const uint8_t *data, size_t len, struct image_item *it)
{
	const struct image_inode_item *d = (const struct image_inode_item *)data;
	const uint8_t *tail = data + sizeof(*d);

	if (len < sizeof(*d) || d->zero || d->chunked > 1)
		return -EBADMSG;
	it->ino = get_be64(&d->ino);
	it->parent_ino = get_be64(&d->parent_ino);
	it->last_lsn = get_be64(&d->last_lsn);
	it->atime_ns = get_be64(&d->atime_ns);
	it->mtime_ns = get_be64(&d->mtime_ns);
	it->ctime_ns = get_be64(&d->ctime_ns);
	it->mode = get_be32(&d->mode);
	if (S_ISDIR(it->mode))
		it->cookie = get_be64(&d->size);
	else
		it->size = get_be64(&d->size);
	it->uid = get_be32(&d->uid);
	it->gid = get_be32(&d->gid);
	it->rdev = get_be32(&d->rdev);
	it->nlink = get_be32(&d->nlink);
	it->gen = get_be32(&d->gen);
	it->xattr_len = get_be32(&d->xattr_len);
	it->cap = get_be32(&d->inline_cap);
	it->bytes_len = get_be32(&d->inline_len);
	it->text_len = get_be16(&d->target_len);
	it->chunked = d->chunked;
	if (len != sizeof(*d) + (uint64_t)it->text_len + it->xattr_len + it->bytes_len)
		return -EBADMSG;
	it->text = tail;
	it->xattrs = tail + it->text_len;
	it->bytes = tail + it->text_len + it->xattr_len;
	if (store_xattrs_check(it->xattrs, it->xattr_len))
		return -EBADMSG;
	return check_inode(it);
}

static int decode_name(const uint8_t *data, size_t len, struct image_item *it)
{
	const struct image_name_item *d = (const struct image_name_item *)data;
	bool gone = it->type == IMAGE_ITEM_NAME_GONE;

	if (len < sizeof(*d) || d->len == 0 || len != sizeof(*d) + (size_t)d->len)
		return -EBADMSG;
	it->parent_ino = get_be64(&d->parent_ino);
	it->cookie = get_be64(&d->cookie);
	it->ino = get_be64(&d->ino);
	it->text = data + sizeof(*d);
	it->text_len = d->len;
	if (memchr(it->text, 0, d->len) || memchr(it->text, '/', d->len))
		return -EBADMSG;
	if (it->parent_ino == 0 || gone != (it->ino == 0) || gone != (it->cookie == 0))
		return -EBADMSG;
	if (!gone && (it->cookie < STORE_COOKIE_FIRST || it->cookie >= UINT64_MAX >> 1))
		return -EBADMSG;
	return 0;
}

static int decode_chunk(const uint8_t *data, size_t len, struct image_item *it)
{
	const struct image_chunk_item *d = (const struct image_chunk_item *)data;

	if (len < sizeof(*d))
		return -EBADMSG;
	it->ino = get_be64(&d->ino);
	it->first = get_be64(&d->idx);
	it->cap = get_be32(&d->cap);
	it->bytes_len = get_be32(&d->len);
	it->bytes = data + sizeof(*d);
	if (it->ino == 0 || it->first >= VALUE_SIZE_MAX / VALUE_CHUNK_BYTES || it->cap == 0 ||
	    it->cap > SLAB_SLOT_MAX || it->bytes_len > it->cap ||
	    len != sizeof(*d) + (size_t)it->bytes_len)
		return -EBADMSG;
	return 0;
}

static int decode_gone(const uint8_t *data, size_t len, struct image_item *it)
{
	const struct image_chunks_gone_item *d = (const struct image_chunks_gone_item *)data;

	if (len !=
	    (it->type == IMAGE_ITEM_INODE_GONE ? sizeof(struct image_inode_gone_item) : sizeof(*d)))
		return -EBADMSG;
	it->ino = get_be64(data);
	if (it->ino == 0)
		return -EBADMSG;
	if (it->type == IMAGE_ITEM_INODE_GONE)
		return it->ino == STORE_ROOT_INO ? -EBADMSG : 0;
	it->first = get_be64(&d->first);
	it->last = get_be64(&d->last);
	if (it->first > it->last || it->last >= VALUE_SIZE_MAX / VALUE_CHUNK_BYTES)
		return -EBADMSG;
	return 0;
}

int image_item_decode(uint8_t type, const void *data, size_t len, struct image_item *ret_item)
{
	struct image_item it = { 0 };
	int err;

	if (type == 0 || type >= IMAGE_ITEM_TYPE_END)
		return -EBADMSG;
	it.type = (enum image_item_type)type;
	switch (it.type) {
	case IMAGE_ITEM_INODE:
		err = decode_inode(data, len, &it);
		break;
	case IMAGE_ITEM_NAME:
	case IMAGE_ITEM_NAME_GONE:
		err = decode_name(data, len, &it);
		break;
	case IMAGE_ITEM_CHUNK:
		err = decode_chunk(data, len, &it);
		break;
	default:
		err = decode_gone(data, len, &it);
		break;
	}
	if (!err)
		*ret_item = it;
	return err;
}
