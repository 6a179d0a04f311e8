/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The superblock: encode, decode, and its two copies in VOLUME/superblock.
 * Copies are written one after the other, each synced before the next, so a crash leaves at least
 * one whole; the sequence number tells which is newer. No threads of its own. 0 or -errno.
 */
#include "log/volume.h"

#include "common/byteorder.h"
#include "common/crc32c.h"
#include "common/io.h"
#include "common/utf8.h"
#include "log/volume_format.h"

#include <errno.h>
#include <string.h>

static_assert(sizeof(((struct volume_media *)0)->label) == VOLUME_LABEL_MAX + 1, "label");

static const uint32_t known_incompat = VOLUME_FEATURE_NONE;

static uint32_t super_checksum(const uint8_t in[VOLUME_SUPER_BYTES])
{
	static const uint8_t zero[4];
	const size_t at = offsetof(struct volume_media, checksum);
	uint32_t crc = crc32c(0, in, at);

	crc = crc32c(crc, zero, sizeof(zero));
	return crc32c(crc, in + at + sizeof(zero), VOLUME_SUPER_BYTES - at - sizeof(zero));
}

void volume_super_encode(const struct volume_super *s, uint8_t out[VOLUME_SUPER_BYTES])
{
	struct volume_media m = { 0 };
	size_t label_len = strnlen(s->label, VOLUME_LABEL_MAX);

	memcpy(m.magic, VOLUME_MAGIC, VOLUME_MAGIC_BYTES);
	put_be32(&m.format_version, s->format_version);
	put_be32(&m.feature_incompat, s->feature_incompat);
	put_be32(&m.feature_compat, s->feature_compat);
	memcpy(m.uuid, s->uuid, sizeof(m.uuid));
	put_be32(&m.state, s->state);
	put_be32(&m.node_id, s->node_id);
	put_be64(&m.sequence, s->sequence);
	put_be64(&m.log_bytes, s->log_bytes);
	put_be64(&m.created_ns, s->created_ns);
	put_be64(&m.promised_epoch, s->promised_epoch);
	memcpy(m.key_id, s->key_id, sizeof(m.key_id));
	put_be32(&m.flags,
		 (s->is_pmem ? VOLUME_MEDIA_PMEM : 0U) | (s->is_mirror ? VOLUME_MEDIA_MIRROR : 0U));
	put_be32(&m.label_len, (uint32_t)label_len);
	memcpy(m.label, s->label, label_len);
	put_be32(&m.promised_node, s->promised_node);
	put_be32(&m.promised_life, s->promised_life);
	put_be32(&m.sync_count, s->sync_count);
	put_be64(&m.sync_epoch, s->sync_epoch);
	for (uint32_t i = 0; i < s->sync_count; i++)
		put_be32(&m.sync_nodes[i], s->sync_nodes[i]);
	put_be32(&m.epochs_count, s->epochs.count);
	epochs_encode(&s->epochs, m.epochs);
	memset(out, 0, VOLUME_SUPER_BYTES);
	memcpy(out, &m, sizeof(m));
	put_be32(out + offsetof(struct volume_media, checksum), super_checksum(out));
}

bool volume_label_valid(const char *label, size_t len)
{
	const unsigned char *p = (const unsigned char *)label;

	if (len > VOLUME_LABEL_MAX)
		return false;
	while (len > 0) {
		size_t n = utf8_sequence_bytes(p, len);

		if (n == 0 || p[0] < 0x20 || p[0] == 0x7f || (p[0] == 0xc2 && p[1] < 0xa0))
			return false;
		p += n;
		len -= n;
	}
	return true;
}

static bool all_zero(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (p[i] != 0)
			return false;
	}
	return true;
}

/* The fields in their ranges; version and features are the caller's. */
static bool media_fields_valid(const struct volume_media *m)
{
	uint32_t state = get_be32(&m->state);
	uint32_t label_len = get_be32(&m->label_len);

	return state >= VOLUME_INCOMPLETE && state <= VOLUME_RESYNCING &&
	       get_be32(&m->node_id) != 0 && !all_zero(m->uuid, sizeof(m->uuid)) &&
	       get_be64(&m->log_bytes) <= INT64_MAX &&
	       (get_be32(&m->flags) & ~(uint32_t)(VOLUME_MEDIA_PMEM | VOLUME_MEDIA_MIRROR)) == 0 &&
	       label_len <= VOLUME_LABEL_MAX &&
	       volume_label_valid((const char *)m->label, label_len) &&
	       all_zero(m->label + label_len, sizeof(m->label) - label_len);
}

