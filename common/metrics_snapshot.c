/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the registry: snapshots, and histogram arithmetic. A snapshot adds up what the threads'
 * blocks hold at about one time, not at one instant. See metrics.h.
 */
#include "common/metrics_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

unsigned metrics_bucket_count(const struct metrics_def *def)
{
	return (METRICS_OCTAVES << def->sub_bits) + 2;
}

uint64_t metrics_bucket_max(const struct metrics_def *def, unsigned i)
{
	unsigned octave, sub;

	if (i == 0)
		return 1ULL << def->first_bits;
	if (i > METRICS_OCTAVES << def->sub_bits)
		return UINT64_MAX;
	octave = def->first_bits + ((i - 1) >> def->sub_bits);
	sub = (i - 1) & ((1U << def->sub_bits) - 1);
	return (1ULL << octave) + ((uint64_t)(sub + 1) << (octave - def->sub_bits));
}

uint64_t metrics_quantile(const struct metrics_def *def, const uint64_t *counts, double q)
{
	unsigned n = metrics_bucket_count(def);
	uint64_t total = 0, seen = 0;
	double rank;

	for (unsigned i = 0; i < n; i++)
		total += counts[i];
	rank = q * (double)total;
	for (unsigned i = 0; total && i + 1 < n; i++) {
		seen += counts[i];
		if (seen > 0 && (double)seen >= rank)
			return metrics_bucket_max(def, i);
	}
	return total ? metrics_bucket_max(def, n - 2) : 0;
}

/* The sum of one cell over all threads. */
static uint64_t metric_cell(const struct metric *s, unsigned at)
{
	struct metrics *m = s->owner;
	uint64_t sum = atomic_load_explicit(&m->state->shared[s->cell + at], memory_order_relaxed);

	for (unsigned i = 1; i < METRICS_THREADS; i++) {
		/* acquire: pairs with the release in metrics_add_slow */
		_Atomic uint64_t *block = atomic_load_explicit(&m->blocks[i], memory_order_acquire);

		if (block)
			sum += atomic_load_explicit(&block[s->cell + at], memory_order_relaxed);
	}
	return sum;
}

uint64_t metric_observed(const struct metric *s)
{
	uint64_t count = 0;

	for (unsigned i = 0; s && i + 1 < s->cell_count; i++)
		count += metric_cell(s, i);
	return count;
}

unsigned metrics_list(struct metrics *m, const char *family, const char *label,
		      struct metric **ret_series, unsigned max)
{
	const struct metrics_family *f;
	unsigned n = 0;

	if (!m)
		return 0;
	pthread_mutex_lock(&m->state->lock);
	for (f = m->state->families; f && strcmp(f->def->name, family) != 0; f = f->next)
		;
	for (struct metric *s = f ? f->first : NULL; s && n < max; s = s->next)
		if (!label || (s->label_count && strcmp(s->values[0], label) == 0))
			ret_series[n++] = s;
	pthread_mutex_unlock(&m->state->lock);
	return n;
}

uint64_t metric_value(const struct metric *s)
{
	return metric_cell(s, 0) + atomic_load_explicit(&s->set, memory_order_relaxed);
}

uint64_t metric_counts(const struct metric *s, uint64_t *ret_counts)
{
	for (unsigned i = 0; i + 1 < s->cell_count; i++)
		ret_counts[i] = metric_cell(s, i);
	return metric_cell(s, s->cell_count - 1);
}

static void sample_read_histogram(const struct metric *s, struct metrics_sample *out,
				  uint64_t *cells)
{
	for (unsigned i = 0; i + 1 < s->cell_count; i++) {
		cells[i] = metric_cell(s, i);
		out->count += cells[i];
	}
	out->sum = metric_cell(s, s->cell_count - 1);
	out->buckets = cells;
}

