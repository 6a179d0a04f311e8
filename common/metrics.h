/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_COMMON_METRICS_H
#define KVFS_COMMON_METRICS_H
/*
 * The metric registry: counters, gauges and histograms with labels. The data path counts without a
 * lock: each thread has a block of cells of its own, which only it writes; a snapshot adds the
 * blocks up. What a module counts for itself already is not counted again: it is copied in when a
 * snapshot is taken, by a collector. The HTTP endpoint (metrics_text.h), kvfs status, kvfs top and
 * the tuner all read snapshots.
 *
 * Threads: adding, setting and observing from any thread, never blocking; all of them take NULL for
 * a series and do nothing, so that modules run without a registry. Everything else takes the
 * registry's lock; collectors run with it held and may take their modules' locks.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* With a block of their own; others share one, with atomic additions. */
#define METRICS_THREADS 128
#define METRICS_LABELS_MAX 3
#define METRICS_OCTAVES 25U /* doublings that a histogram's finite buckets span */
#define METRICS_BUCKETS_MAX ((METRICS_OCTAVES << 2) + 2)

enum metrics_kind {
	METRICS_COUNTER,
	METRICS_GAUGE,
	METRICS_UNTYPED,
	METRICS_HISTOGRAM
};

/* A family: what all series of one name share. Constant; outlives the registry. */
struct metrics_def {
	const char *name, *help;
	enum metrics_kind kind;
	bool ns;	    /* counted in nanoseconds, shown in seconds */
	uint8_t first_bits; /* histogram: the first bucket holds values up to 2^first_bits */
	uint8_t sub_bits;   /* histogram: 2^sub_bits buckets a doubling, 0 to 2 */
};
#define METRICS_NS_FIRST_BITS 9 /* 512 ns to 17 s */

struct metrics;

/* One series. Only its owner's functions look inside. */
struct metric {
	struct metrics *owner;
	const struct metrics_def *def;
	char *labels; /* as shown: op="write" */
	const char *values[METRICS_LABELS_MAX];
	unsigned label_count;
	unsigned cell;	       /* first of its cells in every block */
	unsigned cell_count;   /* histogram: the buckets, then the sum */
	_Atomic uint64_t set;  /* metric_set: added to the cells' sum */
	_Atomic uint64_t real; /* metric_set_real: a double's bits */
	_Atomic bool is_real;  /* metric_set_real was called */
	const char *sum_of;    /* metric_sum_of; NULL: counted */
	struct metric *next;
};

struct metrics *metrics_create(void);	 /* NULL: no memory */
void metrics_destroy(struct metrics *m); /* nobody counts any more; NULL is fine */

/*
 * The series of def with these labels (pairs of name and value, both strings, then NULL); made when
 * it is new, shown from then on. NULL: m is NULL, no memory, or no room: whoever counts does
 * without it.
 */
struct metric *metrics_series(struct metrics *m, const struct metrics_def *def, ...)
	__attribute__((sentinel));

/* kvfs_stage_duration_seconds with this stage: the time a request spends in a part of the
 * machinery. */
struct metric *metrics_stage(struct metrics *m, const char *stage);

/* Makes s, a histogram nobody observes, show the sum of all series of another family of the same
 * shape. */
void metric_sum_of(struct metric *s, const char *family);

/* collect(ctx) runs before each snapshot, with the registry's lock: only metric_set*() and
 * metric_observed(). */
int metrics_add_collector(struct metrics *m, void (*collect)(void *ctx), void *ctx); /* -ENOMEM */
void metrics_remove_collector(struct metrics *m, void *ctx); /* none with ctx is fine */

/* Data path. A counter or gauge goes up by n (a gauge also down: add -n as uint64_t). */
static inline void metric_add(struct metric *s, uint64_t n);
/* A histogram gets value n times; values are nanoseconds where def says ns. */
static inline void metric_observe_n(struct metric *s, uint64_t value, uint64_t n);
static inline void metric_observe(struct metric *s, uint64_t value)
{
	metric_observe_n(s, value, 1);
}

/* For collectors, and for gauges that one thread owns. */
void metric_set(struct metric *s, uint64_t value);
void metric_set_real(struct metric *s, double value);

/* For collectors: how many values a histogram has seen. Takes no lock. */
uint64_t metric_observed(const struct metric *s);

/* The series of a family that has been made, whose first label's value is label (NULL: any), up to
 * max of them; returns how many. For who reads the same ones often. */
unsigned metrics_list(struct metrics *m, const char *family, const char *label,
		      struct metric **ret_series, unsigned max);
