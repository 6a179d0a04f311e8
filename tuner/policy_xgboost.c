/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's policy. XGBoost learns from the measured trials (samples.h) what settings are worth
 * in a load, so that a load never met is judged by those like it; it learns after each few trials,
 * all anew when there are too many rounds or the error rises. A candidate is worth a trial for what
 * it may gain while the load lasts, less what the trial may cost: both follow from the gain that
 * the model expects and from how little is known of the steps to there. Until the model predicts
 * better than "no step gains anything" only the latter speaks. One thread, the one that created it.
 */
#include "tuner/policy_xgboost.h"

#include "common/byteorder.h"
#include "tuner/samples.h"
#include "tuner/xgb_model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TRAIN_FIRST 3        /* samples before the first training */
#define TRAIN_EVERY 8        /* samples; after each, and all anew, while they are FEW */
#define FEW 64
#define ROUNDS_ANEW 40
#define ROUNDS_MORE 4
#define ROUNDS_MOST 100
#define ERROR_FADE 0.1
#define ERROR_FADE_SLOW 0.02
#define ERROR_RISE 1.5       /* fast error over slow error: the world is another one */
#define ERROR_USUAL 0.025f   /* a sample with this error has weight 1 */
#define STEP_GAIN (-0.01)    /* of a step nothing is known of, and how far off that may be */
#define STEP_ERROR 0.04
#define MODEL_ERROR 0.004    /* however much is known */
#define HORIZON 150.0        /* windows that a gain is thought to last */
#define TRIAL_WINDOWS 3.0    /* that a trial takes; CLEAR_WINDOWS when it loses clearly */
#define CLEAR_LOSS 0.1
#define CLEAR_WINDOWS 1.3
#define TRIAL_COST 0.1       /* a step, besides: windows of throughput */
#define UNKNOWN_MOST 1.5     /* steps, of a try that is for knowledge's sake */
#define FAILURES 4           /* in a row: give up */

struct tuner_policy {
	struct xgb_model *model;
	struct samples samples;
	unsigned fresh;
	double error, error_slow, zero_error;
	unsigned judged;        /* predictions that were compared with what came */
	unsigned trainings;
	unsigned failures;      /* of the library, in a row */
	const char *why;        /* it gave up */
	float rows[2 * SAMPLES_MAX][XGBOOST_COLUMNS];
	float gain[SAMPLES_MAX], weight[SAMPLES_MAX];
};

static void fill_row(float row[XGBOOST_COLUMNS], const struct tuner_features *f,
		     struct tuner_settings s)
{
	const float *v = f->v;
	float lanes = (float)tuner_knob_value(TUNER_KNOB_LANES, s.level[TUNER_KNOB_LANES]);
	float batch = (float)tuner_knob_value(TUNER_KNOB_BATCH, s.level[TUNER_KNOB_BATCH]);
	float *d = row + TUNER_FEATURES + TUNER_KNOBS;

	memcpy(row, v, sizeof(f->v));
	for (int k = 0; k < TUNER_KNOBS; k++)
		row[TUNER_FEATURES + k] = s.level[k];
	d[0] = v[TUNER_F_IN_FLIGHT] / batch;
	d[1] = v[TUNER_F_IN_FLIGHT] / batch / lanes;
	d[2] = v[TUNER_F_RECORD_MEAN] * batch;
	d[3] = v[TUNER_F_CPUS] - v[TUNER_F_CPU_OTHER];
	d[4] = v[TUNER_F_CPU_OWN] / d[3];
	d[5] = v[TUNER_F_QUEUE_DEPTH] / v[TUNER_F_IN_FLIGHT];
	d[6] = v[TUNER_F_RTT_P50_US] / v[TUNER_F_COMMIT_P50_US];
	for (int i = 0; i < XGBOOST_COLUMNS; i++)
		if (isinf(row[i]))
			row[i] = NAN;
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

static bool trusted(const struct tuner_policy *p)
{
	return p->judged < 8 || p->error < p->zero_error;
}

/* What to expect of going somewhere: mean and standard deviation of the gain, and how many steps of
 * the way nothing is known of (a step of which something is known is a part of one). */
struct expected {
	double mean, error, unknown_steps;
};

/* Of going to `to`; model: what it says. */
static void expect(const struct tuner_query *q, const struct known_steps *known,
		   struct tuner_settings to, double model, struct expected *ret_expected)
{
	double unknown = STEP_ERROR * STEP_ERROR, variance = MODEL_ERROR * MODEL_ERROR;
	double steps = 0;

