/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target for a mirror's ring: whether a record that a notice names is where it may be, and
 * what becomes of it. The input is a list of steps behind how far the mirror is: the peer writes a
 * record to the ring, whole and sealed or then damaged, gives notice of a place, or the run is
 * taken as if it were logged and applied. The ring is memory of just its size.
 * Corpus: tests/fuzz/corpus/ring.
 */
#include "replication/mirror/mirror_internal.h"

#include "common/crc32c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RING_BYTES (2 * 4096U)
#define UNIT TRANSPORT_IMM_UNIT

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum step_kind { STEP_WRITE, STEP_NOTICE, STEP_NEXT, STEP_DAMAGE, STEP_TAKE, STEP_STALL, STEP_END };

struct step {
	uint8_t kind, opcode;
	uint16_t unit;    /* place in the ring; of STEP_NOTICE the upper bits are in epoch, lsn */
	uint16_t bytes;   /* of a write's data; of damage: where in the record's unit */
	uint8_t lsn;      /* to the next expected one, from -4 */
	uint8_t epoch;
};

/* Begins an input. */
struct scene {
	uint8_t received, epoch, run_epoch, at_unit; /* where the next record belongs */
};

static struct mirror m;

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* False: it would reach beyond the end. */
static bool put_record(const struct step *s, uint64_t off)
{
	static const uint8_t zeros[RING_BYTES];
	uint8_t head[RECORD_HEAD_MAX];
	struct record r = { .ino = 5, .gen = 1, .timestamp_ns = 1, .opcode = RECORD_WRITE };
	size_t head_len;

	if (s->opcode % 8 == 1) {
		r.opcode = RECORD_GENERATION;
		r.u.generation.generation = 1;
		r.u.generation.format_version = 1;
	} else {
		r.data = zeros;
		r.data_len = 1 + s->bytes % RING_BYTES;
	}
	head_len = record_head_bytes(&r);
	if (off + record_bytes(&r) > RING_BYTES)
		return false;
	record_encode_head(&r, head);
	record_seal(head, head_len, m.received_lsn + s->lsn - 4, s->epoch % 8,
		    crc32c(0, zeros, r.data_len), r.data_len);
	memcpy(m.ring + off, head, head_len);
	memset(m.ring + off + head_len, 0, r.data_len);
	return true;
}

/* What the run holds is whole, in order, and its own copy. */
static void check_run(void)
{
	const struct mirror_run *run = &m.run;
	const uint8_t *at = run->copies;
	uint64_t bytes = 0, epoch = m.last_epoch;

	must(run->count <= MIRROR_RUN_RECORDS && run->copied <= MIRROR_COPY_CAPACITY);
	for (unsigned i = 0; i < run->count; i++) {
		const struct iovec *v = &run->iov[i];
		struct record r;
		size_t len;

		must(v->iov_base == at && record_decode(at, v->iov_len, &r, &len) == 0);
		must(len == v->iov_len && r.lsn == run->first_lsn + i);
		must(r.epoch >= epoch && r.epoch <= m.epoch && r.opcode != RECORD_GENERATION);
		epoch = r.epoch;
		at += (len + UNIT - 1) / UNIT * UNIT;
		bytes += len;
	}
	must(at == run->copies + run->copied && bytes == run->bytes);
	must(run->count == 0 || (run->first_lsn + run->count - 1 == m.received_lsn &&
				 run->ring_end == m.ring_pos));
}

/* Each record of the run from number first on lay in the ring behind the one before, from pos on,
 * where nothing has changed since. */
static void check_places(unsigned first, uint64_t pos)
{
	for (unsigned i = first; i < m.run.count; i++) {
		const struct iovec *v = &m.run.iov[i];
		uint64_t at = pos % RING_BYTES, need = (v->iov_len + UNIT - 1) / UNIT * UNIT;

		if (at + need > RING_BYTES) {
			pos += RING_BYTES - at;
			at = 0;
		}
		must(need <= RING_BYTES && memcmp(m.ring + at, v->iov_base, v->iov_len) == 0);
		pos += need;
	}
	must(m.ring_pos == pos);
}

