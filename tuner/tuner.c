/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state machine around trials: which load this is, whether anything may move, what a window
 * that isn't as expected means. See tuner.h and, for the modes, tuner_internal.h. One thread.
 */
#include "tuner/reward.h"
#include "tuner/tuner_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NOISE_FIRST 0.05
#define NOISE_LEAST 0.005
#define ODD_LEAST 0.15
#define NEAR 2.2            /* a shift smaller than this is a drift */
#define UNSTABLE_SPAN 0xFFF /* the last 12 windows */
#define UNSTABLE_SHIFTS 5
#define UNSTABLE_WINDOWS 8
#define BUDGET_REFILL 0.15  /* and a window earns */

static const char *const action_names[TUNER_ACTIONS] = {
	"stay", "try", "wait", "keep", "rollback", "recall", "fall-back", "audit", "grow", "freeze",
};

const char *tuner_action_name(enum tuner_action a)
{
	return action_names[a];
}

void tuner_config_init(struct tuner_config *ret_config)
{
	*ret_config = (struct tuner_config){
		.policy = &tuner_policy_static, .seed = 1, .shipped = tuner_settings_shipped,
		.min_ops_per_s = 100, .forecast = true,
	};
}

int tuner_create(const struct tuner_config *config, struct tuner **ret_tuner)
{
	struct tuner *t = calloc(1, sizeof(*t));
	int err;

	if (!t)
		return -ENOMEM;
	t->config = *config;
	t->noise = NOISE_FIRST;
	t->budget = TUNER_BUDGET_MOST;
	err = forecast_create(config->seed, &t->forecast);
	if (!err)
		err = config->policy->create(config->seed, &t->policy);
	if (err) {
		forecast_destroy(t->forecast);
		free(t);
		return err;
	}
	*ret_tuner = t;
	return 0;
}

void tuner_destroy(struct tuner *t)
{
	if (!t)
		return;
	t->config.policy->destroy(t->policy);
	forecast_destroy(t->forecast);
	free(t);
}

double tuner_odd_limit(const struct tuner *t)
{
	return fmax(4 * t->noise, ODD_LEAST);
}

void tuner_move(struct tuner *t, struct tuner_decision *d, struct tuner_settings s,
		enum tuner_mode mode, enum tuner_action action, const char *why)
{
	t->mode = mode;
	d->after = s;
	d->action = action;
	d->why = why;
}

static void hold(struct tuner *t, struct tuner_decision *d, enum tuner_action action,
		 const char *why)
{
	tuner_move(t, d, t->ctx ? t->ctx->best : t->config.shipped, MODE_HOLD, action, why);
}

/* A load that is near a known one, but not quite what it was when its rewards were measured: its
 * best may be far below the static settings here, and they are looked at in the next window. */
static void recall(struct tuner *t, const struct tuner_window *w, const struct context_key *key)
{
	struct tuner_settings shipped = tuner_settings_clamp(t->config.shipped, &w->bounds);
	struct key_mean now = { *key, 1 };

	if (!context_moved(&t->ctx->base, &now, &t->key_noise))
		return;
	memset(&t->ctx->reward, 0, sizeof(t->ctx->reward));
	t->ctx->base = now;
	if (!tuner_settings_equal(t->ctx->best, shipped))
		t->ctx->audit_at = TUNER_AUDIT_NOW;
}

static void shift(struct tuner *t, const struct tuner_window *w, const struct context_key *key,
		  struct tuner_decision *d)
{
	struct context *old = t->ctx, *ctx = contexts_find(&t->contexts, key);
	struct tuner_settings shipped = tuner_settings_clamp(t->config.shipped, &w->bounds);
	bool drift = old && old->reward.n >= 2 && context_distance(&old->key, key) < NEAR;

	t->shifts |= 1;
	t->odd = t->doubts = 0;
	t->calm = 1;
	t->config.policy->shifted(t->policy);
	if (__builtin_popcountll(t->shifts & UNSTABLE_SPAN) >= UNSTABLE_SHIFTS)
		t->unstable_until = w->index + UNSTABLE_WINDOWS;
	if (!ctx) {
		ctx = contexts_new(&t->contexts, key, w->index, old);
		ctx->best = drift ? old->best : t->config.shipped;
		ctx->audit_at = w->index + TUNER_AUDIT_EVERY;
		/* What it inherits may be far below the static settings here. */
		if (drift && !tuner_settings_equal(ctx->best, shipped))
			ctx->audit_at = TUNER_AUDIT_NOW;
		t->budget = TUNER_BUDGET_MOST;
		t->ctx = ctx;
		if (drift)
			hold(t, d, TUNER_STAY, "the load drifted");
		else
			hold(t, d, TUNER_FALL_BACK, "a new load");
		return;
	}
	t->ctx = ctx;
	recall(t, w, key);
	hold(t, d, TUNER_RECALL, "a known load");
}

