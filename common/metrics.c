/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry: threads' slots, series, collectors. See metrics.h. Snapshots are taken in
 * metrics_snapshot.c.
 *
 * A slot is a thread's number in every registry; it goes back when the thread ends, and what was
 * counted stays in the block for the next owner to go on from. The slot's atomics order the one
 * after the other.
 */
#include "common/metrics_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOT_WORDS (METRICS_THREADS / 64)

_Thread_local unsigned metrics_thread_slot;

static _Atomic uint64_t slots_taken[SLOT_WORDS] = { 1 }; /* slot 0 is nobody's */
static pthread_once_t slot_once = PTHREAD_ONCE_INIT;
static pthread_key_t slot_key;
static bool slot_key_made;

static void slot_release(void *arg)
{
	unsigned slot = metrics_thread_slot;

	metrics_thread_slot = 0;
	if (slot) /* release: pairs with the acquire in slot_take */
		atomic_fetch_and_explicit(&slots_taken[slot / 64], ~(1ULL << slot % 64),
					  memory_order_release);
}

static void slot_make_key(void)
{
	slot_key_made = pthread_key_create(&slot_key, slot_release) == 0;
}

/* A slot for this thread, until it ends. 0: none is free. */
static unsigned slot_take(void)
{
	pthread_once(&slot_once, slot_make_key);
	for (unsigned w = 0; slot_key_made && w < SLOT_WORDS; w++) {
		uint64_t taken = atomic_load_explicit(&slots_taken[w], memory_order_relaxed);

		while (~taken) {
			unsigned bit = (unsigned)__builtin_ctzll(~taken);

			if (!atomic_compare_exchange_weak_explicit(
				    &slots_taken[w], &taken, taken | 1ULL << bit,
				    memory_order_acquire, memory_order_relaxed))
				continue;
			metrics_thread_slot = w * 64 + bit;
			if (pthread_setspecific(slot_key, &slots_taken) == 0)
				return metrics_thread_slot;
			slot_release(NULL);
			return 0;
		}
	}
	return 0;
}

void metrics_add_slow(struct metric *s, unsigned at, uint64_t n)
{
	struct metrics *m = s->owner;
	unsigned slot = metrics_thread_slot ? metrics_thread_slot : slot_take();

	/* the slot may have a block already, from the thread before us */
	if (slot && !atomic_load_explicit(&m->blocks[slot], memory_order_relaxed)) {
		_Atomic uint64_t *block = calloc(METRICS_CELLS, sizeof(*block));

		/* release: pairs with the acquire in metrics_snapshot */
		atomic_store_explicit(&m->blocks[slot], block, memory_order_release);
	}
	if (slot && metric_cells(s))
		metric_cell_add(metric_cells(s) + at, n);
	else
		atomic_fetch_add_explicit(&m->state->shared[s->cell + at], n, memory_order_relaxed);
}

struct metrics *metrics_create(void)
{
	struct metrics *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->state = calloc(1, sizeof(*m->state));
	if (m->state)
		m->state->shared = calloc(METRICS_CELLS, sizeof(*m->state->shared));
	if (!m->state || !m->state->shared) {
		free(m->state);
		free(m);
		return NULL;
	}
	pthread_mutex_init(&m->state->lock, NULL);
	return m;
}

static void metric_free(struct metric *s)
{
	for (unsigned i = 0; i < s->label_count; i++)
		free((char *)(uintptr_t)s->values[i]);
	free(s->labels);
	free(s);
}

void metrics_destroy(struct metrics *m)
{
	struct metrics_family *f, *next;
	struct metrics_collector *c;

	if (!m)
		return;
	for (f = m->state->families; f; f = next) {
		next = f->next;
		while (f->first) {
			struct metric *s = f->first;

			f->first = s->next;
			metric_free(s);
		}
		free(f);
	}
	while ((c = m->state->collectors)) {
		m->state->collectors = c->next;
		free(c);
	}
	for (unsigned i = 0; i < METRICS_THREADS; i++)
		free(atomic_load_explicit(&m->blocks[i], memory_order_relaxed));
	pthread_mutex_destroy(&m->state->lock);
	free(m->state->shared);
	free(m->state);
	free(m);
}

/* Appends name="value" with what the text format escapes. */
static void label_print(FILE *out, const char *name, const char *value, bool first)
{
	fprintf(out, "%s%s=\"", first ? "" : ",", name);
	for (; *value; value++) {
		if (*value == '\n')
			fputs("\\n", out);
		else if (*value == '"' || *value == '\\')
			fprintf(out, "\\%c", *value);
		else
			fputc(*value, out);
	}
	fputc('"', out);
}