/* Returns how many cells it used. */
static unsigned sample_read(const struct metric *s, struct metrics_sample *out, uint64_t *cells)
{
	uint64_t bits;

	*out = (struct metrics_sample){
		.def = s->def,
		.sum_of = s->sum_of,
		.labels = s->labels,
		.label_count = s->label_count,
	};
	memcpy(out->values, s->values, sizeof(out->values));
	if (s->def->kind == METRICS_HISTOGRAM) {
		out->buckets = cells;
		if (!s->sum_of)
			sample_read_histogram(s, out, cells);
		return s->cell_count - 1;
	}
	out->is_real = atomic_load_explicit(&s->is_real, memory_order_relaxed);
	bits = atomic_load_explicit(&s->real, memory_order_relaxed);
	memcpy(&out->real, &bits, sizeof(out->real));
	out->value = metric_cell(s, 0) + atomic_load_explicit(&s->set, memory_order_relaxed);
	/* up and down in different threads: seen apart it may look like less than nothing */
	if (s->def->kind == METRICS_GAUGE && (int64_t)out->value < 0)
		out->value = 0;
	return 0;
}

/* A histogram that is the sum of another family's series of the same shape. */
static void sample_add_up(struct metrics_snapshot *snap, struct metrics_sample *out)
{
	unsigned n = metrics_bucket_count(out->def);
	uint64_t *cells = (uint64_t *)(uintptr_t)out->buckets;

	for (unsigned i = 0; i < snap->count; i++) {
		const struct metrics_sample *part = &snap->samples[i];

		if (strcmp(part->def->name, out->sum_of) != 0)
			continue;
		for (unsigned k = 0; k < n; k++)
			cells[k] += part->buckets[k];
		out->count += part->count;
		out->sum += part->sum;
	}
}

static size_t snapshot_cells_locked(const struct metrics_state *st)
{
	const struct metrics_family *f;
	const struct metric *s;
	size_t cells = 0;

	for (f = st->families; f; f = f->next)
		for (s = f->first; s && f->def->kind == METRICS_HISTOGRAM; s = s->next)
			cells += s->cell_count - 1;
	return cells;
}

static int snapshot_fill_locked(struct metrics_state *st, struct metrics_snapshot *snap)
{
	const struct metrics_family *f;
	const struct metric *s;
	size_t at = 0;

	snap->samples = calloc(st->series_count + 1, sizeof(*snap->samples));
	snap->cells = calloc(snapshot_cells_locked(st) + 1, sizeof(*snap->cells));
	if (!snap->samples || !snap->cells)
		return -ENOMEM;
	for (f = st->families; f; f = f->next)
		for (s = f->first; s; s = s->next)
			at += sample_read(s, &snap->samples[snap->count++], snap->cells + at);
	for (unsigned i = 0; i < snap->count; i++)
		if (snap->samples[i].sum_of)
			sample_add_up(snap, &snap->samples[i]);
	return 0;
}

int metrics_snapshot(struct metrics *m, struct metrics_snapshot *ret_snap)
{
	struct metrics_snapshot snap = { 0 };
	int err;

	pthread_mutex_lock(&m->state->lock);
	for (struct metrics_collector *c = m->state->collectors; c; c = c->next)
		c->collect(c->ctx);
	err = snapshot_fill_locked(m->state, &snap);
	pthread_mutex_unlock(&m->state->lock);
	if (err) {
		metrics_snapshot_free(&snap);
		return err;
	}
	*ret_snap = snap;
	return 0;
}

void metrics_snapshot_free(struct metrics_snapshot *snap)
{
	free(snap->samples);
	free(snap->cells);
	*snap = (struct metrics_snapshot){ 0 };
}

const struct metrics_sample *metrics_find(const struct metrics_snapshot *snap, const char *name,
					  const char *label)
{
	for (unsigned i = 0; i < snap->count; i++) {
		const struct metrics_sample *s = &snap->samples[i];

		if (strcmp(s->def->name, name) != 0)
			continue;
		if (!label || (s->label_count && strcmp(s->values[0], label) == 0))
			return s;
	}
	return NULL;
}

uint64_t metrics_value(const struct metrics_snapshot *snap, const char *name, const char *label)
{
	const struct metrics_sample *s = metrics_find(snap, name, label);

	return s ? s->value : 0;
}