static void observe_hold(struct tuner *t, const struct tuner_window *w,
			 const struct context_key *key, struct tuner_decision *d)
{
	struct context *ctx = t->ctx;
	struct tuner_settings shipped = tuner_settings_clamp(t->config.shipped, &w->bounds);
	bool at_shipped = tuner_settings_equal(ctx->best, shipped);
	double off = d->reward - ctx->reward.value;
	struct key_mean now = { *key, 1 };

	if (context_moved(&ctx->base, &now, &t->key_noise)) {
		bool far = context_distance(&ctx->base.mean, key) >= 1;

		memset(&ctx->reward, 0, sizeof(ctx->reward));
		ctx->base = now;
		/* What was better than the static settings may no longer be; and whether it is
		 * another load is seen best under them. */
		if (far && !at_shipped)
			ctx->audit_at = TUNER_AUDIT_NOW;
		else if (ctx->audit_at > w->index + TUNER_AUDIT_SOON)
			ctx->audit_at = w->index + TUNER_AUDIT_SOON;
	}
	key_mean_add(&ctx->base, key, TUNER_BASE_KEYS);
	if (ctx->reward.n > 0 && fabs(off) > tuner_odd_limit(t)) {
		if (off < 0 && !at_shipped) {
			t->doubted = d->reward;
			tuner_move(t, d, shipped, MODE_DOUBT, TUNER_FALL_BACK,
				   "much worse than expected");
			return;
		}
		if (++t->odd < 2) {
			hold(t, d, TUNER_STAY, "an odd window");
			return;
		}
		/* Twice: that is how it is now. Whether what was learnt still holds, a look at the
		 * static settings tells. */
		memset(&ctx->reward, 0, sizeof(ctx->reward));
		memset(&ctx->shipped, 0, sizeof(ctx->shipped));
		context_unban_all(ctx);
		t->budget = TUNER_BUDGET_MOST;
		if (!at_shipped)
			ctx->audit_at = TUNER_AUDIT_NOW;
	}
	t->odd = 0;
	tuner_doubt_calm(t);
	mean_add(&ctx->reward, d->reward, TUNER_REWARD_MOST);
	if (at_shipped)
		mean_add(&ctx->shipped, d->reward, TUNER_REWARD_MOST);
	tuner_trial_next(t, w, d);
}

/* A burst is forecast, and the load it will be is known to want more lanes or memory: have them
 * ready. */
static bool grow(struct tuner *t, const struct tuner_window *w, struct context_key key,
		 struct tuner_decision *d)
{
	float ahead = d->features.v[TUNER_F_FORECAST];
	struct context *next;
	struct tuner_settings s = t->ctx->best;

	if (!t->config.forecast || t->mode != MODE_HOLD || w->index < t->grow_after ||
	    !(ahead > 1.5f))
		return false;
	key.v[CONTEXT_IN_FLIGHT] = log2f((float)t->load * ahead) / CONTEXT_IN_FLIGHT_UNIT;
	next = contexts_find(&t->contexts, &key);
	if (!next || next == t->ctx)
		return false;
	for (int k = 0; k < TUNER_KNOBS; k++)
		if ((k == TUNER_KNOB_LANES || k == TUNER_KNOB_RESERVE) &&
		    next->best.level[k] > s.level[k])
			s.level[k] = next->best.level[k];
	if (tuner_settings_equal(s, t->ctx->best))
		return false;
	t->grow_after = w->index + 10;
	tuner_move(t, d, s, MODE_GROWN, TUNER_GROW, "a burst is forecast");
	return true;
}

/* What was asked for is not what was in force: a lane didn't open, memory wasn't there. */
static void refused(struct tuner *t, const struct tuner_window *w, struct tuner_decision *d)
{
	context_ban(t->ctx, t->wanted, w->index);
	if (t->mode == MODE_TRIAL)
		context_ban(t->ctx, t->to, w->index);
	if (t->mode == MODE_HOLD) {
		t->ctx->best = w->in_force;
		memset(&t->ctx->reward, 0, sizeof(t->ctx->reward));
	}
	hold(t, d, TUNER_ROLLBACK, "the transport could not do it");
}

static void observe(struct tuner *t, const struct tuner_window *w, const struct context_key *key,
		    struct tuner_decision *d)
{
	d->expected = t->ctx->reward.n > 0 ? t->ctx->reward.value : NAN;
	d->regret = tuner_regret(t, w, d->reward);
	if (!t->asked && !tuner_settings_equal(w->in_force, t->ctx->best)) {
		hold(t, d, TUNER_RECALL, "back to the best known after a freeze");
		return;
	}
	if (t->asked && !tuner_settings_equal(w->in_force, t->wanted)) {
		refused(t, w, d);
		return;
	}
	switch (t->mode) {
	case MODE_TRIAL:
	case MODE_AUDIT:
		tuner_trial_observe(t, w, key, d);
		break;
	case MODE_DOUBT:
		tuner_doubt_settle(t, w, d);
		break;
	case MODE_GROWN:
		hold(t, d, TUNER_RECALL, "the burst did not come");
		break;
	case MODE_HOLD:
		observe_hold(t, w, key, d);
		if (d->action == TUNER_STAY)
			grow(t, w, *key, d);
		break;
	}
}

