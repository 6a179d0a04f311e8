/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tabular Q-learning (Watkins, Dayan, 1992): a value for each load class, settings and move. Off by
 * default; judged beside the others. 18 load classes (size, clients, whether others use the link) x
 * 420 settings x 9 moves (the last: stay) of floats: 270 KiB. One thread.
 */
#include "tuner/policy.h"
#include "tuner/rng.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define CLASSES 18
#define STATES (7 * 3 * 4 * 5)
#define ACTIONS (TUNER_MOVES + 1)
#define LEARN 0.4
#define DISCOUNT 0.5
#define EXPLORE 0.1

struct tuner_policy {
	struct rng rng;
	float q[CLASSES][STATES][ACTIONS];
	bool seen[CLASSES][STATES][ACTIONS];
};

static unsigned class_of(const struct tuner_features *f)
{
	float size = f->v[TUNER_F_RECORD_MEAN], clients = f->v[TUNER_F_IN_FLIGHT];
	unsigned c = size < 2048 ? 0 : size < 16384 ? 1 : 2;

	c = c * 3 + (clients < 8 ? 0U : clients < 48 ? 1U : 2U);
	return c * 2 + (f->v[TUNER_F_LINK_OTHER] > 0.1f);
}

static unsigned state_of(struct tuner_settings s)
{
	unsigned state = 0;

	for (int k = 0; k < TUNER_KNOBS; k++)
		state = state * tuner_knob_levels((enum tuner_knob)k) + s.level[k];
	return state;
}

static int q_create(uint64_t seed, struct tuner_policy **ret_policy)
{
	struct tuner_policy *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->rng.state = seed ^ 0x716c6561726e;
	*ret_policy = p;
	return 0;
}

static void q_propose(struct tuner_policy *p, const struct tuner_query *q,
		      struct tuner_proposal *ret_proposal)
{
	unsigned c = class_of(q->features), s = state_of(q->now);
	float best = 0;

	ret_proposal->choice = 0;
	ret_proposal->score[0] = ret_proposal->predicted[0] = 0;
	ret_proposal->prior = 0;
	ret_proposal->prior_error = TUNER_PRIOR_ERROR;
	for (int i = 1; i < q->n; i++) {
		int move = tuner_settings_move_of(q->now, q->candidate[i]);
		/* A move not tried yet is worth a try: optimism in place of a prior. */
		float score = 0.03f;

		if (move < 0)
			score = NAN;
		else if (p->seen[c][s][move])
			score = p->q[c][s][move];
		ret_proposal->score[i] = score;
		if (move >= 0)
			ret_proposal->predicted[i] = p->q[c][s][move];
		if (score > best) {
			best = score;
			ret_proposal->choice = i;
		}
	}
	if (q->n > 1 && rng_unit(&p->rng) < EXPLORE) {
		int any = 1 + (int)rng_below(&p->rng, (unsigned)q->n - 1);

		if (tuner_settings_move_of(q->now, q->candidate[any]) >= 0)
			ret_proposal->choice = any;
	}
}

static void q_learn(struct tuner_policy *p, const struct tuner_sample *sample)
{
	unsigned c = class_of(&sample->features), s = state_of(sample->from),
		 to = state_of(sample->to);
	int move = tuner_settings_move_of(sample->from, sample->to);
	float next = 0;

	if (move < 0)
		return;
	for (int a = 0; a < ACTIONS; a++)
		if (p->q[c][to][a] > next)
			next = p->q[c][to][a];
	p->q[c][s][move] +=
		(float)LEARN * (sample->gain + (float)DISCOUNT * next - p->q[c][s][move]);
	p->seen[c][s][move] = true;
}

static void q_shifted(struct tuner_policy *p)
{
}

static void q_destroy(struct tuner_policy *p)
{
	free(p);
}

const struct tuner_policy_ops tuner_policy_qlearning = {
	.name = "qlearning",
	.adapts = true,
	.create = q_create,
	.propose = q_propose,
	.learn = q_learn,
	.shifted = q_shifted,
	.destroy = q_destroy,
};