/* A series that is in no family yet. NULL: no memory, or more labels than there may be. */
static struct metric *metric_new(const struct metrics_def *def, va_list labels)
{
	struct metric *s = calloc(1, sizeof(*s));
	size_t size = 0;
	FILE *out = s ? open_memstream(&s->labels, &size) : NULL;
	const char *name;
	bool ok = out != NULL;

	while (ok && (name = va_arg(labels, const char *))) {
		const char *value = va_arg(labels, const char *);

		ok = s->label_count < METRICS_LABELS_MAX &&
		     (s->values[s->label_count] = strdup(value));
		if (!ok)
			break;
		label_print(out, name, value, s->label_count == 0);
		s->label_count++;
	}
	if (out && (fclose(out) != 0 || !s->labels))
		ok = false;
	if (ok) {
		s->def = def;
		s->cell_count = def->kind == METRICS_HISTOGRAM ? metrics_bucket_count(def) + 1 : 1;
		return s;
	}
	if (s)
		metric_free(s);
	return NULL;
}

static struct metrics_family *family_get_locked(struct metrics_state *st,
						const struct metrics_def *def)
{
	struct metrics_family **at = &st->families, *f;

	for (; *at; at = &(*at)->next)
		if (strcmp((*at)->def->name, def->name) == 0)
			return *at;
	f = calloc(1, sizeof(*f));
	if (f) {
		f->def = def;
		*at = f;
	}
	return f;
}

/* The family's series of the same labels, or fresh itself, then the family's. NULL: no room. */
static struct metric *family_add_locked(struct metrics *m, struct metrics_family *f,
					struct metric *fresh)
{
	struct metrics_state *st = m->state;
	struct metric **at = &f->first;
	unsigned cells = fresh->cell_count;

	for (; *at; at = &(*at)->next)
		if (strcmp((*at)->labels, fresh->labels) == 0)
			return *at;
	if (st->cells_used + cells > METRICS_CELLS)
		return NULL;
	fresh->owner = m;
	fresh->def = f->def;
	fresh->cell = st->cells_used;
	st->cells_used += cells;
	st->series_count++;
	*at = fresh;
	return fresh;
}

struct metric *metrics_series(struct metrics *m, const struct metrics_def *def, ...)
{
	struct metric *fresh, *s = NULL;
	struct metrics_family *f;
	va_list labels;

	if (!m)
		return NULL;
	va_start(labels, def);
	fresh = metric_new(def, labels);
	va_end(labels);
	if (!fresh)
		return NULL;
	pthread_mutex_lock(&m->state->lock);
	f = family_get_locked(m->state, def);
	if (f)
		s = family_add_locked(m, f, fresh);
	pthread_mutex_unlock(&m->state->lock);
	if (s != fresh)
		metric_free(fresh);
	return s;
}

struct metric *metrics_stage(struct metrics *m, const char *stage)
{
	static const struct metrics_def def = {
		.name = "kvfs_stage_duration_seconds",
		.help = "Time by stage: fuse (request to answer), log (an append to the local "
			"log), wire (a batch posted to its acknowledgement), "
			"mirror (records seen to acknowledged, on the mirror), apply (a run of "
			"records, on the mirror).",
		.kind = METRICS_HISTOGRAM,
		.ns = true,
		.first_bits = METRICS_NS_FIRST_BITS,
		.sub_bits = 1,
	};

	return metrics_series(m, &def, "stage", stage, NULL);
}

void metric_sum_of(struct metric *s, const char *family)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->owner->state->lock);
	s->sum_of = family;
	pthread_mutex_unlock(&s->owner->state->lock);
}

void metric_set(struct metric *s, uint64_t value)
{
	if (s)
		atomic_store_explicit(&s->set, value, memory_order_relaxed);
}

void metric_set_real(struct metric *s, double value)
{
	uint64_t bits;

	if (!s)
		return;
	memcpy(&bits, &value, sizeof(bits));
	atomic_store_explicit(&s->real, bits, memory_order_relaxed);
	atomic_store_explicit(&s->is_real, true, memory_order_relaxed);
}

int metrics_add_collector(struct metrics *m, void (*collect)(void *ctx), void *ctx)
{
	struct metrics_collector *c = calloc(1, sizeof(*c)), **at = &m->state->collectors;

	if (!c)
		return -ENOMEM;
	c->collect = collect;
	c->ctx = ctx;
	pthread_mutex_lock(&m->state->lock);
	while (*at)
		at = &(*at)->next;
	*at = c;
	pthread_mutex_unlock(&m->state->lock);
	return 0;
}

void metrics_remove_collector(struct metrics *m, void *ctx)
{
	struct metrics_collector **at = &m->state->collectors, *gone;

	pthread_mutex_lock(&m->state->lock);
	while (*at && (*at)->ctx != ctx)
		at = &(*at)->next;
	gone = *at;
	if (gone)
		*at = gone->next;
	pthread_mutex_unlock(&m->state->lock);
	free(gone);
}
