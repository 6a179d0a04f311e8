/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loads of kvfs bench and the threads that run them. Keys are files kvfs-bench/kNNNNNNNNN; a
 * put is
 * open(O_WRONLY|O_CREAT|O_TRUNC), write, close; a get is open, read, close; as shell tools do it.
 */
#include "fs/bench.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/thread.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BENCH_DIR "kvfs-bench"
#define BENCH_SCAN_KEYS 20
#define BENCH_IO_BYTES (1U << 20)
#define BENCH_THREADS_MAX 256

static const struct bench_load bench_loads[] = {
	{ "get", "read whole keys", { [BENCH_GET] = 100 }, BENCH_UNIFORM, false },
	{ "put", "replace whole keys", { [BENCH_PUT] = 100 }, BENCH_UNIFORM, false },
	{ "a", "YCSB A: 50 % get, 50 % put", { [BENCH_GET] = 50, [BENCH_PUT] = 50 },
	  BENCH_ZIPFIAN, false },
	{ "b", "YCSB B: 95 % get, 5 % put", { [BENCH_GET] = 95, [BENCH_PUT] = 5 },
	  BENCH_ZIPFIAN, false },
	{ "c", "YCSB C: get", { [BENCH_GET] = 100 }, BENCH_ZIPFIAN, false },
	{ "d", "YCSB D: 95 % get of the latest, 5 % create",
	  { [BENCH_GET] = 95, [BENCH_CREATE] = 5 }, BENCH_LATEST, false },
	{ "e", "YCSB E: 95 % scan of 20 keys, 5 % create",
	  { [BENCH_SCAN] = 95, [BENCH_CREATE] = 5 }, BENCH_ZIPFIAN, false },
	{ "f", "YCSB F: 50 % get, 50 % read-modify-write", { [BENCH_GET] = 50, [BENCH_RMW] = 50 },
	  BENCH_ZIPFIAN, false },
	{ "append", "append a value to a key", { [BENCH_APPEND] = 100 }, BENCH_UNIFORM, false },
	{ "create", "make new keys", { [BENCH_CREATE] = 100 }, BENCH_UNIFORM, false },
	{ "seqwrite", "write a file in 1 MiB pieces (each thread its share)", { 0 },
	  BENCH_UNIFORM, true },
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
static uint64_t bench_random(uint64_t *state)
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
struct bench_zipf {
	double n, theta, zeta_n, alpha, eta;
};

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

struct bench_shared {
	const struct bench_config *cfg;
	struct bench_zipf zipf;
	int dirfd;
	_Atomic uint64_t next_key; /* the key the next create takes */
	_Atomic bool stop;
	struct bench_worker *workers;
};

struct bench_worker {
	struct bench_shared *shared;
	pthread_t thread;
	unsigned index;
	uint64_t random;
	_Atomic uint64_t creating; /* the key it is making, UINT64_MAX: none */
	char *buf;
	uint64_t ops, errors, bytes;
	int first_errno;
	struct histogram latency;
};

static void bench_key_name(uint64_t key, char out[32])
{
	snprintf(out, 32, "k%09" PRIu64, key);
}

/* Keys below it all exist. seq_cst on both sides: a create announces its key before it takes the
 * number on. */
static uint64_t bench_keys_made(struct bench_shared *s)
{
	uint64_t made = atomic_load(&s->next_key);

	for (unsigned i = 0; i < s->cfg->threads; i++) {
		uint64_t creating = atomic_load(&s->workers[i].creating);

		if (creating < made)
			made = creating;
	}
	return made;
}

static uint64_t bench_choose_key(struct bench_worker *w)
{
	struct bench_shared *s = w->shared;
	uint64_t n = s->cfg->keys, rank;

	if (s->cfg->load->keys == BENCH_UNIFORM)
		return bench_random(&w->random) % n;
	rank = bench_zipf_rank(&s->zipf, &w->random);
	if (s->cfg->load->keys == BENCH_LATEST)
		return bench_keys_made(s) - 1 - rank;
	return (rank * 0x9E3779B97F4A7C15ULL) % n; /* the hot keys lie apart */
}

static int bench_write_key(struct bench_worker *w, uint64_t key, int flags)
{
	char name[32];
	int fd, err;

	bench_key_name(key, name);
	fd = openat(w->shared->dirfd, name, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
	if (fd < 0)
		return -errno;
	err = io_write_full(fd, w->buf, w->shared->cfg->value_bytes);
	if (close(fd) != 0 && !err)
		err = -errno;
	if (!err)
		w->bytes += w->shared->cfg->value_bytes;
	return err;
}

static int bench_read_key(struct bench_worker *w, uint64_t key)
{
	char name[32];
	int fd, err = 0;
	ssize_t n;

	bench_key_name(key, name);
	fd = openat(w->shared->dirfd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while ((n = read(fd, w->buf, w->shared->cfg->value_bytes + 1)) > 0)
		w->bytes += (uint64_t)n;
	if (n < 0)
		err = -errno;
	close(fd);
	return err;
}

static int bench_scan(struct bench_worker *w, uint64_t key)
{
	uint64_t n = w->shared->cfg->keys;

	for (unsigned i = 0; i < BENCH_SCAN_KEYS; i++) {
		int err = bench_read_key(w, (key + i) % n);

		if (err)
			return err;
	}
	return 0;
}

static int bench_create_key(struct bench_worker *w)
{
	int err;

	/* below any number still to be taken, so that nobody reads the key before it is there */
	atomic_store(&w->creating, atomic_load(&w->shared->next_key));
	err = bench_write_key(w, atomic_fetch_add(&w->shared->next_key, 1), O_EXCL);
	atomic_store(&w->creating, UINT64_MAX);
	return err;
}

static int bench_do(struct bench_worker *w, enum bench_op op)
{
	uint64_t key = bench_choose_key(w);
	int err;

	switch (op) {
	case BENCH_GET:
		return bench_read_key(w, key);
	case BENCH_PUT:
		return bench_write_key(w, key, O_TRUNC);
	case BENCH_CREATE:
		return bench_create_key(w);
	case BENCH_APPEND:
		return bench_write_key(w, key, O_APPEND);
	case BENCH_SCAN:
		return bench_scan(w, key);
	default:
		err = bench_read_key(w, key);
		w->buf[0]++;
		return err ? err : bench_write_key(w, key, O_TRUNC);
	}
}

static enum bench_op bench_choose_op(struct bench_worker *w)
{
	unsigned roll = (unsigned)(bench_random(&w->random) % 100), sum = 0;

	for (int op = 0; op < BENCH_OPS; op++) {
		sum += w->shared->cfg->load->percent[op];
		if (roll < sum)
			return op;
	}
	return BENCH_GET;
}

static void bench_count(struct bench_worker *w, int err, uint64_t began_ns)
{
	histogram_add(&w->latency, clock_mono_ns() - began_ns);
	w->ops++;
	if (!err)
		return;
	w->errors++;
	if (!w->first_errno)
		w->first_errno = -err;
}

static void *bench_worker_keys(void *arg)
{
	struct bench_worker *w = arg;

	while (!atomic_load_explicit(&w->shared->stop, memory_order_relaxed)) {
		uint64_t began = clock_mono_ns();

		bench_count(w, bench_do(w, bench_choose_op(w)), began);
	}
	return NULL;
}

static void *bench_worker_sequential(void *arg)
{
	struct bench_worker *w = arg;
	uint64_t left = w->shared->cfg->file_bytes / w->shared->cfg->threads;
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "seq%u", w->index);
	fd = openat(w->shared->dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0) {
		bench_count(w, -errno, clock_mono_ns());
		return NULL;
	}
	while (left > 0) {
		size_t len = left < BENCH_IO_BYTES ? left : BENCH_IO_BYTES;
		uint64_t began = clock_mono_ns();
		int err = io_write_full(fd, w->buf, len);

		bench_count(w, err, began);
		if (err)
			break;
		w->bytes += len;
		left -= len;
	}
	close(fd);
	return NULL;
}

static int bench_open_dir(const struct bench_config *cfg, bool create)
{
	int top = open(cfg->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;

	if (top < 0)
		return -errno;
	if (create && mkdirat(top, BENCH_DIR, 0755) != 0 && errno != EEXIST)
		fd = -errno;
	else
		fd = openat(top, BENCH_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1)
		fd = -errno;
	close(top);
	return fd;
}

static int bench_worker_init(struct bench_worker *w, struct bench_shared *s, unsigned index)
{
	size_t bytes = s->cfg->value_bytes + 1;

	if (s->cfg->load && s->cfg->load->sequential)
		bytes = BENCH_IO_BYTES;
	w->shared = s;
	w->index = index;
	atomic_store(&w->creating, UINT64_MAX);
	w->random = s->cfg->seed * 0x9E3779B97F4A7C15ULL + index * 0xD1B54A32D192ED03ULL + 1;
	w->buf = malloc(bytes);
	if (!w->buf)
		return -ENOMEM;
	for (size_t i = 0; i < bytes; i++)
		w->buf[i] = (char)bench_random(&w->random);
	return 0;
}

int bench_prepare(const struct bench_config *cfg, void (*progress)(uint64_t done, uint64_t total))
{
	struct bench_shared shared = { .cfg = cfg };
	struct bench_worker *w = calloc(1, sizeof(*w));
	int err = w ? 0 : -ENOMEM;

	shared.dirfd = bench_open_dir(cfg, true);
	if (!err && shared.dirfd < 0)
		err = shared.dirfd;
	if (!err)
		err = bench_worker_init(w, &shared, 0);
	for (uint64_t key = 0; !err && !cfg->load->sequential && key < cfg->keys; key++) {
		err = bench_write_key(w, key, O_TRUNC);
		if (progress && key % 1024 == 0)
			progress(key, cfg->keys);
	}
	if (shared.dirfd >= 0)
		close(shared.dirfd);
	if (w)
		free(w->buf);
	free(w);
	return err;
}

static void bench_collect(struct bench_worker *w, struct bench_result *r)
{
	r->ops += w->ops;
	r->errors += w->errors;
	r->bytes += w->bytes;
	if (!r->first_errno)
		r->first_errno = w->first_errno;
	histogram_merge(&r->latency, &w->latency);
}

static int bench_run_workers(struct bench_shared *s, struct bench_worker *workers,
			     struct bench_result *r)
{
	const struct bench_config *cfg = s->cfg;
	void *(*fn)(void *) = cfg->load->sequential ? bench_worker_sequential : bench_worker_keys;
	uint64_t began = clock_mono_ns();
	unsigned started = 0;
	int err = 0;

	while (!err && started < cfg->threads) {
		err = thread_start(&workers[started].thread, "kv-bench", fn, &workers[started]);
		started += !err;
	}
	if (!err && !cfg->load->sequential) {
		struct timespec span = { (time_t)cfg->seconds,
					 (long)(fmod(cfg->seconds, 1.0) * 1e9) };

		nanosleep(&span, NULL); /* the measured time itself */
	}
	atomic_store(&s->stop, true);
	for (unsigned i = 0; i < started; i++)
		pthread_join(workers[i].thread, NULL);
	r->seconds = (double)(clock_mono_ns() - began) / 1e9;
	return err;
}

int bench_run(const struct bench_config *cfg, struct bench_result *ret_result)
{
	struct bench_shared shared = { .cfg = cfg };
	struct bench_worker *workers;
	int err = 0;

	if (cfg->threads == 0 || cfg->threads > BENCH_THREADS_MAX || cfg->keys == 0)
		return -EINVAL;
	shared.dirfd = bench_open_dir(cfg, true);
	if (shared.dirfd < 0)
		return shared.dirfd;
	atomic_store(&shared.next_key, cfg->keys);
	bench_zipf_init(&shared.zipf, cfg->keys);
	workers = calloc(cfg->threads, sizeof(*workers));
	shared.workers = workers;
	for (unsigned i = 0; workers && !err && i < cfg->threads; i++)
		err = bench_worker_init(&workers[i], &shared, i);
	if (!workers)
		err = -ENOMEM;
	if (!err)
		err = bench_run_workers(&shared, workers, ret_result);
	for (unsigned i = 0; workers && i < cfg->threads; i++) {
		bench_collect(&workers[i], ret_result);
		free(workers[i].buf);
	}
	free(workers);
	close(shared.dirfd);
	return err;
}

int bench_clean(const struct bench_config *cfg)
{
	int fd = bench_open_dir(cfg, false), err = 0;
	struct dirent *e;
	DIR *d;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	while ((e = readdir(d)))
		if (e->d_name[0] != '.' && unlinkat(fd, e->d_name, 0) != 0 && errno != ENOENT)
			err = -errno;
	closedir(d);
	fd = open(cfg->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		unlinkat(fd, BENCH_DIR, AT_REMOVEDIR);
		close(fd);
	}
	return err;
}
