/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs and the table of where each began: see epoch.h. Pure; 0 or -errno. */
#include "log/epoch.h"

#include "common/byteorder.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static_assert(8 + 8 + 4 + 4 == EPOCHS_ENTRY_BYTES, "epoch, first_lsn, node_id, life");

uint64_t epoch_next(uint64_t epoch, bool promoted)
{
	uint64_t term = epoch_term(epoch) ? epoch_term(epoch) : 1;

	if (promoted)
		return epoch_make(term + 1, 1);
	return epoch_term(epoch) ? epoch + 1 : epoch_make(1, 1);
}

char *epoch_format(uint64_t epoch, char out[EPOCH_TEXT_BYTES])
{
	snprintf(out, EPOCH_TEXT_BYTES, "%" PRIu64 ".%" PRIu64, epoch_term(epoch),
		 epoch_start(epoch));
	return out;
}

void epochs_cut(struct epochs *t, uint64_t last_lsn)
{
	while (t->count > 0 && t->entry[t->count - 1].first_lsn > last_lsn)
		t->count--;
}

int epochs_begin(struct epochs *t, uint64_t epoch, uint64_t first_lsn, uint32_t node_id,
		 uint32_t life)
{
	assert(first_lsn > 0 && life != 0);
	epochs_cut(t, first_lsn - 1);
	if (t->count > 0 && epoch <= t->entry[t->count - 1].epoch)
		return -EINVAL;
	if (t->count == EPOCHS_MAX) {
		t->count--;
		memmove(&t->entry[0], &t->entry[1], t->count * sizeof(t->entry[0]));
	}
	t->entry[t->count++] = (struct epochs_entry){
		.epoch = epoch, .first_lsn = first_lsn, .node_id = node_id, .life = life
	};
	return 0;
}

bool epochs_at(const struct epochs *t, uint64_t lsn, struct epochs_entry *ret_entry)
{
	for (uint32_t i = t->count; i > 0; i--) {
		if (t->entry[i - 1].first_lsn > lsn)
			continue;
		*ret_entry = t->entry[i - 1];
		return true;
	}
	return false;
}

static bool epochs_entry_equal(const struct epochs_entry *a, const struct epochs_entry *b)
{
	return a->epoch == b->epoch && a->first_lsn == b->first_lsn && a->node_id == b->node_id &&
	       a->life == b->life;
}

/* The last LSN of the records of e in t, when t has exactly that epoch. */
static bool epochs_end_of(const struct epochs *t, uint64_t last_lsn, const struct epochs_entry *e,
			  uint64_t *ret_end)
{
	for (uint32_t i = 0; i < t->count; i++) {
		const struct epochs_entry *x = &t->entry[i];

		if (!epochs_entry_equal(x, e))
			continue;
		*ret_end = i + 1 < t->count && t->entry[i + 1].first_lsn <= last_lsn
			       ? t->entry[i + 1].first_lsn - 1
			       : last_lsn;
		return x->first_lsn <= last_lsn;
	}
	return false;
}

uint64_t epochs_common(const struct epochs *a, uint64_t a_last, const struct epochs *b,
		       uint64_t b_last)
{
	for (uint32_t i = a->count; i > 0; i--) {
		uint64_t a_end, b_end;

		if (epochs_end_of(a, a_last, &a->entry[i - 1], &a_end) &&
		    epochs_end_of(b, b_last, &a->entry[i - 1], &b_end))
			return a_end < b_end ? a_end : b_end;
	}
	return 0;
}

bool epochs_equal(const struct epochs *a, const struct epochs *b)
{
	if (a->count != b->count)
		return false;
	for (uint32_t i = 0; i < a->count; i++) {
		if (!epochs_entry_equal(&a->entry[i], &b->entry[i]))
			return false;
	}
	return true;
}

size_t epochs_encode(const struct epochs *t, uint8_t out[EPOCHS_BYTES_MAX])
{
	for (uint32_t i = 0; i < t->count; i++) {
		uint8_t *p = out + (size_t)i * EPOCHS_ENTRY_BYTES;

		put_be64(p, t->entry[i].epoch);
		put_be64(p + 8, t->entry[i].first_lsn);
		put_be32(p + 16, t->entry[i].node_id);
		put_be32(p + 20, t->entry[i].life);
	}
	return (size_t)t->count * EPOCHS_ENTRY_BYTES;
}

int epochs_decode(const uint8_t *in, size_t len, struct epochs *ret_t)
{
	struct epochs t = { 0 };

	if (len % EPOCHS_ENTRY_BYTES || len > EPOCHS_BYTES_MAX)
		return -EBADMSG;
	for (; t.count < len / EPOCHS_ENTRY_BYTES; t.count++) {
		const uint8_t *p = in + (size_t)t.count * EPOCHS_ENTRY_BYTES;
		struct epochs_entry *e = &t.entry[t.count];

		*e = (struct epochs_entry){ .epoch = get_be64(p), .first_lsn = get_be64(p + 8),
					    .node_id = get_be32(p + 16),
					    .life = get_be32(p + 20) };
		if (e->life == 0 || e->epoch == 0 || e->first_lsn == 0 ||
		    e->first_lsn == UINT64_MAX ||
		    (t.count && (e->epoch <= e[-1].epoch || e->first_lsn <= e[-1].first_lsn)))
			return -EBADMSG;
	}
	*ret_t = t;
	return 0;
}
