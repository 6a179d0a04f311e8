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
#define FOLLOW 2.0f   /* under other settings clients may take so much more or less a record */
#define FULL 0.9f     /* of the machine: what we take is missing elsewhere */

/* How far a mean of keys may move. What others take of a full link is what our settings leave. */
static const float moved[CONTEXT_KEYS] = { 0.25f, 0.25f, 0.25f, 0.6f, 0.25f, 0.25f, 0.25f };

void mean_add(struct mean *m, double value, unsigned most)
{
	if (m->n < most)
		m->n++;
	m->value += (value - m->value) / m->n;
}

void context_key_of(const struct tuner_features *f, struct tuner_settings in_force,
		    struct context_key *ret_key)
{
	const float *v = f->v;
	float cpus = isnan(v[TUNER_F_CPUS]) ? 1 : v[TUNER_F_CPUS];
	float own = v[TUNER_F_LINK_SHARE] - v[TUNER_F_LINK_OTHER];
	float core = fmaxf(0.7f, cpus / 10);

	/* What one unit is: a third more or less of size or clients, an eighth of what we leave of
	 * the link, a tenth of the machine. Not of the link itself: who fills it takes less when
	 * our settings take more. */
	ret_key->v[CONTEXT_SIZE] = log2f(v[TUNER_F_RECORD_MEAN]) / 0.45f;
	ret_key->v[CONTEXT_SIZES] =
		log2f(v[TUNER_F_RECORD_P90] / v[TUNER_F_RECORD_MEAN]) / 0.8f;
	ret_key->v[CONTEXT_IN_FLIGHT] = log2f(v[TUNER_F_IN_FLIGHT]) / CONTEXT_IN_FLIGHT_UNIT;
	ret_key->v[CONTEXT_LINK_OTHER] = v[TUNER_F_LINK_OTHER] / fmaxf(1 - own, 0.1f) / 0.125f;
	ret_key->v[CONTEXT_CPU_OTHER] = v[TUNER_F_CPU_OTHER] / core;
	ret_key->v[CONTEXT_CPUS] = cpus / 0.9f;
	ret_key->v[CONTEXT_TRANSPORTS] = v[TUNER_F_TRANSPORTS];
	ret_key->in_force = in_force;
	ret_key->ops_per_s = v[TUNER_F_OPS_PER_S];
	ret_key->cpu_own = v[TUNER_F_CPU_OWN] / core;
	ret_key->cpus = cpus / core;
}

static bool full(const struct context_key *k)
{
	return k->cpu_own + k->v[CONTEXT_CPU_OTHER] > FULL * k->cpus; /* NaN: no */
}

/* What of the difference of other programs' CPU our throughput and settings don't explain: who is
 * on this machine for our sake takes more when we do more, not quite in proportion under other
 * settings, and on a full one gets what we leave. */
static float cpu_apart(const struct context_key *a, const struct context_key *b)
{
	float from = a->v[CONTEXT_CPU_OTHER], to = b->v[CONTEXT_CPU_OTHER];
	float pace = b->ops_per_s / a->ops_per_s;
	float low = from * fminf(1, pace), high = from * fmaxf(1, pace); /* not by NaN */

	if (!tuner_settings_equal(a->in_force, b->in_force)) {
		low /= FOLLOW;
		high *= FOLLOW;
		if (full(b))
			low -= fmaxf(0, b->cpu_own - a->cpu_own);
		if (full(a))
			high += fmaxf(0, a->cpu_own - b->cpu_own);
	}
	return fmaxf(low - to, to - high) > 0 ? fmaxf(low - to, to - high) : 0;
}

static float apart(const struct context_key *a, const struct context_key *b, int part)
{
	return part == CONTEXT_CPU_OTHER ? cpu_apart(a, b) : fabsf(a->v[part] - b->v[part]);
}

double context_distance(const struct context_key *a, const struct context_key *b)
{
	double most = 0;

	for (int i = 0; i < CONTEXT_KEYS; i++) {
		double d = apart(a, b, i);

		if (d > most) /* false where one is NaN */
			most = d;
	}
	return most;
}

void key_mean_add(struct key_mean *m, const struct context_key *key, unsigned most)
{
	struct context_key *mean = &m->mean;
	float share;

	if (m->n < most)
		m->n++;
	if (m->n == 1) {
		*mean = *key;
		return;
	}
	share = 1 / (float)m->n;
	if (!tuner_settings_equal(mean->in_force, key->in_force)) { /* another mean */
		mean->in_force = key->in_force;
		mean->v[CONTEXT_CPU_OTHER] = key->v[CONTEXT_CPU_OTHER];
		mean->ops_per_s = key->ops_per_s;
		mean->cpu_own = key->cpu_own;
	}
	for (int i = 0; i < CONTEXT_KEYS; i++)
		mean->v[i] += (key->v[i] - mean->v[i]) * share;
	mean->ops_per_s += (key->ops_per_s - mean->ops_per_s) * share;
	mean->cpu_own += (key->cpu_own - mean->cpu_own) * share;
	mean->cpus = key->cpus;
}

void key_noise_add(struct key_noise *n, const struct context_key *key)
{
	for (int i = 0; i < CONTEXT_KEYS && n->known; i++) {
		float step = fminf(fabsf(key->v[i] - n->last.v[i]), 1) / 1.128f;

		if (i == CONTEXT_CPU_OTHER &&
		    !tuner_settings_equal(key->in_force, n->last.in_force))
			continue;
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
		if (apart(&a->mean, &b->mean, i) > moved[i] + NOISE_SURE * n->v[i] * spread)
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
	case TUNER_F_CPUS:
	case TUNER_F_LINK_OTHER:
	case TUNER_F_LINK_ESTIMATED:
	case TUNER_F_IN_FLIGHT:
	case TUNER_F_MEM_SHARE:
	case TUNER_F_MIRRORS:
	case TUNER_F_TRANSPORTS:
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
