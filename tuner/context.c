/* SPDX-License-Identifier: Apache-2.0 */
/* The table of loads, their keys and their bans. */
#include "tuner/context.h"

#include <math.h>
#include <string.h>

#define BAN_WINDOWS 150
#define BAN_WINDOWS_MAX 2400
#define NOISE_FADE 0.05f
#define NOISE_SURE 2.5f /* standard deviations */
#define LOOKS_MOST 16 /* windows in a look; older ones fade */

/* How far a mean of keys may move. What others take of a full link is what our settings leave. */
static const float moved[CONTEXT_KEYS] = { 0.25f, 0.25f, 0.25f, 0.6f, 0.25f, 0.25f };

void mean_add(struct mean *m, double value, unsigned most)
{
	if (m->n < most)
		m->n++;
	m->value += (value - m->value) / m->n;
}

void context_key_of(const struct tuner_features *f, struct context_key *ret_key)
{
	const float *v = f->v;
	float cpus = isnan(v[TUNER_F_CPUS]) ? 1 : v[TUNER_F_CPUS];
	float own = v[TUNER_F_LINK_SHARE] - v[TUNER_F_LINK_OTHER];

	/* What one unit is: a third more or less of size or clients, an eighth of what we leave of
	 * the link, a tenth of the machine. Not of the link itself: who fills it takes less when
	 * our settings take more. */
	ret_key->v[0] = log2f(v[TUNER_F_RECORD_MEAN]) / 0.45f;
	ret_key->v[1] = log2f(v[TUNER_F_RECORD_P90] / v[TUNER_F_RECORD_MEAN]) / 0.8f;
	ret_key->v[2] = log2f(v[TUNER_F_IN_FLIGHT]) / 0.6f;
	ret_key->v[3] = v[TUNER_F_LINK_OTHER] / fmaxf(1 - own, 0.1f) / 0.125f;
	ret_key->v[4] = v[TUNER_F_CPU_OTHER] / fmaxf(0.7f, cpus / 10);
	ret_key->v[5] = cpus / 0.9f;
}

double context_distance(const struct context_key *a, const struct context_key *b)
{
	double most = 0;

	for (int i = 0; i < CONTEXT_KEYS; i++) {
		double d = fabs((double)a->v[i] - b->v[i]);

		if (d > most) /* false where one is NaN */
			most = d;
	}
	return most;
}

void key_mean_add(struct key_mean *m, const struct context_key *key, unsigned most)
{
	if (m->n < most)
		m->n++;
	for (int i = 0; i < CONTEXT_KEYS; i++)
		m->mean.v[i] = m->n == 1 ? key->v[i] :
			       m->mean.v[i] + (key->v[i] - m->mean.v[i]) / (float)m->n;
}

void key_noise_add(struct key_noise *n, const struct context_key *key)
{
	for (int i = 0; i < CONTEXT_KEYS && n->known; i++) {
		float step = fminf(fabsf(key->v[i] - n->last.v[i]), 1) / 1.128f;

		if (!isnan(step))
			n->v[i] += (step - n->v[i]) * NOISE_FADE;
	}
	n->last = *key;
	n->known = true;
}

bool context_moved(const struct key_mean *a, const struct key_mean *b, const struct key_noise *n)
{
	float spread = sqrtf(1 / (float)a->n + 1 / (float)b->n);

	for (int i = 0; i < CONTEXT_KEYS; i++)
		if (fabsf(a->mean.v[i] - b->mean.v[i]) > moved[i] + NOISE_SURE * n->v[i] * spread)
			return true;
	return false;
}

struct context *contexts_find(struct contexts *c, const struct context_key *key)
{
	struct context *found = NULL;
	double nearest = 1;

	for (int i = 0; i < CONTEXTS_MAX; i++) {
		double d;

		if (!c->all[i].used)
			continue;
		d = context_distance(&c->all[i].key, key);
		if (d < nearest) {
			nearest = d;
			found = &c->all[i];
		}
	}
	return found;
}

