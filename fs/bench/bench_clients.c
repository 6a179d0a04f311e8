/* SPDX-License-Identifier: Apache-2.0 */
/* Clients of the engine: threads that run a load on it and count. See bench_engine.h. */
#include "fs/bench/bench_engine.h"

#include "common/clock.h"
#include "common/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS_PREPARE_STEP 64 /* keys between two looks whether all is to end */
/* Once round the mirrors' ring of 64 MiB and more: the first touch of a page takes microseconds. */
#define CLIENTS_TOUCH_RECORDS 80
#define CLIENTS_TOUCH_KEY 999999999ULL /* none of a load's */

struct clients {
	struct bench_engine *engine;
	const struct bench_config *cfg;
	struct bench_keys *keys;
	_Atomic bool stop;
};

struct client {
	struct clients *all;
	pthread_t thread;
	unsigned index;
	uint64_t random;
	struct bench_caller caller;
	bool has_caller;
	char *buf;
	struct bench_result result;
};

static int client_init(struct client *c, struct clients *all, unsigned index)
{
	size_t bytes = all->cfg->value_bytes + 1;
	int err = bench_caller_init(&c->caller, all->engine);

	if (err)
		return err;
	c->has_caller = true;
	c->all = all;
	c->index = index;
	c->random = bench_random_seed(all->cfg->seed, index);
	c->buf = malloc(bytes);
	if (!c->buf)
		return -ENOMEM;
	bench_random_fill(&c->random, c->buf, bytes);
	return 0;
}

static void client_destroy(struct client *c)
{
	if (c->has_caller)
		bench_caller_destroy(&c->caller);
	free(c->buf);
}

static int client_get(struct client *c, uint64_t key)
{
	uint64_t got = 0;
	int err = bench_engine_get(c->all->engine, &c->caller, key, c->buf,
				   c->all->cfg->value_bytes, &got);

	c->result.bytes += got;
	return err;
}

static int client_put(struct client *c, uint64_t key)
{
	size_t bytes = c->all->cfg->value_bytes;
	int err = bench_engine_put(c->all->engine, &c->caller, key, c->buf, bytes);

	if (!err)
		c->result.bytes += bytes;
	return err;
}

static int client_create(struct client *c)
{
	struct clients *all = c->all;
	uint64_t key = bench_create_begin(all->keys, c->index), oldest;
	size_t bytes = all->cfg->value_bytes;
	int err;

	if (bench_key_replaces(all->keys, key, &oldest)) {
		err = bench_engine_rename(all->engine, &c->caller, oldest, key);
		if (!err)
			err = bench_engine_put(all->engine, &c->caller, key, c->buf, bytes);
	} else {
		err = bench_engine_create(all->engine, &c->caller, key, c->buf, bytes);
	}
	bench_create_end(all->keys, c->index);
	if (!err)
		c->result.bytes += bytes;
	return err;
}

static int client_scan(struct client *c, uint64_t key)
{
	int err = 0;

	for (unsigned i = 0; !err && i < BENCH_SCAN_KEYS; i++)
		err = client_get(c, (key + i) % c->all->cfg->keys);
	return err;
}

static int client_do(struct client *c, enum bench_op op)
{
	uint64_t key = bench_choose_key(c->all->keys, &c->random);
	int err;

	switch (op) {
	case BENCH_GET:
		err = client_get(c, key);
		/* replaced since it was chosen: it is one of the latest no more */
		return err == -ENOENT && c->all->keys->load->keys == BENCH_LATEST ?
			       client_get(c, bench_choose_key(c->all->keys, &c->random)) : err;
	case BENCH_PUT:
		return client_put(c, key);
	case BENCH_CREATE:
		return client_create(c);
	case BENCH_SCAN:
		return client_scan(c, key);
	default: /* read-modify-write; loads that append are not for the engine */
		err = client_get(c, key);
		c->buf[0]++;
		return err ? err : client_put(c, key);
	}
}

/* The load's own quiet time between bursts. */
static void client_pause(struct client *c, unsigned done)
{
	unsigned us = c->all->keys->load->pause_us;
	struct timespec pause = { .tv_nsec = (long)us * 1000 };

	if (us && done % BENCH_BURST_OPS == 0)
		nanosleep(&pause, NULL);
}

