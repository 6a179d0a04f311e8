/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding, decoding and order of a resync's frames: see resync.h. */
#include "replication/resync.h"

#include "common/byteorder.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

void resync_begin_encode(const struct resync_begin *b, struct repl_resync_begin *ret_w)
{
	*ret_w = (struct repl_resync_begin){
		.lsn = htobe64(b->lsn),
		.epoch = htobe64(b->epoch),
		.total_bytes = htobe64(b->total_bytes),
		.file_count = htobe64(b->files),
	};
}

void resync_file_encode(const struct resync_file *f, struct repl_resync_file *ret_w)
{
	ret_w->bytes = htobe64(f->bytes);
	memcpy(ret_w->name, f->name, sizeof(ret_w->name));
}

int resync_begin_decode(const void *in, size_t len, struct resync_begin *ret_b)
{
	struct repl_resync_begin w;

	if (len != sizeof(w))
		return -EBADMSG;
	memcpy(&w, in, sizeof(w));
	if (w.file_count == 0 || be64toh(w.lsn) == UINT64_MAX)
		return -EBADMSG;
	*ret_b = (struct resync_begin){
		.lsn = be64toh(w.lsn),
		.epoch = be64toh(w.epoch),
		.total_bytes = be64toh(w.total_bytes),
		.files = be64toh(w.file_count),
	};
	return 0;
}

static bool resync_name_ok(const char name[REPL_NAME_BYTES])
{
	size_t len = strnlen(name, REPL_NAME_BYTES);

	if (len == 0 || len == REPL_NAME_BYTES || name[0] == '.')
		return false;
	for (size_t i = 0; i < REPL_NAME_BYTES; i++) {
		char c = name[i];
		bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
			     (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';

		if (i < len ? !plain : c != '\0')
			return false;
	}
	return true;
}

int resync_file_decode(const void *in, size_t len, struct resync_file *ret_f)
{
	struct repl_resync_file w;

	if (len != sizeof(w))
		return -EBADMSG;
	memcpy(&w, in, sizeof(w));
	if (!resync_name_ok(w.name))
		return -EBADMSG;
	ret_f->bytes = be64toh(w.bytes);
	memcpy(ret_f->name, w.name, sizeof(ret_f->name));
	return 0;
}

int resync_progress_decode(const void *in, size_t len, uint64_t total_bytes,
			   uint64_t *ret_installed)
{
	if (len != sizeof(struct repl_resync_progress) || get_be64(in) > total_bytes)
		return -EPROTO;
	*ret_installed = get_be64(in);
	return 0;
}

int resync_done_decode(const void *in, size_t len, uint64_t lsn)
{
	return len != sizeof(struct repl_resync_done) || get_be64(in) != lsn ? -EPROTO : 0;
}

int resync_image_file(struct resync_image *i, const void *in, size_t len,
		      struct resync_file *ret_f)
{
	struct resync_file f;

	if (i->file_left > 0 || i->files_seen == i->begin.files ||
	    resync_file_decode(in, len, &f) != 0 || f.bytes > i->begin.total_bytes - i->bytes_seen)
		return -EBADMSG;
	i->files_seen++;
	i->file_left = f.bytes;
	*ret_f = f;
	return 0;
}

int resync_image_data(struct resync_image *i, size_t len)
{
	if (len == 0 || len > i->file_left)
		return -EBADMSG;
	i->file_left -= len;
	i->bytes_seen += len;
	return 0;
}

int resync_image_end(const struct resync_image *i)
{
	return i->file_left > 0 || i->files_seen != i->begin.files ||
			       i->bytes_seen != i->begin.total_bytes ? -EBADMSG : 0;
}
