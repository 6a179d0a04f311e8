/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trials: which step is due, what its windows say, whether it is kept. A trial is a small
 * sequential test: it ends as soon as gain or loss is clear of the noise, and costs one window when
 * the step was a bad one.
 */
#include "tuner/tuner_internal.h"

#include <math.h>
#include <string.h>

#define BASE_WINDOWS 2      /* before a trial */
#define BASE_MOST 24        /* older ones fade from the mean */
#define TRIAL_WINDOWS 6     /* at most */
#define MARGIN 0.005        /* hysteresis: a gain of less isn't worth a change */
#define SURE 1.3            /* standard errors a gain must be clear of */
#define HOPELESS 0.7        /* standard errors that leave no hope of one */
#define DROP_LEAST 0.1      /* one window this much worse ends a trial */
#define LOSS_LEAST 0.05     /* the mean of two or more windows that does, whatever was expected */
#define SLOW 0.1            /* of the noise's variance is in all windows of a trial alike */
#define BUDGET_LOSS 20.0    /* windows of the budget that a loss of 100 % costs besides */

static double standard_error(const struct tuner *t)
{
	unsigned base = t->ctx->reward.n < 8 ? t->ctx->reward.n : 8;

	return t->noise * sqrt(1.0 / t->trial.n + 1.0 / (base ? base : 1));
}

/* The trial ends at settings `at`, which may be on the way to those that were tried. */
static void teach(struct tuner *t, struct tuner_settings at, double gain)
{
	unsigned base = t->ctx->reward.n < 8 ? t->ctx->reward.n : 8;
	double error = t->noise * sqrt(1.0 / t->trial.n + 1.0 / (base ? base : 1) + SLOW);
	struct tuner_sample s = { t->ctx->look, t->ctx->best, at, (float)gain, (float)error };

	t->config.policy->learn(t->policy, &s);
}

static void keep(struct tuner *t, const struct tuner_window *w, struct tuner_decision *d)
{
	teach(t, t->to, d->gain);
	t->ctx->best = t->to;
	t->ctx->reward = t->trial;
	t->ctx->base = t->trial_key;
	tuner_move(t, d, t->to, MODE_HOLD, TUNER_KEEP, "the step gained");
}

static void roll_back(struct tuner *t, const struct tuner_window *w, struct tuner_decision *d,
		      const char *why)
{
	teach(t, w->in_force, d->gain);
	if (t->mode == MODE_TRIAL)
		context_ban(t->ctx, t->to, w->index);
	if (t->mode == MODE_TRIAL && !tuner_settings_equal(w->in_force, t->to))
		context_ban(t->ctx, w->in_force, w->index); /* bad on the way: as a goal as well */
	tuner_move(t, d, t->ctx->best, MODE_HOLD, TUNER_ROLLBACK, why);
}

/* The gain to believe in, from what was measured and what the policy expected, weighed by their
 * errors. */
static double believe(const struct tuner *t, double gain, double *ret_error)
{
	double error = standard_error(t), wm = 1 / (error * error);
	double wp = 1 / (t->prior_error * t->prior_error);

	*ret_error = sqrt(1 / (wm + wp));
	return (gain * wm + t->prior * wp) / (wm + wp);
}

