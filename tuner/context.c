/* SPDX-License-Identifier: Apache-2.0 */
/* The table of loads, their keys and their bans. */
#include "tuner/context.h"

#include <math.h>
#include <string.h>

#define BAN_WINDOWS 150
#define BAN_WINDOWS_MAX 2400

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

	/* What one unit is: a third more or less of size or clients, an eighth of the link, a
	 * tenth of the machine. */
	ret_key->v[0] = log2f(v[TUNER_F_RECORD_MEAN]) / 0.45f;
	ret_key->v[1] = log2f(v[TUNER_F_RECORD_P90] / v[TUNER_F_RECORD_MEAN]) / 0.8f;
	ret_key->v[2] = log2f(v[TUNER_F_IN_FLIGHT]) / 0.6f;
	ret_key->v[3] = v[TUNER_F_LINK_OTHER] / 0.125f;
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
	oldest->key = oldest->base = *key;
	oldest->seen = window;
	return oldest;
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
