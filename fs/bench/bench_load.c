/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients of kvfs bench that go through a directory. Keys are files kvfs-bench/kNNNNNNNNN; a put is
 * open(O_WRONLY|O_CREAT|O_TRUNC), write, close; a get is open, read, close; as shell tools do it.
 */
#include "fs/bench/bench_keys.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/thread.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BENCH_DIR "kvfs-bench"
#define BENCH_IO_BYTES (1U << 20)

struct bench_shared {
	const struct bench_config *cfg;
	struct bench_keys keys;
	int dirfd;
	_Atomic bool stop;
};

struct bench_worker {
	struct bench_shared *shared;
	pthread_t thread;
	unsigned index;
	uint64_t random;
	char *buf;
	uint64_t ops, errors, bytes;
	int first_errno;
	struct histogram latency;
};

static int bench_write_key(struct bench_worker *w, uint64_t key, int flags)
{
	char name[BENCH_NAME_BYTES];
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
	char name[BENCH_NAME_BYTES];
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
	struct bench_keys *keys = &w->shared->keys;
	int err = bench_write_key(w, bench_create_begin(keys, w->index), O_EXCL);

	bench_create_end(keys, w->index);
	return err;
}

static int bench_do(struct bench_worker *w, enum bench_op op)
{
	uint64_t key = bench_choose_key(&w->shared->keys, &w->random);
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

static void bench_count(struct bench_worker *w, int err, uint64_t began_ns)
{
	if (!err) {
		histogram_add(&w->latency, clock_mono_ns() - began_ns);
		w->ops++;
		return;
	}
	w->errors++;
	if (!w->first_errno)
		w->first_errno = -err;
}

/* At least one operation, however short the run and busy the machine. */
static void *bench_worker_keys(void *arg)
{
	struct bench_worker *w = arg;

	do {
		enum bench_op op = bench_choose_op(&w->shared->keys, &w->random);
		uint64_t began = clock_mono_ns();

		bench_count(w, bench_do(w, op), began);
	} while (!atomic_load_explicit(&w->shared->stop, memory_order_relaxed));
	return NULL;
}

/* Of a sequential load's file: the first threads take what does not divide. */
static uint64_t bench_share_bytes(const struct bench_worker *w)
{
	const struct bench_config *cfg = w->shared->cfg;

	return cfg->file_bytes / cfg->threads + (w->index < cfg->file_bytes % cfg->threads);
}

static void *bench_worker_sequential(void *arg)
{
	struct bench_worker *w = arg;
	uint64_t left = bench_share_bytes(w);
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
	w->random = bench_random_seed(s->cfg->seed, index);
	w->buf = malloc(bytes);
	if (!w->buf)
		return -ENOMEM;
	bench_random_fill(&w->random, w->buf, bytes);
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
	bench_keys_init(&shared.keys, cfg->load, cfg->keys, cfg->threads);
	workers = calloc(cfg->threads, sizeof(*workers));
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
