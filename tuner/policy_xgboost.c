/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's policy: XGBoost learns the gain of a step from (features, settings, step) and scores
 * all candidates at once. It learns after each trial: some rounds more on a window of the last
 * samples, or all anew when there are too many rounds or the error rises. Steps whose like was
 * seldom tried get a bonus, smaller the more the model knows; now and then any step is tried. Until
 * the model predicts better than "no step gains anything" the bandit's scores stand in. One thread,
 * the one that created it.
 */
#include "tuner/policy_xgboost.h"

#include "tuner/context.h"
#include "tuner/moves.h"
#include "tuner/rng.h"
#include "tuner/xgb_model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES 160         /* the sliding window of trials; each gives two rows, there and back */
#define TRAIN_FIRST 12      /* samples before the first training */
#define TRAIN_EVERY 6
#define ROUNDS_ANEW 24
#define ROUNDS_MORE 3
#define ROUNDS_MOST 60
#define ERROR_FADE 0.1
#define ERROR_FADE_SLOW 0.02
#define ERROR_RISE 1.5      /* fast error over slow error: the world is another one */
#define BONUS 0.03          /* for a step not tried yet, at first */
#define BONUS_ERROR 0.6     /* and later, of the model's error */
#define EXPLORE 0.03
#define WORTH 0.003         /* an expected gain of less is left alone */
#define FAILURES 4          /* in a row: give up */

struct tuner_policy {
	struct xgb_model *model;
	struct rng rng;
	struct moves moves;
	struct tuner_sample sample[SAMPLES];
	unsigned next, filled, fresh;
	double error, error_slow, zero_error;
	unsigned judged;        /* predictions that were compared with what came */
	unsigned trainings;
	unsigned failures;      /* of the library, in a row */
	const char *why;        /* it gave up */
	float rows[2 * SAMPLES][XGBOOST_COLUMNS];
	float labels[2 * SAMPLES];
};

static void fill_row(float row[XGBOOST_COLUMNS], const struct tuner_features *f,
		     struct tuner_settings from, struct tuner_settings to)
{
	memcpy(row, f->v, sizeof(f->v));
	for (int k = 0; k < TUNER_KNOBS; k++) {
		row[TUNER_FEATURES + k] = from.level[k];
		row[TUNER_FEATURES + TUNER_KNOBS + k] = (float)(to.level[k] - from.level[k]);
	}
}

int policy_xgboost_create(const struct xgb_api *api, uint64_t seed,
			  struct tuner_policy **ret_policy)
{
	struct tuner_policy *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	err = xgb_model_create(api, XGBOOST_COLUMNS, &p->model);
	if (err) {
		free(p);
		return err;
	}
	p->rng.state = seed ^ 0x786762;
	*ret_policy = p;
	return 0;
}

static int library_create(uint64_t seed, struct tuner_policy **ret_policy)
{
	return policy_xgboost_create(&xgb_api_library, seed, ret_policy);
}

/* The library failed or did not. */
static void outcome(struct tuner_policy *p, int err)
{
	if (err == -EAGAIN)
		return;
	p->failures = err ? p->failures + 1 : 0;
	if (p->failures >= FAILURES)
		p->why = "XGBoost keeps failing";
}

/* How many samples were of this move in a load like this. */
static unsigned tried(const struct tuner_policy *p, const struct context_key *key, int move)
{
	unsigned n = 0;

	for (unsigned i = 0; i < p->filled; i++) {
		const struct tuner_sample *s = &p->sample[i];
		struct context_key k;

		if (tuner_settings_move_of(s->from, s->to) != move)
			continue;
		context_key_of(&s->features, &k);
		n += context_distance(&k, key) < 2;
	}
	return n;
}

static bool trusted(const struct tuner_policy *p)
{
	return p->judged < 8 || p->error < p->zero_error;
}

/* y: what the model itself expects; 0 without a model to trust. */
static void score(struct tuner_policy *p, const struct tuner_query *q, float *ret_score, float *y)
{
	float rows[1 + TUNER_MOVES][XGBOOST_COLUMNS];
	double bonus = p->judged < 8 ? BONUS : fmin(BONUS, BONUS_ERROR * p->error);
	struct context_key key;
	int err;

	for (int i = 0; i < q->n; i++)
		fill_row(rows[i], q->features, q->now, q->candidate[i]);
	err = xgb_model_predict(p->model, rows[0], (unsigned)q->n, y);
	outcome(p, err);
	context_key_of(q->features, &key);
	ret_score[0] = 0;
	for (int i = 1; i < q->n; i++) {
		int move = tuner_settings_move_of(q->now, q->candidate[i]);

		if (err || !trusted(p)) {
			ret_score[i] = (float)moves_score(&p->moves, move);
			y[i] = 0;
		} else {
			ret_score[i] = y[i] + (float)(bonus / (1 + tried(p, &key, move)));
		}
	}
}

