/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of loop.h: the thread's life and its windows. What others ask of it is in
 * loop_orders.c. */
#include "tuner/loop_internal.h"

#include "common/clock.h"
#include "common/thread.h"
#include "tuner/model_file.h"
#include "tuner/policy_xgboost.h"
#include "tuner/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SAVE_EVERY 600 /* windows */

static struct model_file_kind model_kind(const struct tuner_loop *l)
{
	return (struct model_file_kind){ XGBOOST_COLUMNS, l->config.conditions };
}

static void load_model(struct tuner_loop *l)
{
	const char *why = "";
	char text[160];
	void *bytes;
	size_t len;
	int err;

	if (l->config.dirfd < 0 || !l->config.tuner.policy->load)
		return;
	err = model_file_load(l->config.dirfd, model_kind(l), &bytes, &len, &why);
	if (!err) {
		err = tuner_model_load(l->tuner, bytes, len);
		why = "XGBoost does not take it";
		free(bytes);
	}
	if (!err)
		return;
	if (err == -ENOENT)
		snprintf(text, sizeof(text),
			 "tuner: no model yet; it begins with the static settings");
	else
		snprintf(text, sizeof(text),
			 "tuner: the volume's %s is not used: %s; it begins with the "
			 "static settings",
			 MODEL_FILE_NAME, why);
	l->config.host->report(l->config.ctx, text);
}

static void save_model(struct tuner_loop *l)
{
	void *bytes;
	size_t len;
	int err;

	if (l->config.dirfd < 0)
		return;
	err = tuner_model_save(l->tuner, &bytes, &len);
	if (err == -ENOTSUP || err == -EAGAIN)
		return; /* none to keep, or nothing learnt yet */
	if (!err) {
		err = model_file_save(l->config.dirfd, model_kind(l), bytes, len);
		free(bytes);
	}
	if (err) {
		char text[160];

		snprintf(text, sizeof(text), "tuner: cannot save the model: %s", strerror(-err));
		l->config.host->report(l->config.ctx, text);
	}
}

/* Begins again with the model alone, which the trace's head then holds. */
static int begin_again(struct tuner_loop *l, const void *model, size_t len)
{
	struct tuner *fresh = NULL;
	int err = tuner_create(&l->config.tuner, &fresh);

	if (!err && model)
		err = tuner_model_load(fresh, model, len);
	if (err) {
		tuner_destroy(fresh);
		return err;
	}
	tuner_destroy(l->tuner);
	l->tuner = fresh;
	l->said_failure = false;
	return 0;
}

static int begin_trace(struct tuner_loop *l, FILE *out)
{
	void *bytes = NULL;
	size_t len = 0;
	int err = tuner_model_save(l->tuner, &bytes, &len);

	if (err == -ENOTSUP || err == -EAGAIN)
		err = 0;
	if (!err)
		err = begin_again(l, bytes, len);
	if (!err)
		err = tuner_trace_begin(out, &l->config.tuner, bytes, len);
	free(bytes);
	return err;
}

/* Takes over a trace that was asked for, or ends the present one. */
static void switch_trace(struct tuner_loop *l, FILE *next)
{
	if (l->trace && fclose(l->trace) && !l->trace_failed)
		l->config.host->report(l->config.ctx,
				       "tuner: the end of the trace could not be written");
	l->trace = next;
	l->trace_failed = false;
	if (next && begin_trace(l, next)) {
		l->config.host->report(l->config.ctx, "tuner: the trace cannot be begun");
		fclose(next);
		l->trace = NULL;
	}
	pthread_mutex_lock(&l->lock);
	l->recording = l->trace != NULL;
	pthread_mutex_unlock(&l->lock);
}

static void take_orders(struct tuner_loop *l, struct tuner_window *w, bool *ret_set,
			struct tuner_settings *ret_settings)
{
	FILE *next = NULL;
	bool new_trace;

	pthread_mutex_lock(&l->lock);
	if (l->frozen)
		w->flags |= TUNER_WINDOW_FROZEN;
	*ret_set = l->is_set;
	*ret_settings = l->set;
	new_trace = l->new_trace;
	if (new_trace) {
		next = l->next_trace;
		l->next_trace = NULL;
		l->new_trace = false;
	}
	pthread_mutex_unlock(&l->lock);
	if (new_trace)
		switch_trace(l, next);
}

static void apply(struct tuner_loop *l, struct tuner_settings wanted)
{
	struct tuner_settings s = l->config.host->apply(l->config.ctx, wanted);

	atomic_store_explicit(&l->in_force, tuner_settings_pack(s), memory_order_relaxed);
}

