/* SPDX-License-Identifier: Apache-2.0 */
/* The bandit without a model: proposes the move with the highest upper confidence bound. */
#include "tuner/moves.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct tuner_policy {
	struct moves moves;
};

static int bandit_create(uint64_t seed, struct tuner_policy **ret_policy)
{
	struct tuner_policy *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	*ret_policy = p;
	return 0;
}

static void bandit_propose(struct tuner_policy *p, const struct tuner_query *q,
			   struct tuner_proposal *ret_proposal)
{
	double best = 0;

	ret_proposal->choice = 0;
	ret_proposal->score[0] = ret_proposal->predicted[0] = 0;
	ret_proposal->prior = 0;
	ret_proposal->prior_error = TUNER_PRIOR_ERROR;
	for (int i = 1; i < q->n; i++) {
		int move = tuner_settings_move_of(q->now, q->candidate[i]);
		double score = move < 0 ? NAN : moves_score(&p->moves, move);

		ret_proposal->score[i] = (float)score;
		if (move >= 0)
			ret_proposal->predicted[i] = (float)moves_mean(&p->moves, move);
		if (score > best) {
			best = score;
			ret_proposal->choice = i;
		}
	}
}

static void bandit_learn(struct tuner_policy *p, const struct tuner_sample *sample)
{
	int move = tuner_settings_move_of(sample->from, sample->to);

	if (move >= 0)
		moves_learn(&p->moves, move, sample->gain);
}

static void bandit_shifted(struct tuner_policy *p)
{
	moves_shifted(&p->moves);
}

static void bandit_destroy(struct tuner_policy *p)
{
	free(p);
}

const struct tuner_policy_ops tuner_policy_bandit = {
	.name = "bandit",
	.adapts = true,
	.create = bandit_create,
	.propose = bandit_propose,
	.learn = bandit_learn,
	.shifted = bandit_shifted,
	.destroy = bandit_destroy,
};
