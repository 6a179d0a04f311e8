/* SPDX-License-Identifier: Apache-2.0 */
/* The window of trials of samples.h. */
#include "tuner/samples.h"

#include "common/byteorder.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GAIN_MOST 0.25f /* beyond that a gain or loss teaches no more */
#define LOAD_ERROR 0.035 /* a gain in another load, a unit of distance away, is off by this */

#define LEFT_UNIT 0.3f   /* doublings of the processors that are left */
#define LEFT_LEAST 0.25f

/* What of a load (context.h: key) the gain of a step of a knob hangs on: spinning on processors and
 * on how soon completions come, batches on what waits and how large it is, lanes on who shares the
 * link, memory in reserve on how fast a burst takes it. */
static const bool matters[TUNER_KNOBS][CONTEXT_KEYS] = {
	[TUNER_KNOB_LANES] = { true, false, true, true, false, false, true },
	[TUNER_KNOB_POLL] = { false, false, true, false, true, true, true },
	[TUNER_KNOB_BATCH] = { true, true, true, false, false, false, true },
	[TUNER_KNOB_RESERVE] = { true, false, true, false, false, false, true },
};

/* Who spins takes a processor of those that are left: one of two is another matter than one of
 * eight. 0 where that is unknown. */
static float left_apart(const struct context_key *a, const struct context_key *b)
{
	float from = a->cpus - a->v[CONTEXT_CPU_OTHER], to = b->cpus - b->v[CONTEXT_CPU_OTHER];

	if (isnan(from) || isnan(to))
		return 0;
	return fabsf(log2f(fmaxf(from, LEFT_LEAST) / fmaxf(to, LEFT_LEAST))) / LEFT_UNIT;
}

static double distance(const struct context_key *a, const struct context_key *b, int knob)
{
	double most = 0;

	if (knob == TUNER_KNOB_POLL)
		most = left_apart(a, b);

	for (int i = 0; i < CONTEXT_KEYS; i++)
		if (matters[knob][i] && fabsf(a->v[i] - b->v[i]) > most) /* false where NaN */
			most = fabsf(a->v[i] - b->v[i]);
	return most;
}

void samples_add(struct samples *s, const struct tuner_sample *sample)
{
	struct tuner_sample *place = &s->all[s->next];

	*place = *sample;
	place->gain = fmaxf(-GAIN_MOST, fminf(GAIN_MOST, sample->gain));
	context_key_of(&sample->features, sample->from, &s->key[s->next]);
	s->next = (s->next + 1) % SAMPLES_MAX;
	if (s->n < SAMPLES_MAX)
		s->n++;
}

void samples_known(const struct samples *s, const struct tuner_features *load,
		   struct tuner_settings at, struct known_steps *ret_known)
{
	struct context_key key;

	context_key_of(load, at, &key);
	memset(ret_known, 0, sizeof(*ret_known));
	for (int k = 0; k < TUNER_KNOBS; k++)
		for (int l = 0; l < TUNER_LEVELS_MAX; l++)
			ret_known->off[k][l] = INFINITY;
	for (unsigned i = 0; i < s->n; i++) {
		const struct tuner_sample *t = &s->all[i];
		unsigned steps = tuner_settings_distance(t->from, t->to);
		unsigned apart = tuner_settings_distance(at, t->from);

		for (int k = 0; k < TUNER_KNOBS; k++) {
			int a = t->from.level[k], b = t->to.level[k];
			/* How far this knob itself is away doesn't matter: the step is the same. */
			int others = (int)apart - abs(at.level[k] - a);
			double off = LOAD_ERROR * (distance(&s->key[i], &key, k) + others);
			double variance = off * off + (double)t->error * t->error;

			for (int l = a < b ? a : b; l < (a < b ? b : a); l++) {
				ret_known->of[k][l] += 1 / (variance * steps * steps);
				ret_known->off[k][l] = fmin(ret_known->off[k][l], off);
			}
		}
	}
}

static uint8_t *put_float(uint8_t *at, float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	put_be32(at, bits);
	return at + sizeof(bits);
}

static const uint8_t *get_float(const uint8_t *at, float *ret_v)
{
	uint32_t bits = get_be32(at);

	memcpy(ret_v, &bits, sizeof(bits));
	return at + sizeof(bits);
}

size_t samples_encode(const struct samples *s, uint8_t *out)
{
	uint8_t *at = out;

	put_be32(at, s->n);
	at += 4;
	for (unsigned i = 0; i < s->n; i++) {
		/* oldest first */
		unsigned which = (s->next + SAMPLES_MAX - s->n + i) % SAMPLES_MAX;
		const struct tuner_sample *t = &s->all[which];

		for (int f = 0; f < TUNER_FEATURES; f++)
			at = put_float(at, t->features.v[f]);
		memcpy(at, t->from.level, TUNER_KNOBS);
		memcpy(at + TUNER_KNOBS, t->to.level, TUNER_KNOBS);
		at = put_float(at + 2 * TUNER_KNOBS, t->gain);
		at = put_float(at, t->error);
	}
	return (size_t)(at - out);
}

static int get_one(const uint8_t *at, struct tuner_sample *ret_sample)
{
	struct tuner_bounds all;
	struct tuner_sample t;

	for (int f = 0; f < TUNER_FEATURES; f++) {
		at = get_float(at, &t.features.v[f]);
		if (isinf(t.features.v[f]))
			return -EINVAL;
	}
	memcpy(t.from.level, at, TUNER_KNOBS);
	memcpy(t.to.level, at + TUNER_KNOBS, TUNER_KNOBS);
	at = get_float(at + 2 * TUNER_KNOBS, &t.gain);
	get_float(at, &t.error);
	tuner_bounds_all(&all);
	if (!tuner_settings_allowed(&t.from, &all) || !tuner_settings_allowed(&t.to, &all) ||
	    !isfinite(t.gain) || !isfinite(t.error) || !(t.error > 0))
		return -EINVAL;
	*ret_sample = t;
	return 0;
}

int samples_decode(struct samples *s, const uint8_t *bytes, size_t len)
{
	struct samples *read;
	uint32_t n;
	int err = 0;

	if (len < 4)
		return -EINVAL;
	n = get_be32(bytes);
	if (n > SAMPLES_MAX || len != 4 + (size_t)n * SAMPLES_ONE_BYTES)
		return -EINVAL;
	read = calloc(1, sizeof(*read));
	if (!read)
		return -ENOMEM;
	for (uint32_t i = 0; i < n && !err; i++) {
		struct tuner_sample t;

		err = get_one(bytes + 4 + (size_t)i * SAMPLES_ONE_BYTES, &t);
		if (!err)
			samples_add(read, &t);
	}
	if (!err)
		*s = *read;
	free(read);
	return err;
}