static void check_slots(void)
{
	for (unsigned i = 0; i < REPL_WINDOW_RECORDS; i += 1 + (i > 64) * 509) {
		const struct mirror_slot *slot = &m.slots[i];

		must(slot->lsn == 0 || (slot->lsn % REPL_WINDOW_RECORDS == i &&
					(uint64_t)slot->unit * UNIT + slot->bytes <= RING_BYTES));
	}
}

static int notice(uint32_t imm)
{
	uint64_t pos = m.ring_pos;
	unsigned count = m.run.count;
	int err = mirror_rx_notice(&m, imm);

	must(err == 0 || ((err == -EBADMSG || err == -EPROTO) && m.last_error[0]));
	must(err || (uint64_t)imm * UNIT < RING_BYTES);
	check_run();
	check_places(count, pos);
	check_slots();
	return err;
}

static int take_run(void)
{
	uint64_t pos = m.ring_pos;
	int err;

	m.durable_lsn = m.applied_lsn = m.received_lsn;
	m.last_epoch = m.run_epoch;
	m.ring_freed = m.ring_pos;
	m.stalled_since_ns = 0;
	mirror_run_clear(&m.run);
	err = mirror_rx_pull(&m);
	must(err == 0 || err == -EBADMSG || err == -EPROTO);
	check_run();
	check_places(0, pos);
	return err;
}

static int step(const struct step *s)
{
	uint64_t off = (uint64_t)(s->unit % (RING_BYTES / UNIT)) * UNIT;

	switch ((enum step_kind)(s->kind % STEP_END)) {
	case STEP_WRITE:
		(void)put_record(s, off);
		return 0;
	case STEP_NOTICE:
		return notice(s->unit | (uint32_t)(s->opcode & s->epoch & s->lsn) << 16);
	case STEP_NEXT: /* as a primary does it */
		off = m.ring_pos % RING_BYTES;
		if (!put_record(s, off)) {
			off = 0;
			(void)put_record(s, off);
		}
		return notice((uint32_t)(off / UNIT));
	case STEP_DAMAGE:
		m.ring[(off + s->bytes) % RING_BYTES] ^= s->epoch;
		return 0;
	case STEP_TAKE:
		return take_run();
	case STEP_STALL:
		m.stalled_since_ns = 1;
		return 0;
	case STEP_END:
		break;
	}
	return 0;
}

static void set_up(const struct scene *scene)
{
	static bool once;

	if (!once) {
		once = true;
		must(pthread_mutex_init(&m.lock, NULL) == 0);
		m.slots = calloc(REPL_WINDOW_RECORDS, sizeof(*m.slots));
		m.run.copies = malloc(MIRROR_COPY_CAPACITY);
		m.ring_bytes = RING_BYTES;
		must(m.slots && m.run.copies);
	}
	m.ring = calloc(1, RING_BYTES);
	must(m.ring != NULL);
	m.last_error[0] = '\0';
	m.stalled_since_ns = 0;
	m.durable_lsn = 8 + scene->received;
	m.epoch = scene->epoch % 8;
	m.last_epoch = scene->run_epoch % 8;
	m.epochs = (struct epochs){ 0 };
	m.run.logged = false;
	mirror_rx_reset(&m);
	m.ring_pos = (uint64_t)scene->at_unit * UNIT;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct scene scene;
	struct step s;
	int err = 0;

	if (size < sizeof(scene))
		return 0;
	memcpy(&scene, data, sizeof(scene));
	data += sizeof(scene);
	size -= sizeof(scene);
	set_up(&scene);
	for (; !err && size >= sizeof(s); data += sizeof(s), size -= sizeof(s)) {
		memcpy(&s, data, sizeof(s));
		err = step(&s);
	}
	free(m.ring);
	return 0;
}