struct context *contexts_new(struct contexts *c, const struct context_key *key, uint64_t window,
			     const struct context *keep)
{
	struct context *oldest = NULL;

	for (int i = 0; i < CONTEXTS_MAX; i++) {
		struct context *ctx = &c->all[i];

		if (ctx == keep)
			continue;
		if (!ctx->used) {
			oldest = ctx;
			break;
		}
		if (!oldest || ctx->seen < oldest->seen)
			oldest = ctx;
	}
	memset(oldest, 0, sizeof(*oldest));
	oldest->used = true;
	oldest->key = *key;
	key_mean_add(&oldest->base, key, 1);
	oldest->seen = window;
	for (int i = 0; i < TUNER_FEATURES; i++)
		oldest->look.v[i] = NAN;
	return oldest;
}

/* What settings change is NaN until a window at the static ones tells it. */
static bool depends_on_settings(int feature)
{
	switch (feature) {
	case TUNER_F_RECORD_MEAN:
	case TUNER_F_RECORD_P90:
	case TUNER_F_CPU_OTHER:
	case TUNER_F_CPUS:
	case TUNER_F_LINK_OTHER:
	case TUNER_F_LINK_ESTIMATED:
	case TUNER_F_IN_FLIGHT:
	case TUNER_F_MEM_SHARE:
	case TUNER_F_FORECAST:
		return false;
	default:
		return true;
	}
}

void context_look(struct context *ctx, const struct tuner_features *f, bool at_shipped)
{
	if (ctx->looks < LOOKS_MOST)
		ctx->looks++;
	for (int i = 0; i < TUNER_FEATURES; i++) {
		float *v = &ctx->look.v[i];

		if (depends_on_settings(i) && !at_shipped)
			continue;
		if (isnan(*v) || isnan(f->v[i]))
			*v = f->v[i];
		else
			*v += (f->v[i] - *v) / (float)ctx->looks;
	}
}

int contexts_remember(const struct contexts *c, const struct context *ctx, int n,
		      struct tuner_settings *ret_settings)
{
	double nearest[CONTEXTS_MAX];
	int found = 0;

	for (int i = 0; i < CONTEXTS_MAX; i++) {
		const struct context *other = &c->all[i];

		nearest[i] = context_distance(&other->key, &ctx->key);
		if (!other->used || other == ctx ||
		    tuner_settings_equal(other->best, ctx->best))
			nearest[i] = INFINITY;
	}
	while (found < n) {
		int at = 0;

		for (int i = 1; i < CONTEXTS_MAX; i++)
			if (nearest[i] < nearest[at])
				at = i;
		if (isinf(nearest[at]))
			break;
		ret_settings[found] = c->all[at].best;
		for (int i = 0; i < CONTEXTS_MAX; i++)
			if (tuner_settings_equal(c->all[i].best, ret_settings[found]))
				nearest[i] = INFINITY;
		found++;
	}
	return found;
}

bool context_banned(const struct context *ctx, struct tuner_settings s, uint64_t window)
{
	for (int i = 0; i < ctx->nbans; i++)
		if (tuner_settings_equal(ctx->ban[i].settings, s))
			return window < ctx->ban[i].until;
	return false;
}

void context_ban(struct context *ctx, struct tuner_settings s, uint64_t window)
{
	struct context_ban *b = NULL;

	for (int i = 0; i < ctx->nbans; i++) {
		if (tuner_settings_equal(ctx->ban[i].settings, s)) {
			b = &ctx->ban[i];
			break;
		}
	}
	if (!b && ctx->nbans < CONTEXT_BANS_MAX)
		b = &ctx->ban[ctx->nbans++];
	if (!b) { /* full: the one that ends first */
		b = &ctx->ban[0];
		for (int i = 1; i < ctx->nbans; i++)
			if (ctx->ban[i].until < b->until)
				b = &ctx->ban[i];
	}
	if (!tuner_settings_equal(b->settings, s) || b->length == 0) {
		b->settings = s;
		b->length = BAN_WINDOWS / 2;
	}
	b->length = b->length * 2 > BAN_WINDOWS_MAX ? BAN_WINDOWS_MAX : b->length * 2;
	b->until = window + b->length;
}

void context_unban_all(struct context *ctx)
{
	ctx->nbans = 0;
}
