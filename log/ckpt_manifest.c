/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest between bytes and struct. Pure; see ckpt_format.h for the layout. */
#include "log/ckpt_codec.h"

#include "common/byteorder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define HEADER_BYTES sizeof(struct ckpt_manifest_header)
#define ENTRY_BYTES sizeof(struct ckpt_manifest_entry)

void ckpt_manifest_clear(struct ckpt_manifest *m)
{
	free(m->segs);
	m->segs = NULL;
	m->seg_count = 0;
}

/* What is before the checksum's field is the seed for what is behind it. */
static uint64_t copy_checksum(const uint8_t *copy, size_t len)
{
	const size_t at = offsetof(struct ckpt_manifest_header, checksum);
	uint64_t seed = XXH3_64bits(copy, at);

	return XXH3_64bits_withSeed(copy + HEADER_BYTES, len - HEADER_BYTES, seed);
}

static void header_put(struct ckpt_manifest_header *h, const struct ckpt_manifest *m,
		       const uint8_t uuid[16])
{
	const struct ckpt_info *i = &m->info;

	put_be64(&h->magic, CKPT_MANIFEST_MAGIC);
	put_be32(&h->version, CKPT_FORMAT_VERSION);
	memcpy(h->uuid, uuid, sizeof(h->uuid));
	put_be64(&h->number, i->number);
	put_be64(&h->lsn, i->lsn);
	put_be64(&h->epoch, i->epoch);
	put_be64(&h->first_seg, i->first_seg);
	put_be64(&h->last_seg, i->last_seg);
	put_be64(&h->bytes, i->bytes);
	put_be64(&h->time_ns, i->time_ns);
	put_be64(&h->next_ino, i->next_ino);
	put_be32(&h->seg_count, m->seg_count);
}

int ckpt_manifest_encode(const struct ckpt_manifest *m, const uint8_t uuid[16], uint8_t **ret_data,
			 size_t *ret_len)
{
	size_t len = HEADER_BYTES + m->seg_count * ENTRY_BYTES;
	uint8_t *data = calloc(2, len);
	struct ckpt_manifest_header *h = (void *)data;

	if (!data)
		return -ENOMEM;
	header_put(h, m, uuid);
	for (uint32_t i = 0; i < m->seg_count; i++) {
		struct ckpt_manifest_entry *e = (void *)(data + HEADER_BYTES + i * ENTRY_BYTES);

		put_be64(&e->seg, m->segs[i].seg);
		put_be64(&e->bytes, m->segs[i].bytes);
		put_be64(&e->item_count, m->segs[i].item_count);
		put_be64(&e->checksum, m->segs[i].checksum);
		put_be32(&e->block_count, m->segs[i].block_count);
	}
	put_be64(&h->checksum, copy_checksum(data, len));
	memcpy(data + len, data, len);
	*ret_data = data;
	*ret_len = 2 * len;
	return 0;
}

static int header_check(const uint8_t *copy, size_t len, const uint8_t uuid[16])
{
	const struct ckpt_manifest_header *h = (const void *)copy;

	if (len < HEADER_BYTES || get_be64(&h->magic) != CKPT_MANIFEST_MAGIC)
		return -EBADMSG;
	/* The checksum's place is fixed for all versions: damage is told from a newer format. */
	if (get_be64(&h->checksum) != copy_checksum(copy, len))
		return -EBADMSG;
	if (get_be32(&h->version) != CKPT_FORMAT_VERSION || get_be32(&h->feature_incompat) != 0)
		return -EPROTONOSUPPORT;
	if (memcmp(h->uuid, uuid, sizeof(h->uuid)) != 0 || get_be32(&h->zero) != 0)
		return -EBADMSG;
	if (get_be32(&h->seg_count) > CKPT_SEGS_MAX ||
	    len != HEADER_BYTES + get_be32(&h->seg_count) * ENTRY_BYTES)
		return -EBADMSG;
	return 0;
}

static void header_get(const struct ckpt_manifest_header *h, struct ckpt_info *ret_info)
{
	*ret_info = (struct ckpt_info){
		.number = get_be64(&h->number),
		.lsn = get_be64(&h->lsn),
		.epoch = get_be64(&h->epoch),
		.first_seg = get_be64(&h->first_seg),
		.last_seg = get_be64(&h->last_seg),
		.bytes = get_be64(&h->bytes),
		.time_ns = get_be64(&h->time_ns),
		.next_ino = get_be64(&h->next_ino),
	};
}

/* Could a segment of this length hold these blocks? Keeps later sums from overflowing, too. */
static int entry_get(const struct ckpt_manifest_entry *e, struct ckpt_seg *ret_seg)
{
	struct ckpt_seg s = {
		.seg = get_be64(&e->seg),
		.bytes = get_be64(&e->bytes),
		.item_count = get_be64(&e->item_count),
		.checksum = get_be64(&e->checksum),
		.block_count = get_be32(&e->block_count),
	};
	uint64_t pages = s.bytes / CKPT_PAGE_BYTES;

	if (s.bytes % CKPT_PAGE_BYTES != 0 || s.block_count == 0 || get_be32(&e->zero) != 0)
		return -EBADMSG;
	if (pages < 1 + (uint64_t)s.block_count ||
	    s.bytes > CKPT_PAGE_BYTES + (uint64_t)s.block_count * CKPT_BLOCK_BYTES_MAX)
		return -EBADMSG;
	*ret_seg = s;
	return 0;
}

static int entries_get(const uint8_t *entries, struct ckpt_manifest *m)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < m->seg_count; i++) {
		if (entry_get((const void *)(entries + i * ENTRY_BYTES), &m->segs[i]) ||
		    m->segs[i].seg != m->info.first_seg + i)
			return -EBADMSG;
		if (__builtin_add_overflow(bytes, m->segs[i].bytes, &bytes))
			return -EBADMSG;
	}
	return bytes == m->info.bytes ? 0 : -EBADMSG;
}

static int copy_decode(const uint8_t *copy, size_t len, const uint8_t uuid[16],
		       struct ckpt_manifest *ret_m)
{
	const struct ckpt_manifest_header *h = (const void *)copy;
	struct ckpt_manifest m = { 0 };
	int err = header_check(copy, len, uuid);

	if (err)
		return err;
	header_get(h, &m.info);
	m.seg_count = get_be32(&h->seg_count);
	if (m.info.number == 0 || m.info.first_seg == 0 ||
	    m.info.last_seg > UINT64_MAX - CKPT_SEGS_MAX ||
	    m.info.last_seg + 1 - m.info.first_seg != m.seg_count)
		return -EBADMSG;
	m.segs = calloc(m.seg_count ? m.seg_count : 1, sizeof(*m.segs));
	if (!m.segs)
		return -ENOMEM;
	err = entries_get(copy + HEADER_BYTES, &m);
	if (err) {
		ckpt_manifest_clear(&m);
		return err;
	}
	*ret_m = m;
	return 0;
}

int ckpt_manifest_decode(const uint8_t *data, size_t len, const uint8_t uuid[16],
			 struct ckpt_manifest *ret_m)
{
	int err, err2;

	if (len % 2 != 0)
		return -EBADMSG;
	err = copy_decode(data, len / 2, uuid, ret_m);
	if (!err || err == -ENOMEM)
		return err;
	err2 = copy_decode(data + len / 2, len / 2, uuid, ret_m);
	return err2 == -EBADMSG ? err : err2;
}