/* What replication keeps here. */
static int media_decode_history(const struct volume_media *m, struct volume_super *s)
{
	uint32_t epochs = get_be32(&m->epochs_count);
	size_t used = (size_t)epochs * EPOCHS_ENTRY_BYTES;

	s->promised_node = get_be32(&m->promised_node);
	s->promised_life = get_be32(&m->promised_life);
	s->sync_epoch = get_be64(&m->sync_epoch);
	s->sync_count = get_be32(&m->sync_count);
	if (s->sync_count > VOLUME_SYNC_MAX || epochs > EPOCHS_MAX ||
	    !all_zero(m->epochs + used, sizeof(m->epochs) - used))
		return -EBADMSG;
	for (uint32_t i = 0; i < VOLUME_SYNC_MAX; i++) {
		s->sync_nodes[i] = get_be32(&m->sync_nodes[i]);
		if ((s->sync_nodes[i] != 0) != (i < s->sync_count))
			return -EBADMSG;
	}
	return epochs_decode(m->epochs, used, &s->epochs);
}

int volume_super_decode(const uint8_t in[VOLUME_SUPER_BYTES], struct volume_super *ret_s)
{
	struct volume_media m;
	struct volume_super s = { 0 };

	memcpy(&m, in, sizeof(m));
	if (memcmp(m.magic, VOLUME_MAGIC, VOLUME_MAGIC_BYTES) != 0)
		return -ENODATA;
	if (get_be32(&m.checksum) != super_checksum(in))
		return -EBADMSG;
	if (get_be32(&m.format_version) != VOLUME_FORMAT_VERSION ||
	    (get_be32(&m.feature_incompat) & ~known_incompat) != 0)
		return -EPROTONOSUPPORT;
	if (!media_fields_valid(&m) || media_decode_history(&m, &s) != 0)
		return -EBADMSG;
	memcpy(s.uuid, m.uuid, sizeof(s.uuid));
	memcpy(s.label, m.label, get_be32(&m.label_len));
	s.format_version = get_be32(&m.format_version);
	s.feature_incompat = get_be32(&m.feature_incompat);
	s.feature_compat = get_be32(&m.feature_compat);
	s.state = (enum volume_state)get_be32(&m.state);
	s.node_id = get_be32(&m.node_id);
	s.sequence = get_be64(&m.sequence);
	s.log_bytes = get_be64(&m.log_bytes);
	s.created_ns = get_be64(&m.created_ns);
	s.promised_epoch = get_be64(&m.promised_epoch);
	memcpy(s.key_id, m.key_id, sizeof(s.key_id));
	s.is_pmem = (get_be32(&m.flags) & VOLUME_MEDIA_PMEM) != 0;
	s.is_mirror = (get_be32(&m.flags) & VOLUME_MEDIA_MIRROR) != 0;
	*ret_s = s;
	return 0;
}

int volume_super_read(int fd, unsigned copy, struct volume_super *ret_s)
{
	uint8_t buf[VOLUME_SUPER_BYTES];
	int err;

	assert(copy < VOLUME_SUPER_COPIES);
	err = io_pread_full(fd, buf, sizeof(buf), (off_t)copy * VOLUME_SUPER_COPY_OFFSET);
	return err ? err : volume_super_decode(buf, ret_s);
}

int volume_super_choose(int fd, struct volume_super *ret_s, unsigned *ret_copy)
{
	struct volume_super s[VOLUME_SUPER_COPIES];
	int err[VOLUME_SUPER_COPIES];

	for (unsigned i = 0; i < VOLUME_SUPER_COPIES; i++)
		err[i] = volume_super_read(fd, i, &s[i]);
	if (err[0] == -EPROTONOSUPPORT || err[1] == -EPROTONOSUPPORT)
		return -EPROTONOSUPPORT;
	if (err[0] && err[1]) {
		if (err[0] == -EIO || err[1] == -EIO)
			return -EIO;
		return err[0] == -ENODATA && err[1] == -ENODATA ? -ENODATA : -EBADMSG;
	}
	*ret_copy = err[0] || (!err[1] && s[1].sequence > s[0].sequence) ? 1 : 0;
	*ret_s = s[*ret_copy];
	return 0;
}

/* One copy is on media when this returns 0. */
static int super_copy_write_durably(struct volume *v, unsigned copy,
				    const uint8_t buf[VOLUME_SUPER_BYTES])
{
	const struct ckpt_file_ops *files = v->files ? v->files : &ckpt_file_ops_system;
	int err = files->write(v->files_ctx, v->lockfd, buf, VOLUME_SUPER_BYTES,
			       (off_t)copy * VOLUME_SUPER_COPY_OFFSET);

	return err ? err : files->fsync(v->files_ctx, v->lockfd);
}

int volume_write_super(struct volume *v)
{
	uint8_t buf[VOLUME_SUPER_BYTES];
	int err;

	v->super.sequence++;
	volume_super_encode(&v->super, buf);
	err = super_copy_write_durably(v, 1 - v->copy, buf);
	if (!err)
		err = super_copy_write_durably(v, v->copy, buf);
	return err;
}
