/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From notice to LSN order. A record is checked (CRC, epoch, LSN, place) in a copy of our own,
 * since the peer can still write to the ring: what was checked is what is logged and applied.
 * In order it goes straight to the run, else into the window until what is missing has come on
 * another lane. As the sender fills the ring strictly by LSN, each record's place follows from the
 * one before: anything else is an overrun.
 */
#include "replication/mirror/mirror_internal.h"

#include <errno.h>
#include <string.h>

void mirror_rx_forget(struct mirror *m)
{
	memset(m->slots, 0, sizeof(*m->slots) * REPL_WINDOW_RECORDS);
}

void mirror_run_clear(struct mirror_run *run)
{
	run->count = 0;
	run->applied = 0;
	run->logged = false;
	run->bytes = 0;
	run->copied = 0;
}

void mirror_rx_reset(struct mirror *m)
{
	mirror_rx_forget(m);
	if (m->run.logged)
		m->run.ring_end = 0; /* the next session's ring begins anew */
	else
		mirror_run_clear(&m->run);
	m->received_lsn = m->durable_lsn;
	m->run_epoch = m->last_epoch;
	m->ring_pos = m->ring_freed = m->ring_freed_told = 0;
}

static struct mirror_slot *mirror_slot_of(struct mirror *m, uint64_t lsn)
{
	return &m->slots[lsn % REPL_WINDOW_RECORDS];
}

/* Where the run's next copy goes, if it is taken. */
static uint8_t *mirror_copy_place(const struct mirror *m)
{
	return m->run.copies + m->run.copied;
}

/* Decodes the record at off from a copy. Its length, too, is read once. */
static int mirror_rx_decode(struct mirror *m, uint64_t off, struct record *ret_r, size_t *ret_bytes)
{
	uint64_t room = m->ring_bytes - off;
	uint8_t *copy = mirror_copy_place(m);
	size_t bytes;
	int err;

	if (room < RECORD_HEADER_BYTES)
		return -EBADMSG;
	memcpy(copy, m->ring + off, RECORD_HEADER_BYTES);
	err = record_peek_bytes(copy, RECORD_HEADER_BYTES, &bytes);
	if (err || bytes > room || bytes > RECORD_BYTES_MAX)
		return -EBADMSG;
	memcpy(copy + RECORD_HEADER_BYTES, m->ring + off + RECORD_HEADER_BYTES,
	       bytes - RECORD_HEADER_BYTES);
	return record_decode(copy, bytes, ret_r, ret_bytes);
}

/* Checks the record at off; *ret_bytes are those of the whole record. What ret_r points to holds
 * until the next check, or as long as the run does if the record joins it. */
static int mirror_rx_check(struct mirror *m, uint64_t off, struct record *ret_r, size_t *ret_bytes)
{
	int err = mirror_rx_decode(m, off, ret_r, ret_bytes);

	if (err)
		return mirror_fail(m, -EBADMSG,
				   "corrupt record in the ring at %llu (after LSN %llu)",
				   (unsigned long long)off, (unsigned long long)m->received_lsn);
	if (ret_r->opcode == RECORD_GENERATION)
		return mirror_fail(m, -EPROTO, "a generation record was sent");
	if (ret_r->epoch > m->epoch)
		return mirror_fail(m, -EPROTO,
				   "record %llu is of epoch %llu, the primary's is %llu",
				   (unsigned long long)ret_r->lsn, (unsigned long long)ret_r->epoch,
				   (unsigned long long)m->epoch);
	return 0;
}

/* Where the history says that an epoch begins it does. */
static int mirror_check_new_epoch(struct mirror *m, const struct record *r)
{
	char theirs[EPOCH_TEXT_BYTES], ours[EPOCH_TEXT_BYTES];
	struct epochs_entry e;

	epoch_format(r->epoch, theirs);
	if (r->epoch < m->run_epoch)
		return mirror_fail(m, -EPROTO, "record %llu is of epoch %s, after one of %s",
				   (unsigned long long)r->lsn, theirs,
				   epoch_format(m->run_epoch, ours));
	if (epochs_at(&m->epochs, r->lsn, &e) && e.epoch != r->epoch)
		return mirror_fail(m, -EPROTO,
				   "record %llu is of epoch %s, by the primary's history of %s",
				   (unsigned long long)r->lsn, theirs, epoch_format(e.epoch, ours));
	return 0;
}

