/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_BENCH_KEYS_H
#define KVFS_FS_BENCH_KEYS_H
/*
 * What a client of a load does next: which operation, on which key. Shared by the clients that go
 * through a directory and by those of the engine alone, so that both measure the same load.
 *
 * Threads: each client has its own random state and number; the rest may be used by all of them.
 */
#include "fs/bench/bench.h"

#include <stdatomic.h>
#include <stddef.h>

#define BENCH_THREADS_MAX 256
#define BENCH_SCAN_KEYS 20
#define BENCH_NAME_BYTES 32

struct bench_zipf {
	double n, theta, zeta_n, alpha, eta;
};

struct bench_keys {
	const struct bench_load *load;
	uint64_t count;         /* made beforehand */
	unsigned clients;
	struct bench_zipf zipf;
	_Atomic uint64_t next;  /* the key the next create takes */
	_Atomic uint64_t creating[BENCH_THREADS_MAX]; /* by client: the key it is making,
							 UINT64_MAX: none */
};

/* count and clients are above 0, clients at most BENCH_THREADS_MAX. */
void bench_keys_init(struct bench_keys *k, const struct bench_load *load, uint64_t count,
		     unsigned clients);

/* The first state of a client's random numbers: never 0, another one for each client. */
uint64_t bench_random_seed(uint64_t seed, unsigned client);
uint64_t bench_random(uint64_t *state);
/* A value's bytes, which don't compress to nothing. */
void bench_random_fill(uint64_t *state, void *buf, size_t bytes);

enum bench_op bench_choose_op(const struct bench_keys *k, uint64_t *random);
/* A key that exists. */
uint64_t bench_choose_key(struct bench_keys *k, uint64_t *random);

/* The key that client makes now; nobody chooses it before the end. */
uint64_t bench_create_begin(struct bench_keys *k, unsigned client);
/* So that a load that makes keys is bounded by its number of keys, not by its time: the key whose
 * place a new one takes, the oldest that nobody chooses any more. False: there is room for one
 * more, or that one is still being made. */
bool bench_key_replaces(struct bench_keys *k, uint64_t key, uint64_t *ret_oldest);
/* How many there are at most. */
uint64_t bench_keys_most(const struct bench_load *load, uint64_t count);
void bench_create_end(struct bench_keys *k, unsigned client);

/* "kNNNNNNNNN". Returns out. */
char *bench_key_name(uint64_t key, char out[BENCH_NAME_BYTES]);

#endif
