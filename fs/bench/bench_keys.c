/* SPDX-License-Identifier: Apache-2.0 */
/* The loads of kvfs bench and the choices of their clients: see bench_keys.h. */
#include "fs/bench/bench_keys.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct bench_load bench_loads[] = {
	{ "get", "read whole keys", { [BENCH_GET] = 100 }, BENCH_UNIFORM, false, 0, 0 },
	{ "put", "replace whole keys", { [BENCH_PUT] = 100 }, BENCH_UNIFORM, false, 0, 0 },
	{ "a", "YCSB A: 50 % get, 50 % put", { [BENCH_GET] = 50, [BENCH_PUT] = 50 },
	  BENCH_ZIPFIAN, false, 0, 0 },
	{ "b", "YCSB B: 95 % get, 5 % put", { [BENCH_GET] = 95, [BENCH_PUT] = 5 },
	  BENCH_ZIPFIAN, false, 0, 0 },
	{ "c", "YCSB C: get", { [BENCH_GET] = 100 }, BENCH_ZIPFIAN, false, 0, 0 },
	{ "d", "YCSB D: 95 % get of the latest, 5 % create",
	  { [BENCH_GET] = 95, [BENCH_CREATE] = 5 }, BENCH_LATEST, false, 0, 0 },
	{ "e", "YCSB E: 95 % scan of 20 keys, 5 % create",
	  { [BENCH_SCAN] = 95, [BENCH_CREATE] = 5 }, BENCH_ZIPFIAN, false, 0, 0 },
	{ "f", "YCSB F: 50 % get, 50 % read-modify-write", { [BENCH_GET] = 50, [BENCH_RMW] = 50 },
	  BENCH_ZIPFIAN, false, 0, 0 },
	{ "closed", "put by one client, one at a time",
	  { [BENCH_PUT] = 100 }, BENCH_UNIFORM, false, 1, 0 },
	{ "burst", "put 64 times, then nothing for 5 ms",
	  { [BENCH_PUT] = 100 }, BENCH_UNIFORM, false, 0, 5000 },
	{ "append", "append a value to a key",
	  { [BENCH_APPEND] = 100 }, BENCH_UNIFORM, false, 0, 0 },
	{ "create", "make new keys", { [BENCH_CREATE] = 100 }, BENCH_UNIFORM, false, 0, 0 },
	{ "seqwrite", "write a file in 1 MiB pieces (each thread its share)", { 0 },
	  BENCH_UNIFORM, true, 0, 0 },
};

const struct bench_load *bench_load_at(unsigned i)
{
	return i < sizeof(bench_loads) / sizeof(bench_loads[0]) ? &bench_loads[i] : NULL;
}

const struct bench_load *bench_load_find(const char *name)
{
	const struct bench_load *l;

	for (unsigned i = 0; (l = bench_load_at(i)); i++)
		if (strcmp(l->name, name) == 0)
			return l;
	return NULL;
}

/* xorshift64*: fast, seedable, good enough to choose keys. */
uint64_t bench_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545F4914F6CDD1DULL;
}

static double bench_random_unit(uint64_t *state)
{
	return (double)(bench_random(state) >> 11) * 0x1p-53;
}

/* Zipfian ranks by the rejection-free approximation of Gray et al., "Quickly generating
 * billion-record synthetic databases" (SIGMOD 1994), as YCSB uses. */
static void bench_zipf_init(struct bench_zipf *z, uint64_t n)
{
	z->n = (double)n;
	z->theta = 0.99;
	z->zeta_n = 0;
	for (uint64_t i = 1; i <= n; i++)
		z->zeta_n += 1.0 / pow((double)i, z->theta);
	z->alpha = 1.0 / (1.0 - z->theta);
	z->eta = (1.0 - pow(2.0 / z->n, 1.0 - z->theta)) /
		 (1.0 - (1.0 + pow(0.5, z->theta)) / z->zeta_n);
}

