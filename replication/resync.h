/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_RESYNC_H
#define KVFS_REPLICATION_RESYNC_H
/*
 * What primary and mirror say to each other in a resync (repl_format.h), and which of an image's
 * frames may come next. Pure; any thread.
 */
#include "replication/repl_format.h"

#include <stddef.h>

struct resync_begin {
	uint64_t lsn, epoch, total_bytes, files;
};

struct resync_file {
	uint64_t bytes;
	char name[REPL_NAME_BYTES]; /* plain: letters, digits, '.', '-', '_', not hidden */
};

void resync_begin_encode(const struct resync_begin *b, struct repl_resync_begin *ret_w);
void resync_file_encode(const struct resync_file *f, struct repl_resync_file *ret_w);

/* -EBADMSG: another length, an image without files or of an LSN that no record can follow. */
int resync_begin_decode(const void *in, size_t len, struct resync_begin *ret_b);
/* -EBADMSG: another length, a name that is not plain. */
int resync_file_decode(const void *in, size_t len, struct resync_file *ret_f);
/* -EPROTO: another length, more than the image has. */
int resync_progress_decode(const void *in, size_t len, uint64_t total_bytes,
			   uint64_t *ret_installed);
/* -EPROTO: another length, not that image. */
int resync_done_decode(const void *in, size_t len, uint64_t lsn);

/* An image on its way. */
struct resync_image {
	struct resync_begin begin;
	uint64_t files_seen, bytes_seen;
	uint64_t file_left; /* bytes that the file begun last still lacks */
};

/* RESYNC_FILE, of len bytes at in; RESYNC_DATA, of len bytes; RESYNC_END. -EBADMSG: it is not its
 * turn, it is not one, or it is more than was announced. */
int resync_image_file(struct resync_image *i, const void *in, size_t len,
		      struct resync_file *ret_f);
int resync_image_data(struct resync_image *i, size_t len);
int resync_image_end(const struct resync_image *i);

#endif
