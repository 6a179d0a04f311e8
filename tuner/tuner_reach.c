/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a policy may choose from: one step; two steps, since a loss may lie before a gain; what was
 * best in loads like this one; the static settings. Whatever it is, a trial walks there one knob by
 * one step a window (tuner_trial.c). One thread.
 */
#include "tuner/tuner_internal.h"

static void offer(const struct tuner *t, const struct tuner_window *w, struct tuner_settings to,
		  struct tuner_query *q)
{
	if (!tuner_settings_allowed(&to, &w->bounds) || context_banned(t->ctx, to, w->index))
		return;
	for (int i = 0; i < q->n; i++)
		if (tuner_settings_equal(q->candidate[i], to))
			return;
	q->candidate[q->n++] = to;
}

void tuner_reach(const struct tuner *t, const struct tuner_window *w, struct tuner_query *q)
{
	struct tuner_settings one, two, remembered[TUNER_REMEMBERED];
	int n = contexts_remember(&t->contexts, t->ctx, TUNER_REMEMBERED, remembered);

	q->candidate[0] = q->now;
	q->n = 1;
	for (unsigned m = 0; m < TUNER_MOVES; m++)
		if (tuner_settings_move(q->now, m, &w->bounds, &one))
			offer(t, w, one, q);
	for (unsigned m = 0; m < TUNER_MOVES; m++)
		for (unsigned l = m; l < TUNER_MOVES; l++)
			if (tuner_settings_move(q->now, m, &w->bounds, &one) &&
			    tuner_settings_move(one, l, &w->bounds, &two))
				offer(t, w, two, q);
	for (int i = 0; i < n; i++)
		offer(t, w, remembered[i], q);
	offer(t, w, tuner_settings_clamp(t->config.shipped, &w->bounds), q);
}
