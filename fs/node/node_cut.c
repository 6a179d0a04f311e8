/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a resync would destroy for good: records that this mirror holds and its primary does not.
 * They go to the file cut-EPOCH-FIRST-LAST of the volume, byte for byte as they are in the log,
 * before anything is forgotten. Thread "kv-mirror". Errors: the caller does not begin the resync.
 */
#include "fs/node/node.h"

#include "common/diag.h"
#include "common/io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CUT_TMP_NAME "cut.tmp"
#define CUT_NAME_BYTES 80
#define CUT_BUF_BYTES (4ULL << 20)

static_assert(CUT_BUF_BYTES >= RECORD_BYTES_MAX, "a record fits");

static int cut_copy(struct node *n, int fd, uint64_t first_lsn, uint64_t last_lsn)
{
	uint8_t *buf = malloc(CUT_BUF_BYTES);
	uint64_t next = first_lsn;
	int err = buf ? 0 : -ENOMEM;

	while (!err && next <= last_lsn) {
		uint64_t got_lsn;
		size_t len;

		err = oplog_read(n->log, next, buf, CUT_BUF_BYTES, &len, &got_lsn);
		if (!err)
			err = io_write_full(fd, buf, len);
		if (!err)
			next = got_lsn + 1;
	}
	free(buf);
	return err;
}

/* The whole file under its name, or none. One of that name held the same: this was tried before. */
static int cut_write(struct node *n, const char *name, uint64_t first_lsn, uint64_t last_lsn)
{
	int dirfd = n->vol->dirfd;
	int err, fd = openat(dirfd, CUT_TMP_NAME,
			     O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -errno;
	err = cut_copy(n, fd, first_lsn, last_lsn);
	if (!err && fsync(fd) != 0)
		err = -errno;
	if (close(fd) != 0 && !err)
		err = -errno;
	if (!err && renameat(dirfd, CUT_TMP_NAME, dirfd, name) != 0)
		err = -errno;
	if (err) {
		unlinkat(dirfd, CUT_TMP_NAME, 0);
		return err;
	}
	return io_fsync_dir(dirfd);
}

int node_cut_keep(void *ctx, uint64_t after_lsn, uint64_t last_lsn, uint64_t epoch)
{
	struct node *n = ctx;
	uint64_t first = oplog_first_lsn(n->log);
	char name[CUT_NAME_BYTES], text[EPOCH_TEXT_BYTES];
	int err;

	if (first == 0 || first > last_lsn) {
		diag_warn("%s: resync: records up to LSN %" PRIu64
			  " are not the primary's, and the log holds none of "
			  "them any more: none is kept",
			  n->vol->path, last_lsn);
		return 0;
	}
	if (first <= after_lsn)
		first = after_lsn + 1;
	snprintf(name, sizeof(name), "cut-%s-%" PRIu64 "-%" PRIu64, epoch_format(epoch, text),
		 first, last_lsn);
	err = cut_write(n, name, first, last_lsn);
	if (err) {
		diag_error("%s: no resync: the records it would remove cannot be kept in %s: %s",
			   n->vol->path, name, strerror(-err));
		return err;
	}
	diag_warn("%s: resync: %" PRIu64 " records (LSN %" PRIu64 " to %" PRIu64
		  ") that may not be the primary's are "
		  "kept in %s",
		  n->vol->path, last_lsn - first + 1, first, last_lsn, name);
	return 0;
}
