/* SPDX-License-Identifier: Apache-2.0 */
/* Extended attributes: an immutable packed set per inode, replaced as a whole. Under
 * the store's lock. */
#include "fs/store/store_internal.h"

#include "common/byteorder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY_HEAD 5
#define TRUSTED "trusted."

struct entry {
	const char *name;
	const uint8_t *value;
	uint32_t value_len;
	uint8_t name_len;
	size_t bytes; /* whole entry */
};

/* Decodes the entry at p (checked sets only). */
static struct entry entry_at(const uint8_t *p)
{
	struct entry e = { .name_len = p[0],
			   .value_len = get_be32(p + 1),
			   .name = (const char *)p + ENTRY_HEAD };

	e.value = p + ENTRY_HEAD + e.name_len;
	e.bytes = ENTRY_HEAD + (size_t)e.name_len + e.value_len;
	return e;
}

int store_xattrs_check(const void *data, size_t len)
{
	const uint8_t *p = data;

	if (len > STORE_XATTRS_BYTES_MAX)
		return -EBADMSG;
	while (len) {
		uint64_t bytes;

		if (len < ENTRY_HEAD)
			return -EBADMSG;
		bytes = ENTRY_HEAD + (uint64_t)p[0] + get_be32(p + 1);
		if (p[0] == 0 || get_be32(p + 1) > RECORD_XATTR_VALUE_MAX || bytes > len ||
		    memchr(p + ENTRY_HEAD, 0, p[0]))
			return -EBADMSG;
		p += bytes;
		len -= bytes;
	}
	return 0;
}

static struct store_xattrs *xattrs_alloc(size_t len)
{
	struct store_xattrs *x = malloc(sizeof(*x) + len);

	if (!x)
		return NULL;
	atomic_init(&x->refs, 1);
	x->len = (uint32_t)len;
	return x;
}

struct store_xattrs *store_xattrs_from(const void *data, size_t len)
{
	struct store_xattrs *x = xattrs_alloc(len);

	if (x)
		memcpy(x->data, data, len);
	return x;
}

void store_xattrs_put(struct store_xattrs *x)
{
	/* acq_rel: the last holder frees after every other has read */
	if (x && atomic_fetch_sub_explicit(&x->refs, 1, memory_order_acq_rel) == 1)
		free(x);
}

static bool find(const struct store_xattrs *x, const char *name, size_t name_len,
		 struct entry *ret_e)
{
	for (size_t off = 0; x && off < x->len;) {
		struct entry e = entry_at(x->data + off);

		if (e.name_len == name_len && memcmp(e.name, name, name_len) == 0) {
			*ret_e = e;
			return true;
		}
		off += e.bytes;
	}
	return false;
}

/* The old set without r's name, with r's value at the end when set. */
static int replace(struct store *st, struct inode *in, const struct record *r, bool set)
{
	const struct store_xattrs *old = in->xattrs;
	struct entry e = { 0 };
	bool had = find(old, r->name, r->name_len, &e);
	size_t kept = (old ? old->len : 0) - (had ? e.bytes : 0);
	size_t len = kept + (set ? ENTRY_HEAD + (size_t)r->name_len + r->data_len : 0);
	struct store_xattrs *x = NULL;

	if (len > STORE_XATTRS_BYTES_MAX)
		return -ENOSPC;
	if (len) {
		size_t before = had ? (size_t)((const uint8_t *)e.name - ENTRY_HEAD - old->data) :
				      kept;
		uint8_t *p;

		x = xattrs_alloc(len);
		if (!x)
			return -ENOMEM;
		if (before)
			memcpy(x->data, old->data, before);
		if (kept > before)
			memcpy(x->data + before, old->data + before + e.bytes, kept - before);
		if (set) {
			p = x->data + kept;
			p[0] = (uint8_t)r->name_len;
			put_be32(p + 1, r->data_len);
			memcpy(p + ENTRY_HEAD, r->name, r->name_len);
			if (r->data_len)
				memcpy(p + ENTRY_HEAD + r->name_len, r->data, r->data_len);
		}
	}
	image_inode_touch(st->image, in);
	store_xattrs_put(in->xattrs);
	in->xattrs = x;
	store_touch_change(st, in, r);
	return 0;
}

int store_setxattr_locked(struct store *st, struct inode *in, const struct record *r)
{
	if (r->name_len == 0)
		return -EINVAL;
	if (r->name_len > RECORD_NAME_MAX)
		return -ENAMETOOLONG;
	if (r->data_len > RECORD_XATTR_VALUE_MAX)
		return -E2BIG;
	return replace(st, in, r, true);
}

int store_removexattr_locked(struct store *st, struct inode *in, const struct record *r)
{
	struct entry e;

	if (!find(in->xattrs, r->name, r->name_len, &e))
		return -ENODATA;
	return replace(st, in, r, false);
}

ssize_t store_getxattr_locked(const struct inode *in, const char *name, void *buf, size_t size)
{
	struct entry e;

	if (!find(in->xattrs, name, strlen(name), &e))
		return -ENODATA;
	if (size == 0)
		return e.value_len;
	if (size < e.value_len)
		return -ERANGE;
	memcpy(buf, e.value, e.value_len);
	return e.value_len;
}

static bool is_trusted(const struct entry *e)
{
	return e->name_len >= strlen(TRUSTED) && memcmp(e->name, TRUSTED, strlen(TRUSTED)) == 0;
}

ssize_t store_listxattr_locked(const struct inode *in, bool trusted, char *buf, size_t size)
{
	const struct store_xattrs *x = in->xattrs;
	size_t need = 0;

	for (size_t off = 0; x && off < x->len;) {
		struct entry e = entry_at(x->data + off);

		off += e.bytes;
		if (!trusted && is_trusted(&e))
			continue;
		if (size && need + e.name_len + 1 > size)
			return -ERANGE;
		if (size) {
			memcpy(buf + need, e.name, e.name_len);
			buf[need + e.name_len] = '\0';
		}
		need += e.name_len + 1U;
	}
	return (ssize_t)need;
}