	for (int k = 0; k < TUNER_KNOBS; k++) {
		int a = q->now.level[k], b = to.level[k];

		for (int l = a < b ? a : b; l < (a < b ? b : a); l++) {
			double off = known->off[k][l], left = unknown;

			if (isfinite(off))
				left = 1 / (1 / unknown + known->of[k][l]) + off * off;
			variance += left;
			steps += fmin(1, left / unknown);
		}
	}
	*ret_expected = (struct expected){ model + STEP_GAIN * steps, sqrt(variance), steps };
}

/* What a trial is worth, in gain a window: what it may gain for as long as a load may last, less
 * what it may lose while it lasts itself. With more than one step that nothing is known of only a
 * gain that is likely counts; behind one that was tried and changed nothing (a batch that is never
 * full) the next is as good a try as any. */
static double worth(const struct expected *e, unsigned steps)
{
	double z = e->mean / e->error, density = exp(-z * z / 2) / sqrt(2 * M_PI);
	double gain = e->error * density + e->mean * erfc(-z / sqrt(2)) / 2, loss = gain - e->mean;
	double windows = loss > CLEAR_LOSS ? CLEAR_WINDOWS : TRIAL_WINDOWS;

	if (steps > 1 && e->unknown_steps > UNKNOWN_MOST)
		gain = fmax(0, e->mean - e->error);
	return gain - (windows * loss + TRIAL_COST * steps) / HORIZON;
}

static void xgb_propose(struct tuner_policy *p, const struct tuner_query *q,
			struct tuner_proposal *ret_proposal)
{
	float rows[TUNER_CANDIDATES][XGBOOST_COLUMNS], y[TUNER_CANDIDATES] = { 0 };
	struct tuner_proposal r = *ret_proposal;
	struct known_steps known;
	int err;

	for (int i = 0; i < q->n; i++)
		fill_row(rows[i], q->features, q->candidate[i]);
	err = xgb_model_predict(p->model, rows[0], (unsigned)q->n, y);
	outcome(p, err);
	samples_known(&p->samples, q->features, q->now, &known);
	r.choice = 0;
	r.prior = r.score[0] = r.predicted[0] = r.error[0] = 0;
	r.prior_error = TUNER_PRIOR_ERROR;
	for (int i = 1; i < q->n; i++) {
		unsigned steps = tuner_settings_distance(q->now, q->candidate[i]);
		double model = err || !trusted(p) ? 0 : (double)y[i] - y[0];
		struct expected e;

		expect(q, &known, q->candidate[i], model, &e);
		r.score[i] = (float)worth(&e, steps);
		r.predicted[i] = (float)e.mean;
		r.error[i] = (float)e.error;
		if (r.score[i] > r.score[r.choice]) {
			r.choice = i;
			r.prior = (float)e.mean;
			r.prior_error = (float)e.error;
		}
	}
	*ret_proposal = r;
}

static void train(struct tuner_policy *p, bool afresh)
{
	struct xgb_pairs pairs = { p->samples.n, p->rows[0], p->gain, p->weight };

	for (unsigned i = 0; i < p->samples.n; i++) {
		const struct tuner_sample *s = &p->samples.all[i];
		float weight = ERROR_USUAL / s->error;

		fill_row(p->rows[2 * i], &s->features, s->from);
		fill_row(p->rows[2 * i + 1], &s->features, s->to);
		p->gain[i] = s->gain;
		p->weight[i] = weight * weight;
	}
	p->trainings += afresh;
	outcome(p, xgb_model_train(p->model, &pairs, afresh ? ROUNDS_ANEW : ROUNDS_MORE, afresh));
	p->fresh = 0;
}

/* Compares the sample with what the model would have said, before it learns it. */
static bool judge(struct tuner_policy *p, const struct tuner_sample *s)
{
	float rows[2][XGBOOST_COLUMNS], y[2];
	double off;
	int err;

	fill_row(rows[0], &s->features, s->from);
	fill_row(rows[1], &s->features, s->to);
	err = xgb_model_predict(p->model, rows[0], 2, y);
	outcome(p, err);
	if (err)
		return false;
	off = fabs((double)y[1] - y[0] - s->gain);
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
	unsigned rounds = xgb_model_rounds(p->model);
	bool rising;

	if (!isfinite(sample->gain) || !(sample->error > 0))
		return;
	rising = judge(p, sample);
	samples_add(&p->samples, sample);
	p->fresh++;
	if (rounds == 0 && p->samples.n < TRAIN_FIRST)
		return;
	if (rising)
		p->error_slow = p->error;
	if (rising || p->samples.n < FEW || p->fresh >= TRAIN_EVERY)
		train(p, rising || p->samples.n < FEW || rounds + ROUNDS_MORE > ROUNDS_MOST);
}

static void xgb_shifted(struct tuner_policy *p)
{
}

/* Length of the booster (4, network byte order), the booster, the samples. */
static int xgb_save(struct tuner_policy *p, void **ret_bytes, size_t *ret_len)
{
	void *booster;
	uint8_t *bytes;
	size_t len;
	int err = xgb_model_save(p->model, &booster, &len);

	if (err)
		return err;
	bytes = malloc(4 + len + SAMPLES_BYTES_MAX);
	if (bytes) {
		put_be32(bytes, (uint32_t)len);
		memcpy(bytes + 4, booster, len);
		*ret_len = 4 + len + samples_encode(&p->samples, bytes + 4 + len);
		*ret_bytes = bytes;
	}
	free(booster);
	return bytes ? 0 : -ENOMEM;
}

static int xgb_load(struct tuner_policy *p, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;
	struct samples *samples;
	uint32_t booster;
	int err;

	if (len < 4)
		return -EINVAL;
	booster = get_be32(at);
	if (booster > len - 4)
		return -EINVAL;
	samples = calloc(1, sizeof(*samples));
	if (!samples)
		return -ENOMEM;
	err = samples_decode(samples, at + 4 + booster, len - 4 - booster);
	if (!err)
		err = xgb_model_load(p->model, at + 4, booster);
	if (!err)
		p->samples = *samples;
	free(samples);
	return err;
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