static void window(struct tuner_loop *l)
{
	struct tuner_window w = { .index = l->index++, .in_force = tuner_loop_settings(l) };
	struct tuner_settings next, set;
	struct tuner_decision d;
	bool is_set;

	l->before = l->now;
	memset(&l->now, 0, sizeof(l->now));
	l->config.host->snapshot(l->config.ctx, &l->now);
	l->config.host->limits(l->config.ctx, &w.bounds, &w.flags);
	tuner_bounds_sane(&w.bounds);
	take_orders(l, &w, &is_set, &set);
	tuner_features_compute(&l->before, &l->now, &w.features);
	next = tuner_step(l->tuner, &w, &d);
	if (is_set)
		next = tuner_settings_clamp(set, &w.bounds);
	if (l->trace && tuner_trace_add(l->trace, &w, &d)) {
		l->config.host->report(l->config.ctx,
				       "tuner: cannot write the trace; it ends here");
		l->trace_failed = true;
		switch_trace(l, NULL);
	}
	pthread_mutex_lock(&l->lock);
	d.after = next; /* behind the trace, which is compared with the tuner's own */
	decision_log_add(&l->log, &d);
	l->windows = l->index;
	l->failure = tuner_failure(l->tuner);
	pthread_mutex_unlock(&l->lock);
	apply(l, next);
	if (l->config.host->decided)
		l->config.host->decided(l->config.ctx, &d);
	if (tuner_failure(l->tuner) && !l->said_failure) {
		l->said_failure = true;
		l->config.host->report(l->config.ctx,
				       "tuner: XGBoost keeps failing; static settings from now on");
	}
	if (l->index % SAVE_EVERY == 0)
		save_model(l);
}

static bool wait_for_window(struct tuner_loop *l, uint64_t deadline_ns)
{
	bool stop;

	pthread_mutex_lock(&l->lock);
	while (!l->stop && thread_cond_wait_until(&l->wake, &l->lock, deadline_ns) != -ETIMEDOUT)
		;
	stop = l->stop;
	pthread_mutex_unlock(&l->lock);
	return !stop;
}

static void say_started(struct tuner_loop *l, int err)
{
	pthread_mutex_lock(&l->lock);
	l->started = true;
	l->start_err = err;
	pthread_cond_broadcast(&l->wake);
	pthread_mutex_unlock(&l->lock);
}

static void *run(void *arg)
{
	struct tuner_loop *l = arg;
	struct tuner_settings first = l->config.tuner.shipped;
	struct tuner_bounds bounds;
	uint64_t deadline_ns = clock_mono_ns();
	uint32_t flags;
	int err = tuner_create(&l->config.tuner, &l->tuner);

	if (!err) {
		load_model(l);
		l->config.host->limits(l->config.ctx, &bounds, &flags);
		tuner_bounds_sane(&bounds);
		apply(l, tuner_settings_clamp(first, &bounds));
		l->config.host->snapshot(l->config.ctx, &l->now);
	}
	say_started(l, err);
	if (err)
		return NULL;
	while (wait_for_window(l, deadline_ns += l->config.window_ns)) {
		uint64_t now = clock_mono_ns();

		if (now > deadline_ns + l->config.window_ns)
			deadline_ns = now; /* held up: no short windows to make up for it */
		window(l);
	}
	save_model(l);
	switch_trace(l, NULL);
	tuner_destroy(l->tuner);
	return NULL;
}

static void destroy(struct tuner_loop *l)
{
	if (l->next_trace)
		fclose(l->next_trace);
	pthread_cond_destroy(&l->wake);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

int tuner_loop_start(const struct tuner_loop_config *config, struct tuner_loop **ret_loop)
{
	struct tuner_loop *l = calloc(1, sizeof(*l));
	int err;

	if (!l) {
		if (config->trace)
			fclose(config->trace);
		return -ENOMEM;
	}
	l->config = *config;
	l->next_trace = config->trace;
	l->new_trace = config->trace != NULL;
	pthread_mutex_init(&l->lock, NULL);
	err = thread_cond_init(&l->wake);
	if (!err)
		err = thread_start(&l->thread, "kv-tuner", run, l);
	if (err) {
		destroy(l);
		return err;
	}
	pthread_mutex_lock(&l->lock);
	while (!l->started)
		pthread_cond_wait(&l->wake, &l->lock);
	err = l->start_err;
	pthread_mutex_unlock(&l->lock);
	if (err) {
		pthread_join(l->thread, NULL);
		destroy(l);
		return err;
	}
	*ret_loop = l;
	return 0;
}

void tuner_loop_stop(struct tuner_loop *loop)
{
	if (!loop)
		return;
	pthread_mutex_lock(&loop->lock);
	loop->stop = true;
	pthread_cond_broadcast(&loop->wake);
	pthread_mutex_unlock(&loop->lock);
	pthread_join(loop->thread, NULL);
	destroy(loop);
}