/* At least one operation, however short the run and busy the machine. */
static void *client_main(void *arg)
{
	struct client *c = arg;
	struct bench_result *r = &c->result;
	unsigned done = 0;

	do {
		enum bench_op op = bench_choose_op(c->all->keys, &c->random);
		uint64_t began = clock_mono_ns();
		int err = client_do(c, op);

		if (!err) {
			histogram_add(&r->latency, clock_mono_ns() - began);
			r->ops++;
			client_pause(c, ++done);
			continue;
		}
		r->errors++;
		if (!r->first_errno)
			r->first_errno = -err;
	} while (!atomic_load_explicit(&c->all->stop, memory_order_relaxed));
	bench_caller_leave(&c->caller);
	return NULL;
}

static void client_collect(const struct client *c, struct bench_result *r)
{
	r->ops += c->result.ops;
	r->errors += c->result.errors;
	r->bytes += c->result.bytes;
	if (!r->first_errno)
		r->first_errno = c->result.first_errno;
	histogram_merge(&r->latency, &c->result.latency);
}

/* Large records, so that the memory between the nodes has been touched before the runs. */
static int clients_touch(struct bench_engine *e, struct bench_caller *caller)
{
	void *buf = calloc(1, RECORD_DATA_MAX);
	int err = buf ? bench_engine_create(e, caller, CLIENTS_TOUCH_KEY, buf, RECORD_DATA_MAX)
		      : -ENOMEM;

	for (unsigned i = 1; !err && i < CLIENTS_TOUCH_RECORDS; i++)
		err = bench_engine_put(e, caller, CLIENTS_TOUCH_KEY, buf, RECORD_DATA_MAX);
	free(buf);
	return err;
}

int bench_clients_prepare(struct bench_engine *e, const struct bench_config *cfg,
			  int (*sleep)(void *ctx, double seconds), void *ctx)
{
	struct clients all = { .engine = e, .cfg = cfg };
	struct client *c = calloc(1, sizeof(*c));
	int err = c ? client_init(c, &all, 0) : -ENOMEM;

	if (!err)
		err = clients_touch(e, &c->caller);
	for (uint64_t key = 0; !err && key < cfg->keys; key++) {
		err = bench_engine_create(e, &c->caller, key, c->buf, cfg->value_bytes);
		if (!err && key % CLIENTS_PREPARE_STEP == 0)
			err = sleep(ctx, 0);
	}
	if (c) {
		bench_caller_leave(&c->caller);
		client_destroy(c);
	}
	free(c);
	return err;
}

static int clients_start(struct clients *all, struct client *list, unsigned *ret_started)
{
	int err = 0;

	for (unsigned i = 0; !err && i < all->cfg->threads; i++) {
		err = thread_start(&list[i].thread, "kv-bench", client_main, &list[i]);
		*ret_started += !err;
	}
	return err;
}

int bench_clients_run(struct bench_engine *e, const struct bench_config *cfg,
		      struct bench_keys *keys, int (*sleep)(void *ctx, double seconds), void *ctx,
		      struct bench_result *ret_result)
{
	struct clients all = { .engine = e, .cfg = cfg, .keys = keys };
	struct client *list = calloc(cfg->threads, sizeof(*list));
	unsigned started = 0;
	uint64_t began;
	int err = list ? 0 : -ENOMEM;

	for (unsigned i = 0; !err && i < cfg->threads; i++)
		err = client_init(&list[i], &all, i);
	began = clock_mono_ns();
	if (!err)
		err = clients_start(&all, list, &started);
	if (!err)
		err = sleep(ctx, cfg->seconds);
	atomic_store(&all.stop, true);
	for (unsigned i = 0; i < started; i++)
		pthread_join(list[i].thread, NULL);
	ret_result->seconds = (double)(clock_mono_ns() - began) / 1e9;
	for (unsigned i = 0; list && i < cfg->threads; i++) {
		client_collect(&list[i], ret_result);
		client_destroy(&list[i]);
	}
	free(list);
	return err;
}