void tuner_trial_observe(struct tuner *t, const struct tuner_window *w,
			 const struct context_key *key, struct tuner_decision *d)
{
	double drop = fmax(3 * t->noise, DROP_LEAST), loss = fmax(1.5 * t->noise, LOSS_LEAST);
	double gain, error;
	bool last;

	mean_add(&t->trial, d->reward, BASE_MOST);
	d->gain = t->trial.value - t->ctx->reward.value;
	t->budget -= 1 + BUDGET_LOSS * fmax(0, t->ctx->reward.value - d->reward);
	key_mean_add(&t->trial_key, key, TRIAL_WINDOWS);
	if (context_moved(&t->ctx->base, &t->trial_key, &t->key_noise)) {
		memset(&t->ctx->reward, 0, sizeof(t->ctx->reward));
		t->ctx->base = (struct key_mean){ *key, 1 };
		tuner_move(t, d, t->ctx->best, MODE_HOLD, TUNER_ROLLBACK,
			   "the load moved meanwhile");
		return;
	}
	if (!tuner_settings_equal(w->in_force, t->to)) {
		if (d->gain < -drop) {
			roll_back(t, w, d, "much worse on the way");
			return;
		}
		memset(&t->trial, 0, sizeof(t->trial));
		t->trial_key.n = 0;
		tuner_move(t, d, tuner_settings_toward(w->in_force, t->to), t->mode, TUNER_WAIT,
			   "on the way");
		return;
	}
	if (t->mode == MODE_AUDIT)
		mean_add(&t->ctx->shipped, d->reward, BASE_MOST);
	gain = believe(t, d->gain, &error);
	last = t->trial.n >= TRIAL_WINDOWS;
	/* What was measured comes first: a prior, however sure, keeps no step that lost, and draws
	 * out no trial that loses. */
	if (t->trial.n == 1 && d->gain < -drop)
		roll_back(t, w, d, "much worse at once");
	else if (t->trial.n > 1 && d->gain < -loss)
		roll_back(t, w, d, "worse than what was");
	else if (d->gain > 0 && gain > MARGIN + SURE * error)
		keep(t, w, d);
	else if (gain + HOPELESS * error < MARGIN)
		roll_back(t, w, d, "worse");
	else if (!last)
		tuner_move(t, d, t->to, t->mode, TUNER_WAIT, "not clear of the noise yet");
	else if (d->gain > 0 && gain > MARGIN + HOPELESS * error)
		keep(t, w, d);
	else
		roll_back(t, w, d, "no gain worth a change");
}

static void begin(struct tuner *t, const struct tuner_window *w, struct tuner_decision *d,
		  struct tuner_settings to, enum tuner_mode mode, enum tuner_action action,
		  const char *why)
{
	t->to = to;
	memset(&t->trial, 0, sizeof(t->trial));
	t->trial_key.n = 0;
	t->prior = 0;
	t->prior_error = TUNER_PRIOR_ERROR;
	if (mode == MODE_TRIAL) {
		t->prior = d->proposal.prior;
		t->prior_error = d->proposal.prior_error;
	}
	tuner_move(t, d, mode == MODE_TRIAL ? tuner_settings_toward(t->ctx->best, to) : to, mode,
		   action, why);
}

static bool explores(const struct tuner_query *q, const struct tuner_proposal *r)
{
	for (int i = 0; i < q->n; i++)
		if (r->predicted[i] > r->predicted[r->choice]) /* false where one is NaN */
			return true;
	return false;
}

static void ask(struct tuner *t, const struct tuner_window *w, struct tuner_decision *d)
{
	struct tuner_query *q = &d->query;

	q->window = w->index;
	d->look = t->ctx->look;
	q->features = &d->look;
	q->now = t->ctx->best;
	tuner_reach(t, w, q);
	for (int i = 0; i < TUNER_CANDIDATES; i++)
		d->proposal.predicted[i] = d->proposal.error[i] = NAN;
	if (q->n > 1)
		t->config.policy->propose(t->policy, q, &d->proposal);
	if (d->proposal.choice < 0 || d->proposal.choice >= q->n)
		d->proposal.choice = 0;
	d->proposal.explored = explores(q, &d->proposal);
}

void tuner_trial_next(struct tuner *t, const struct tuner_window *w, struct tuner_decision *d)
{
	struct tuner_settings shipped = tuner_settings_clamp(t->config.shipped, &w->bounds);
	bool audit = w->index >= t->ctx->audit_at && !tuner_settings_equal(shipped, t->ctx->best);

	if (t->ctx->reward.n < BASE_WINDOWS && !(audit && t->ctx->audit_at == TUNER_AUDIT_NOW)) {
		tuner_move(t, d, t->ctx->best, MODE_HOLD, TUNER_STAY, "measuring what is");
		return;
	}
	if (audit) {
		t->ctx->audit_at = w->index + TUNER_AUDIT_EVERY;
		begin(t, w, d, shipped, MODE_AUDIT, TUNER_AUDIT,
		      "time to compare with the static settings");
		return;
	}
	if (t->budget < 1) {
		tuner_move(t, d, t->ctx->best, MODE_HOLD, TUNER_STAY, "no windows left for trials");
		return;
	}
	ask(t, w, d);
	if (d->proposal.choice == 0) {
		tuner_move(t, d, t->ctx->best, MODE_HOLD, TUNER_STAY,
			   d->query.n == 1 ? "every step is banned" : "no step promises a gain");
		return;
	}
	begin(t, w, d, d->query.candidate[d->proposal.choice], MODE_TRIAL, TUNER_TRY,
	      d->proposal.explored ? "an exploration" : "the step that promises most");
}