/* The record of received_lsn + 1, already at records[count], joins the run. */
static int mirror_run_add(struct mirror *m, uint64_t off, size_t bytes)
{
	struct mirror_run *run = &m->run;
	const struct record *r = &run->records[run->count];
	uint64_t need = (bytes + TRANSPORT_IMM_UNIT - 1) / TRANSPORT_IMM_UNIT * TRANSPORT_IMM_UNIT;
	uint64_t at = m->ring_pos % m->ring_bytes;
	uint64_t skip = at + need > m->ring_bytes ? m->ring_bytes - at : 0;

	if (off != (skip ? 0 : at))
		return mirror_fail(m, -EPROTO, "record %llu is not where it belongs in the ring",
				   (unsigned long long)r->lsn);
	if (r->epoch != m->run_epoch) {
		int err = mirror_check_new_epoch(m, r);

		if (err)
			return err;
	}
	if (run->count == 0)
		run->first_lsn = r->lsn;
	run->iov[run->count] = (struct iovec){ mirror_copy_place(m), bytes };
	run->copied += need;
	run->bytes += bytes;
	run->count++;
	m->ring_pos += skip + need;
	run->ring_end = m->ring_pos;
	m->received_lsn = r->lsn;
	m->run_epoch = r->epoch;
	return 0;
}

static bool mirror_run_open(const struct mirror *m)
{
	return m->run.count < MIRROR_RUN_RECORDS && m->run.copied < MIRROR_COPY_BYTES &&
	       !m->run.logged && !m->stalled_since_ns;
}

int mirror_rx_pull(struct mirror *m)
{
	while (mirror_run_open(m)) {
		struct mirror_slot *slot = mirror_slot_of(m, m->received_lsn + 1);
		uint64_t off = (uint64_t)slot->unit * TRANSPORT_IMM_UNIT;
		struct record *r = &m->run.records[m->run.count];
		size_t bytes;
		int err;

		if (slot->lsn != m->received_lsn + 1)
			break;
		err = mirror_rx_check(m, off, r, &bytes);
		if (!err && (r->lsn != slot->lsn || bytes != slot->bytes))
			err = mirror_fail(m, -EPROTO, "record %llu was overwritten in the ring",
					  (unsigned long long)slot->lsn);
		slot->lsn = 0;
		if (!err)
			err = mirror_run_add(m, off, bytes);
		if (err)
			return err;
	}
	return 0;
}

int mirror_rx_notice(struct mirror *m, uint32_t imm)
{
	uint64_t off = (uint64_t)imm * TRANSPORT_IMM_UNIT;
	struct record late, *r = mirror_run_open(m) ? &m->run.records[m->run.count] : &late;
	struct mirror_slot *slot;
	size_t bytes;
	int err;

	if (off >= m->ring_bytes)
		return mirror_fail(m, -EPROTO, "notice %#x is outside the ring", imm);
	err = mirror_rx_check(m, off, r, &bytes);
	if (err)
		return err;
	if (r->lsn <= m->received_lsn)
		return 0;
	if (r->lsn == m->received_lsn + 1 && r != &late) {
		err = mirror_run_add(m, off, bytes);
		return err ? err : mirror_rx_pull(m);
	}
	if (r->lsn - m->received_lsn > REPL_WINDOW_RECORDS)
		return mirror_fail(m, -EPROTO, "record %llu is too far beyond %llu",
				   (unsigned long long)r->lsn, (unsigned long long)m->received_lsn);
	if (r->lsn > m->received_lsn + 1)
		atomic_fetch_add_explicit(&m->reordered, 1, memory_order_relaxed);
	slot = mirror_slot_of(m, r->lsn);
	*slot = (struct mirror_slot){ .lsn = r->lsn, .unit = imm, .bytes = (uint32_t)bytes };
	return 0;
}