static uint64_t bench_zipf_rank(const struct bench_zipf *z, uint64_t *state)
{
	double u = bench_random_unit(state);
	double uz = u * z->zeta_n;
	uint64_t rank;

	if (uz < 1.0)
		return 0;
	if (uz < 1.0 + pow(0.5, z->theta))
		return 1;
	rank = (uint64_t)(z->n * pow(z->eta * u - z->eta + 1.0, z->alpha));
	return rank < (uint64_t)z->n ? rank : (uint64_t)z->n - 1;
}

void bench_keys_init(struct bench_keys *k, const struct bench_load *load, uint64_t count,
		     unsigned clients)
{
	k->load = load;
	k->count = count;
	k->clients = clients;
	atomic_store(&k->next, count);
	for (unsigned i = 0; i < BENCH_THREADS_MAX; i++)
		atomic_store(&k->creating[i], UINT64_MAX);
	bench_zipf_init(&k->zipf, count);
}

uint64_t bench_random_seed(uint64_t seed, unsigned client)
{
	uint64_t state = seed * 0x9E3779B97F4A7C15ULL + client * 0xD1B54A32D192ED03ULL + 1;

	return state ? state : 1;
}

void bench_random_fill(uint64_t *state, void *buf, size_t bytes)
{
	char *p = buf;

	for (size_t i = 0; i < bytes; i++)
		p[i] = (char)bench_random(state);
}

/* For keys below next. seq_cst on both sides: a create announces its key before it takes the number
 * on. */
static bool bench_key_is_being_made(struct bench_keys *k, uint64_t key)
{
	for (unsigned i = 0; i < k->clients; i++)
		if (atomic_load(&k->creating[i]) == key)
			return true;
	return false;
}

uint64_t bench_choose_key(struct bench_keys *k, uint64_t *random)
{
	uint64_t rank, key;

	if (k->load->keys == BENCH_UNIFORM)
		return bench_random(random) % k->count;
	rank = bench_zipf_rank(&k->zipf, random);
	if (k->load->keys == BENCH_ZIPFIAN)
		return (rank * 0x9E3779B97F4A7C15ULL) % k->count; /* the hot keys lie apart */
	key = atomic_load(&k->next) - 1 - rank;
	while (bench_key_is_being_made(k, key)) /* those made beforehand never are */
		key--;
	return key;
}

enum bench_op bench_choose_op(const struct bench_keys *k, uint64_t *random)
{
	unsigned roll = (unsigned)(bench_random(random) % 100), sum = 0;

	for (int op = 0; op < BENCH_OPS; op++) {
		sum += k->load->percent[op];
		if (roll < sum)
			return op;
	}
	return BENCH_GET;
}

uint64_t bench_create_begin(struct bench_keys *k, unsigned client)
{
	uint64_t key = atomic_load(&k->next);

	do /* announced first, so that nobody reads the key before it is there */
		atomic_store(&k->creating[client], key);
	while (!atomic_compare_exchange_weak(&k->next, &key, key + 1));
	return key;
}

/* Those made beforehand, and as many again; more than clients can be about to make. The loads that
 * don't prefer the latest keep to those made beforehand: they stay. */
uint64_t bench_keys_most(const struct bench_load *load, uint64_t count)
{
	if (!load->percent[BENCH_CREATE])
		return count;
	return (load->keys == BENCH_LATEST ? 2 : 3) * count + BENCH_THREADS_MAX;
}

bool bench_key_replaces(struct bench_keys *k, uint64_t key, uint64_t *ret_oldest)
{
	uint64_t first = k->load->keys == BENCH_LATEST ? 0 : k->count;
	uint64_t most = bench_keys_most(k->load, k->count) - first;

	if (key < first + most || bench_key_is_being_made(k, key - most))
		return false;
	*ret_oldest = key - most;
	return true;
}

void bench_create_end(struct bench_keys *k, unsigned client)
{
	atomic_store(&k->creating[client], UINT64_MAX);
}

char *bench_key_name(uint64_t key, char out[BENCH_NAME_BYTES])
{
	snprintf(out, BENCH_NAME_BYTES, "k%09" PRIu64, key);
	return out;
}
