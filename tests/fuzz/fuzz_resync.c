/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target for a resync as it comes over the control connection. An even first byte: the rest is
 * a stream of frames to a mirror, RESYNC_BEGIN first, whose magic, version and checksums are put
 * right, and nothing is ever taken beyond what was announced. An odd one: the two frames with which
 * a mirror answers, behind the image's size and LSN. Corpus: tests/fuzz/corpus/resync.
 */
#include "common/byteorder.h"
#include "common/crc32c.h"
#include "replication/frame.h"
#include "replication/resync.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEADER sizeof(struct repl_frame)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What was taken, counted apart from what counts it. */
struct taken {
	uint64_t files, bytes, announced;
};

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* Puts right what a fuzzer does not find, of a frame with len bytes of payload. */
static void put_right(uint8_t *p, size_t len)
{
	struct repl_frame h;

	memcpy(&h, p, sizeof(h));
	h.magic = htobe32(REPL_MAGIC);
	h.version = htobe16(REPL_VERSION);
	h.len = htobe32((uint32_t)len);
	h.checksum = 0;
	h.checksum = htobe32(crc32c(crc32c(0, p + HEADER, len), &h, sizeof(h)));
	memcpy(p, &h, sizeof(h));
}

/* The next frame of what is left, in memory of its own with *ret_payload; NULL: there is none. */
static uint8_t *next_frame(const uint8_t **p, size_t *left, struct frame *ret_frame)
{
	uint8_t *frame;
	size_t len;

	if (*left < HEADER)
		return NULL;
	len = get_be32(*p + offsetof(struct repl_frame, len)) % (REPL_SMALL_BYTES_MAX + 1);
	if (len > *left - HEADER)
		len = *left - HEADER;
	frame = malloc(HEADER + len);
	must(frame != NULL);
	memcpy(frame, *p, HEADER + len);
	put_right(frame, len);
	*p += HEADER + len;
	*left -= HEADER + len;
	if (frame_decode(frame, ret_frame) != 0) {
		free(frame);
		return NULL;
	}
	must(ret_frame->len == len && frame_intact(frame, frame + HEADER, len));
	return frame;
}

static void check_name(const char name[REPL_NAME_BYTES])
{
	must(memchr(name, '\0', REPL_NAME_BYTES) != NULL);
	must(name[0] != '\0' && name[0] != '.' && !strchr(name, '/'));
}

static int take_begin(struct resync_image *i, const uint8_t *in, size_t len)
{
	struct repl_resync_begin again;
	int err = resync_begin_decode(in, len, &i->begin);

	if (err)
		return err;
	must(i->begin.files > 0 && i->begin.lsn + 1 != 0);
	resync_begin_encode(&i->begin, &again);
	must(len == sizeof(again) && memcmp(&again, in, len) == 0);
	return 0;
}

static int take_file(struct resync_image *i, struct taken *t, const uint8_t *in, size_t len)
{
	struct repl_resync_file again;
	struct resync_file f;
	int err = resync_image_file(i, in, len, &f);

	if (err)
		return err;
	must(t->bytes == t->announced); /* the file before is whole */
	check_name(f.name);
	resync_file_encode(&f, &again);
	must(len == sizeof(again) && memcmp(&again, in, len) == 0);
	t->files++;
	t->announced += f.bytes;
	must(f.bytes <= t->announced && t->announced <= i->begin.total_bytes);
	must(t->files <= i->begin.files);
	return 0;
}

static int take_data(struct resync_image *i, struct taken *t, size_t len)
{
	int err = resync_image_data(i, len);

	if (err)
		return err;
	t->bytes += len;
	must(len > 0 && t->bytes <= t->announced);
	return 0;
}

static int take(struct resync_image *i, struct taken *t, const struct frame *f, const uint8_t *in)
{
	switch (f->type) {
	case REPL_RESYNC_FILE:
		return take_file(i, t, in, f->len);
	case REPL_RESYNC_DATA:
		return take_data(i, t, f->len);
	case REPL_RESYNC_END:
		if (resync_image_end(i) == 0)
			must(t->files == i->begin.files && t->bytes == i->begin.total_bytes &&
			     t->bytes == t->announced);
		return -ECANCELED;
	default:
		return -EBADMSG;
	}
}

static void to_mirror(const uint8_t *p, size_t left)
{
	struct resync_image i = { 0 };
	struct taken t = { 0 };
	bool begun = false;
	uint8_t *frame;
	struct frame f;
	int err = 0;

	while (!err && (frame = next_frame(&p, &left, &f))) {
		if (begun)
			err = take(&i, &t, &f, frame + HEADER);
		else
			err = take_begin(&i, frame + HEADER, f.len);
		begun = true;
		must(i.files_seen == t.files && i.bytes_seen == t.bytes &&
		     i.file_left == t.announced - t.bytes);
		free(frame);
	}
}

static void to_primary(const uint8_t *p, size_t left)
{
	uint64_t total, lsn, installed;
	uint8_t *frame;
	struct frame f;

	if (left < 16)
		return;
	total = get_be64(p);
	lsn = get_be64(p + 8);
	p += 16;
	left -= 16;
	while ((frame = next_frame(&p, &left, &f))) {
		const uint8_t *in = frame + HEADER;

		if (resync_progress_decode(in, f.len, total, &installed) == 0)
			must(f.len == 8 && installed <= total && installed == get_be64(in));
		if (resync_done_decode(in, f.len, lsn) == 0)
			must(f.len == 8 && get_be64(in) == lsn);
		free(frame);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	if (data[0] % 2)
		to_primary(data + 1, size - 1);
	else
		to_mirror(data + 1, size - 1);
	return 0;
}
