/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether what was learnt of a load still holds. A window that was much worse than expected is
 * followed by one at the static settings, and that tells an accident (something else took the
 * machine for a moment) from settings that became bad. And what windows give away. One thread.
 */
#include "tuner/tuner_internal.h"

#include <math.h>
#include <string.h>

#define KNOWN 2       /* windows in a mean that regret is told by */
#define DOUBTS_MOST 3 /* false alarms of late that are no accident any more */
#define DOUBT_FADE 25 /* windows as expected that make up for one */

/* Begins again in this load, at the static settings. */
static void restart(struct tuner *t, struct context *ctx)
{
	ctx->best = t->config.shipped;
	memset(&ctx->reward, 0, sizeof(ctx->reward));
	memset(&ctx->shipped, 0, sizeof(ctx->shipped));
	context_unban_all(ctx);
	t->config.policy->shifted(t->policy);
	t->odd = t->doubts = 0;
	t->budget = TUNER_BUDGET_MOST;
}

static void recall(struct tuner *t, struct tuner_decision *d, const char *why)
{
	mean_add(&t->ctx->shipped, d->reward, TUNER_REWARD_MOST);
	tuner_move(t, d, t->ctx->best, MODE_HOLD, TUNER_RECALL, why);
}

void tuner_doubt_settle(struct tuner *t, const struct tuner_window *w, struct tuner_decision *d)
{
	struct context *ctx = t->ctx;
	bool as_known =
		ctx->shipped.n > 0 && fabs(d->reward - ctx->shipped.value) <= tuner_odd_limit(t);
	bool again = t->calm == 0; /* what was kept has not been as expected since the last time */

	ctx->audit_at = w->index + TUNER_AUDIT_EVERY;
	t->calm = 0;
	if (t->doubted >= d->reward) {
		/* Slower than it was, the static settings no less. */
		if (!as_known)
			memset(&ctx->shipped, 0, sizeof(ctx->shipped));
		if (!as_known || again)
			memset(&ctx->reward, 0, sizeof(ctx->reward));
		recall(t, d, "the static settings are no better");
		return;
	}
	if (as_known && !again && ++t->doubts < DOUBTS_MOST) {
		recall(t, d, "only one bad window");
		return;
	}
	restart(t, ctx);
	mean_add(&ctx->reward, d->reward, TUNER_REWARD_MOST);
	mean_add(&ctx->shipped, d->reward, TUNER_REWARD_MOST);
	tuner_move(t, d, ctx->best, MODE_HOLD, TUNER_FALL_BACK,
		   "the same load, but what was learnt no longer holds");
}

void tuner_doubt_calm(struct tuner *t)
{
	if (++t->calm % DOUBT_FADE == 0 && t->doubts > 0)
		t->doubts--;
}

double tuner_regret(const struct tuner *t, const struct tuner_window *w, double reward)
{
	const struct mean *kept = &t->ctx->reward, *best = &t->ctx->shipped;

	if (best->n < KNOWN || (kept->n > 0 && kept->value >= best->value))
		best = kept;
	if (best->n < KNOWN)
		return 0;
	if (tuner_settings_equal(w->in_force, t->ctx->best)) /* its mean: a window is noise */
		return kept->n > 0 ? best->value - kept->value : 0;
	return fmax(0, best->value - reward);
}