static void measure_noise(struct tuner *t, const struct tuner_window *w, double reward)
{
	if (t->last_known && isfinite(reward) &&
	    tuner_settings_equal(w->in_force, t->last_in_force)) {
		double step = fmin(fabs(reward - t->last_reward), 0.2) / 1.128;

		t->noise = fmax(NOISE_LEAST, t->noise + (step - t->noise) * 0.05);
	}
	t->last_known = isfinite(reward);
	t->last_reward = reward;
	t->last_in_force = w->in_force;
}

static const char *frozen(const struct tuner *t, const struct tuner_window *w, double reward)
{
	if (w->flags & TUNER_WINDOW_FROZEN)
		return "frozen by hand";
	if (w->flags & TUNER_WINDOW_RESYNC)
		return "a mirror is resyncing";
	if (w->flags & TUNER_WINDOW_FAILOVER)
		return "mirrors came or went, or none is there";
	if (!isfinite(reward) || w->features.v[TUNER_F_OPS_PER_S] < t->config.min_ops_per_s)
		return "too little load to judge by";
	return NULL;
}

static void decide(struct tuner *t, const struct tuner_window *w, struct tuner_decision *d)
{
	const char *why = frozen(t, w, d->reward);
	struct context_key key;

	context_key_of(&w->features, w->in_force, &key);
	if (!t->config.policy->adapts || t->failure) {
		tuner_move(t, d, t->config.shipped, MODE_HOLD, TUNER_STAY,
			   t->failure ? t->failure : "static settings");
	} else if (w->flags & TUNER_WINDOW_FROZEN) {
		t->last_known = false;
		tuner_move(t, d, w->in_force, MODE_HOLD, TUNER_FREEZE, why);
	} else if (why) {
		t->last_known = false;
		hold(t, d, TUNER_FREEZE, why);
		if (!w->flags && t->ctx)
			grow(t, w, key, d);
	} else if (!t->ctx || context_distance(&t->ctx->key, &key) >= 1) {
		t->last_known = t->key_noise.known = false;
		shift(t, w, &key, d);
	} else {
		key_noise_add(&t->key_noise, &key);
		measure_noise(t, w, d->reward);
		observe(t, w, &key, d);
	}
	if (t->ctx) {
		struct tuner_settings shipped = tuner_settings_clamp(t->config.shipped, &w->bounds);

		t->ctx->seen = w->index;
		if (!why)
			context_look(t->ctx, &w->features,
				     tuner_settings_equal(w->in_force, shipped));
	}
	if (t->config.policy->adapts && w->index < t->unstable_until &&
	    !(w->flags & TUNER_WINDOW_FROZEN))
		tuner_move(t, d, t->config.shipped, MODE_HOLD, TUNER_FREEZE,
			   "the load changes too often");
}

/* Records under way. Idle, and whatever is between that and a client at work, is 1: a quiet time is
 * part of the series, and a burst out of it can be told by it. */
static double forecast_load(const struct tuner_features *f)
{
	double load = f->v[TUNER_F_IN_FLIGHT];

	if (load < 1 || (isnan(load) && f->v[TUNER_F_OPS_PER_S] == 0))
		return 1;
	return load;
}

struct tuner_settings tuner_step(struct tuner *t, const struct tuner_window *w,
				 struct tuner_decision *ret_decision)
{
	struct tuner_decision *d = ret_decision;
	struct tuner_window sane = *w;

	tuner_bounds_sane(&sane.bounds);
	w = &sane;
	memset(d, 0, sizeof(*d));
	d->window = w->index;
	d->before = w->in_force;
	t->load = forecast_load(&w->features);
	sane.features.v[TUNER_F_FORECAST] = (float)forecast_step(t->forecast, t->load);
	d->features = w->features;
	d->reward = tuner_reward(&w->features, w->in_force);
	d->expected = d->gain = NAN;
	t->shifts <<= 1;
	t->budget = fmin(TUNER_BUDGET_MOST, t->budget + BUDGET_REFILL);
	decide(t, w, d);
	if (!t->failure && t->config.policy->failed &&
	    t->config.policy->failed(t->policy, &t->failure)) {
		t->ctx = NULL;
		tuner_move(t, d, t->config.shipped, MODE_HOLD, TUNER_FALL_BACK, t->failure);
	}
	d->after = tuner_settings_clamp(d->after, &w->bounds);
	if (t->ctx)
		t->ctx->best = tuner_settings_clamp(t->ctx->best, &w->bounds);
	t->wanted = d->after;
	t->asked = d->action != TUNER_FREEZE; /* an operator may have set something else */
	return d->after;
}

int tuner_model_save(struct tuner *t, void **ret_bytes, size_t *ret_len)
{
	if (!t->config.policy->save)
		return -ENOTSUP;
	return t->config.policy->save(t->policy, ret_bytes, ret_len);
}

int tuner_model_load(struct tuner *t, const void *bytes, size_t len)
{
	if (!t->config.policy->load)
		return -ENOTSUP;
	return t->config.policy->load(t->policy, bytes, len);
}

const char *tuner_failure(const struct tuner *t)
{
	return t->failure;
}