static void xgb_propose(struct tuner_policy *p, const struct tuner_query *q,
			struct tuner_proposal *ret_proposal)
{
	float best = (float)WORTH, y[1 + TUNER_MOVES] = { 0 };

	ret_proposal->choice = 0;
	ret_proposal->explored = false;
	score(p, q, ret_proposal->score, y);
	for (int i = 1; i < q->n; i++) {
		if (ret_proposal->score[i] > best) {
			best = ret_proposal->score[i];
			ret_proposal->choice = i;
		}
	}
	if (q->n > 1 && rng_unit(&p->rng) < EXPLORE) {
		ret_proposal->choice = 1 + (int)rng_below(&p->rng, (unsigned)q->n - 1);
		ret_proposal->explored = true;
	}
	ret_proposal->prior = y[ret_proposal->choice];
	ret_proposal->prior_error = p->judged < 8 || !trusted(p) ? TUNER_PRIOR_ERROR :
				    fminf(TUNER_PRIOR_ERROR, 0.01f + (float)p->error);
}

static void train(struct tuner_policy *p, bool afresh)
{
	for (unsigned i = 0; i < p->filled; i++) {
		const struct tuner_sample *s = &p->sample[i];

		fill_row(p->rows[2 * i], &s->features, s->from, s->to);
		fill_row(p->rows[2 * i + 1], &s->features, s->to, s->from);
		p->labels[2 * i] = s->gain;
		p->labels[2 * i + 1] = -s->gain;
	}
	p->trainings += afresh;
	outcome(p, xgb_model_train(p->model, p->rows[0], p->labels, 2 * p->filled,
				   afresh ? ROUNDS_ANEW : ROUNDS_MORE, afresh));
	p->fresh = 0;
}

/* Compares the sample with what the model would have said, before it learns it. */
static bool judge(struct tuner_policy *p, const struct tuner_sample *s)
{
	float row[XGBOOST_COLUMNS], y;
	double off;
	int err;

	fill_row(row, &s->features, s->from, s->to);
	err = xgb_model_predict(p->model, row, 1, &y);
	outcome(p, err);
	if (err)
		return false;
	off = fabs((double)y - s->gain);
	if (p->judged++ == 0) {
		p->error = p->error_slow = off;
		p->zero_error = fabs(s->gain);
	}
	p->error += ERROR_FADE * (off - p->error);
	p->error_slow += ERROR_FADE_SLOW * (off - p->error_slow);
	p->zero_error += ERROR_FADE * (fabs(s->gain) - p->zero_error);
	return p->error > ERROR_RISE * p->error_slow + 0.005;
}

static void xgb_learn(struct tuner_policy *p, const struct tuner_sample *sample)
{
	int move = tuner_settings_move_of(sample->from, sample->to);
	bool rising;

	if (!isfinite(sample->gain))
		return;
	if (move >= 0)
		moves_learn(&p->moves, move, sample->gain);
	rising = judge(p, sample);
	p->sample[p->next] = *sample;
	p->next = (p->next + 1) % SAMPLES;
	if (p->filled < SAMPLES)
		p->filled++;
	p->fresh++;
	if (xgb_model_rounds(p->model) == 0 && p->filled < TRAIN_FIRST)
		return;
	if (rising) {
		p->error_slow = p->error;
		train(p, true);
	} else if (xgb_model_rounds(p->model) == 0 || p->fresh >= TRAIN_EVERY) {
		train(p, xgb_model_rounds(p->model) == 0 ||
			 xgb_model_rounds(p->model) + ROUNDS_MORE > ROUNDS_MOST);
	}
}

static void xgb_shifted(struct tuner_policy *p)
{
	moves_shifted(&p->moves);
}

static int xgb_save(struct tuner_policy *p, void **ret_bytes, size_t *ret_len)
{
	return xgb_model_save(p->model, ret_bytes, ret_len);
}

static int xgb_load(struct tuner_policy *p, const void *bytes, size_t len)
{
	return xgb_model_load(p->model, bytes, len);
}

static int xgb_failed(struct tuner_policy *p, const char **ret_why)
{
	if (!p->why)
		return 0;
	*ret_why = p->why;
	return -EIO;
}

static void xgb_destroy(struct tuner_policy *p)
{
	if (!p)
		return;
	xgb_model_destroy(p->model);
	free(p);
}

void policy_xgboost_stats(const struct tuner_policy *p, unsigned *ret_trainings, double *ret_error,
			  double *ret_zero_error)
{
	*ret_trainings = p->trainings;
	*ret_error = p->error;
	*ret_zero_error = p->zero_error;
}

const struct tuner_policy_ops tuner_policy_xgboost = {
	.name = "xgboost",
	.adapts = true,
	.create = library_create,
	.propose = xgb_propose,
	.learn = xgb_learn,
	.shifted = xgb_shifted,
	.save = xgb_save,
	.load = xgb_load,
	.failed = xgb_failed,
	.destroy = xgb_destroy,
};
