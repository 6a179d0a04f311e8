/* SPDX-License-Identifier: Apache-2.0 */
/* Proposes what was recorded. One thread. */
#include "tuner/policy_replay.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct tuner_policy {
	unsigned n, next;
	struct tuner_recorded recorded[];
};

int policy_replay_create(const struct tuner_recorded *recorded, unsigned n,
			 struct tuner_policy **ret_policy)
{
	struct tuner_policy *p = calloc(1, sizeof(*p) + n * sizeof(*recorded));

	if (!p)
		return -ENOMEM;
	p->n = n;
	memcpy(p->recorded, recorded, n * sizeof(*recorded));
	*ret_policy = p;
	return 0;
}

static void replay_propose(struct tuner_policy *p, const struct tuner_query *q,
			   struct tuner_proposal *ret_proposal)
{
	const struct tuner_recorded *r;

	ret_proposal->choice = 0;
	ret_proposal->prior_error = TUNER_PRIOR_ERROR;
	for (int i = 0; i < q->n; i++)
		ret_proposal->score[i] = NAN;
	while (p->next < p->n && p->recorded[p->next].window.index < q->window)
		p->next++;
	if (p->next == p->n || p->recorded[p->next].window.index != q->window)
		return;
	r = &p->recorded[p->next];
	if (r->choice < 0)
		return;
	ret_proposal->prior = r->prior;
	ret_proposal->prior_error = r->prior_error;
	for (int i = 0; i < q->n; i++)
		if (tuner_settings_equal(q->candidate[i], r->choice_settings))
			ret_proposal->choice = i;
}

static void replay_learn(struct tuner_policy *p, const struct tuner_sample *sample)
{
}

static void replay_shifted(struct tuner_policy *p)
{
}

static void replay_destroy(struct tuner_policy *p)
{
	free(p);
}

const struct tuner_policy_ops tuner_policy_replay = {
	.name = "replay",
	.adapts = true,
	.propose = replay_propose,
	.learn = replay_learn,
	.shifted = replay_shifted,
	.destroy = replay_destroy,
};
