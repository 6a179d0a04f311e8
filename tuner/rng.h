/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_RNG_H
#define KVFS_TUNER_RNG_H
/*
 * Random numbers that a seed repeats on every machine: splitmix64 (Steele, Lea, Flood, "Fast
 * splittable pseudorandom number generators", OOPSLA 2014). Not for secrets. Owned by one thread.
 */
#include <math.h>
#include <stdint.h>

struct rng {
	uint64_t state;
};

static inline uint64_t rng_next(struct rng *r)
{
	uint64_t z = r->state += 0x9E3779B97F4A7C15ULL;

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
	return z ^ (z >> 31);
}

/* In [0, 1). */
static inline double rng_unit(struct rng *r)
{
	return (double)(rng_next(r) >> 11) * 0x1p-53;
}

/* In [low, high). */
static inline double rng_between(struct rng *r, double low, double high)
{
	return low + (high - low) * rng_unit(r);
}

/* In [0, n), n > 0. */
static inline unsigned rng_below(struct rng *r, unsigned n)
{
	return (unsigned)(rng_unit(r) * n);
}

/* Mean 0, standard deviation 1 (Box and Muller). */
static inline double rng_normal(struct rng *r)
{
	double u = 1.0 - rng_unit(r), v = rng_unit(r);

	return sqrt(-2.0 * log(u)) * cos(2.0 * M_PI * v);
}

#endif
