/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended attributes: user., security. and trusted. names, with the option xattr. Without it every
 * answer is ENOSYS and the kernel stops asking, which spares each cached write a getxattr of
 * security.capability.
 */
#include "fs/fuse/fuse_ops.h"

#include "common/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

/* False: answered already. */
static bool fs_xattr_ok(struct fs *fs, fuse_req_t req, const char *name)
{
	int err = 0;

	if (!fs->xattr)
		err = ENOSYS;
	else if (name && strlen(name) > RECORD_NAME_MAX)
		err = ERANGE;
	else if (name && strncmp(name, "system.", 7) == 0)
		err = EOPNOTSUPP;
	if (err)
		fuse_reply_err(req, err);
	return err == 0;
}

static int fs_setxattr_prepare(struct fs *fs, struct store *st, struct record *r, void *arg)
{
	struct inode *in = store_inode_locked(st, r->ino);
	int flags = *(const int *)arg;
	bool there;

	if (!in)
		return -ENOENT;
	there = store_getxattr_locked(in, r->name, NULL, 0) >= 0;
	if (there && (flags & XATTR_CREATE))
		return -EEXIST;
	if (!there && (flags & XATTR_REPLACE))
		return -ENODATA;
	return 0;
}

void fs_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags)
{
	struct fs *fs = fs_of(req);
	struct record r = {
		.opcode = RECORD_SETXATTR,
		.ino = ino,
		.timestamp_ns = clock_real_ns(),
		.name = name,
		.name_len = (uint32_t)strlen(name),
		.data = value,
		.data_len = (uint32_t)size,
	};

	if (!fs_xattr_ok(fs, req, name))
		return;
	if (size > RECORD_XATTR_VALUE_MAX) {
		fuse_reply_err(req, E2BIG);
		return;
	}
	fs_submit(fs, req, FS_REPLY_OK, &r, 0, fs_setxattr_prepare, &flags);
}

void fs_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct fs *fs = fs_of(req);
	struct record r = {
		.opcode = RECORD_REMOVEXATTR,
		.ino = ino,
		.timestamp_ns = clock_real_ns(),
		.name = name,
		.name_len = (uint32_t)strlen(name),
	};
	int flags = XATTR_REPLACE;

	if (fs_xattr_ok(fs, req, name))
		fs_submit(fs, req, FS_REPLY_OK, &r, FS_URGENT, fs_setxattr_prepare, &flags);
}

/* name NULL: the list of names. */
static void fs_xattr_read(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct fs *fs = fs_of(req);
	struct fs_op *o;
	struct store *st;
	struct inode *in;
	ssize_t len = -ENOENT;
	uint64_t lsn = 0;

	if (!fs_xattr_ok(fs, req, name))
		return;
	o = fs_op_new(fs, req, size ? FS_REPLY_BUF : FS_REPLY_LENGTH, size);
	if (!o) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	st = fs_lock(fs);
	in = store_inode_locked(st, ino);
	if (in && name)
		len = store_getxattr_locked(in, name, o->tail, size);
	else if (in)
		/* root stands for CAP_SYS_ADMIN, which the kernel does not tell of */
		len = store_listxattr_locked(in, fuse_req_ctx(req)->uid == 0, (char *)o->tail,
					     size);
	if (in)
		lsn = in->last_lsn;
	fs_unlock(fs, st);
	if (len < 0) {
		fuse_reply_err(req, (int)-len);
		fs_op_free(o);
		return;
	}
	o->u.count = (uint64_t)len;
	fs_reply_after(fs, o, lsn);
}

void fs_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	fs_xattr_read(req, ino, name, size);
}

void fs_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	fs_xattr_read(req, ino, NULL, size);
}