/* What a series has counted, without a lock and without its collectors: a counter's value; a
 * histogram's counts, metrics_bucket_count() of them, and as the result the sum of its values. */
uint64_t metric_value(const struct metric *s);
uint64_t metric_counts(const struct metric *s, uint64_t *ret_counts);

/* Histogram arithmetic, also for differences of two snapshots. counts has metrics_bucket_count().
 */
unsigned metrics_bucket_count(const struct metrics_def *def);
uint64_t metrics_bucket_max(const struct metrics_def *def, unsigned i); /* UINT64_MAX: the last */
/* The value at or below which the share q of all lies: a bucket's upper end; 0 when empty. Values
 * beyond the last finite bucket count as its end. */
uint64_t metrics_quantile(const struct metrics_def *def, const uint64_t *counts, double q);

/* A snapshot: series in order of their families' first registration. */
struct metrics_sample {
	const struct metrics_def *def;
	const char *sum_of;
	const char *labels; /* "" or op="write",… as shown */
	const char *values[METRICS_LABELS_MAX];
	unsigned label_count;
	bool is_real;
	uint64_t value; /* counter, gauge, untyped; not is_real */
	double real;
	uint64_t count, sum; /* histogram */
	const uint64_t *buckets;
};
struct metrics_snapshot {
	unsigned count;
	struct metrics_sample *samples;
	uint64_t *cells;
};

/* Collects and adds up. -ENOMEM. Its strings are the registry's: they live as long as that. */
int metrics_snapshot(struct metrics *m, struct metrics_snapshot *ret_snap);
void metrics_snapshot_free(struct metrics_snapshot *snap);

/* The sample of a name whose labels' values begin with label (NULL: the first). NULL: none. */
const struct metrics_sample *metrics_find(const struct metrics_snapshot *snap, const char *name,
					  const char *label);
/* Its whole number; 0 when there is none. */
uint64_t metrics_value(const struct metrics_snapshot *snap, const char *name, const char *label);

/* What follows is the data path's machinery. */
struct metrics {
	_Atomic(_Atomic uint64_t *) blocks[METRICS_THREADS]; /* [0] is always NULL: no slot yet */
	struct metrics_state *state;
};
extern _Thread_local unsigned metrics_thread_slot; /* 0: none yet */
/* A thread's first count, or one without a slot of its own. */
void metrics_add_slow(struct metric *s, unsigned at, uint64_t n);

/* This thread's cells of s; NULL: metrics_add_slow. */
static inline _Atomic uint64_t *metric_cells(struct metric *s)
{
	/* relaxed: the block is this thread's own */
	_Atomic uint64_t *block =
		atomic_load_explicit(&s->owner->blocks[metrics_thread_slot], memory_order_relaxed);

	return __builtin_expect(block != NULL, 1) ? block + s->cell : NULL;
}

static inline void metric_cell_add(_Atomic uint64_t *cell, uint64_t n)
{
	/* relaxed: only this thread writes it, and a snapshot may see it a moment late */
	atomic_store_explicit(cell, atomic_load_explicit(cell, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static inline void metric_add(struct metric *s, uint64_t n)
{
	_Atomic uint64_t *cells;

	if (!s)
		return;
	cells = metric_cells(s);
	if (cells)
		metric_cell_add(cells, n);
	else
		metrics_add_slow(s, 0, n);
}

static inline unsigned metrics_bucket(const struct metrics_def *def, uint64_t value)
{
	unsigned octave, sub;

	if (value <= 1ULL << def->first_bits)
		return 0;
	value--; /* buckets end at, not before, their bound */
	octave = 63U - (unsigned)__builtin_clzll(value);
	if (octave >= def->first_bits + METRICS_OCTAVES)
		return (METRICS_OCTAVES << def->sub_bits) + 1;
	sub = (unsigned)(value >> (octave - def->sub_bits)) & ((1U << def->sub_bits) - 1);
	return 1 + ((octave - def->first_bits) << def->sub_bits) + sub;
}

static inline void metric_observe_n(struct metric *s, uint64_t value, uint64_t n)
{
	_Atomic uint64_t *cells;
	unsigned bucket;

	if (!s)
		return;
	cells = metric_cells(s);
	bucket = metrics_bucket(s->def, value);
	if (cells) {
		metric_cell_add(cells + bucket, n);
		metric_cell_add(cells + s->cell_count - 1, value * n);
	} else {
		metrics_add_slow(s, bucket, n);
		metrics_add_slow(s, s->cell_count - 1, value * n);
	}
}

#endif
