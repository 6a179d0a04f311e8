/* SPDX-License-Identifier: Apache-2.0 */
/* The log-linear histogram: see histogram.h. */
#include "common/histogram.h"

/* Values below 16 have a bucket each; above, the top five bits choose it. */
unsigned histogram_bucket(uint64_t value)
{
	unsigned shift;

	if (value < (1U << HISTOGRAM_SUB_BITS))
		return (unsigned)value;
	shift = 63U - (unsigned)__builtin_clzll(value) - HISTOGRAM_SUB_BITS;
	return ((shift + 1) << HISTOGRAM_SUB_BITS) +
	       (unsigned)((value >> shift) - (1U << HISTOGRAM_SUB_BITS));
}

uint64_t histogram_bucket_max(unsigned i)
{
	unsigned shift = i >> HISTOGRAM_SUB_BITS;
	uint64_t sub = i & ((1U << HISTOGRAM_SUB_BITS) - 1);

	if (shift == 0)
		return sub;
	return ((sub + (1U << HISTOGRAM_SUB_BITS) + 1) << (shift - 1)) - 1;
}

void histogram_add(struct histogram *h, uint64_t value)
{
	uint64_t max = atomic_load_explicit(&h->max, memory_order_relaxed);

	atomic_fetch_add_explicit(&h->counts[histogram_bucket(value)], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->sum, value, memory_order_relaxed);
	while (value > max &&
	       !atomic_compare_exchange_weak_explicit(&h->max, &max, value, memory_order_relaxed,
						      memory_order_relaxed))
		;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		uint64_t n = atomic_load_explicit(&from->counts[i], memory_order_relaxed);

		if (n)
			atomic_fetch_add_explicit(&into->counts[i], n, memory_order_relaxed);
	}
	atomic_fetch_add_explicit(&into->sum, histogram_sum(from), memory_order_relaxed);
	if (histogram_max(from) > histogram_max(into))
		atomic_store_explicit(&into->max, histogram_max(from), memory_order_relaxed);
}

uint64_t histogram_count(const struct histogram *h)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		n += atomic_load_explicit(&h->counts[i], memory_order_relaxed);
	return n;
}

uint64_t histogram_sum(const struct histogram *h)
{
	return atomic_load_explicit(&h->sum, memory_order_relaxed);
}

uint64_t histogram_max(const struct histogram *h)
{
	return atomic_load_explicit(&h->max, memory_order_relaxed);
}

double histogram_mean(const struct histogram *h)
{
	uint64_t n = histogram_count(h);

	return n ? (double)histogram_sum(h) / (double)n : 0.0;
}

uint64_t histogram_quantile(const struct histogram *h, double q)
{
	uint64_t total = histogram_count(h), seen = 0;
	uint64_t max = histogram_max(h);
	double rank = q * (double)total;

	for (unsigned i = 0; total && i < HISTOGRAM_BUCKETS; i++) {
		seen += atomic_load_explicit(&h->counts[i], memory_order_relaxed);
		if ((double)seen >= rank && seen > 0)
			return histogram_bucket_max(i) < max ? histogram_bucket_max(i) : max;
	}
	return max;
}
