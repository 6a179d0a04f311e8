/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_COMMON_HISTOGRAM_H
#define KVFS_COMMON_HISTOGRAM_H
/*
 * Log-linear histogram of non-negative 64-bit values (nanoseconds, bytes): 16 linear steps a
 * doubling, so a percentile is right to about 6 %. Any thread may add while another reads; a read
 * is not a snapshot of one instant.
 */
#include <stdatomic.h>
#include <stdint.h>

#define HISTOGRAM_SUB_BITS 4
#define HISTOGRAM_BUCKETS ((64 - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS)

struct histogram {
	_Atomic uint64_t counts[HISTOGRAM_BUCKETS];
	_Atomic uint64_t sum;
	_Atomic uint64_t max;
};

void histogram_add(struct histogram *h, uint64_t value);
void histogram_merge(struct histogram *into, const struct histogram *from);
uint64_t histogram_count(const struct histogram *h);
uint64_t histogram_sum(const struct histogram *h);
uint64_t histogram_max(const struct histogram *h);
double histogram_mean(const struct histogram *h); /* 0 when empty */

/* The value below or at which the share q (0..1) of all values lies: a bucket's upper end, at most
 * the maximum; 0 when empty. */
uint64_t histogram_quantile(const struct histogram *h, double q);

/* The bucket that value falls in. */
unsigned histogram_bucket(uint64_t value);
/* Largest value that falls in bucket i. */
uint64_t histogram_bucket_max(unsigned i);

#endif
