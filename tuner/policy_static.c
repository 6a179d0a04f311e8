/* SPDX-License-Identifier: Apache-2.0 */
/* The policy that stands still, and the table of all policies. Pure. */
#include "tuner/policy.h"

#include <math.h>
#include <string.h>

static int static_create(uint64_t seed, struct tuner_policy **ret_policy)
{
	*ret_policy = NULL;
	return 0;
}

static void static_propose(struct tuner_policy *p, const struct tuner_query *q,
			   struct tuner_proposal *ret_proposal)
{
	ret_proposal->choice = 0;
	ret_proposal->prior = 0;
	ret_proposal->prior_error = TUNER_PRIOR_ERROR;
	for (int i = 0; i < q->n; i++)
		ret_proposal->score[i] = NAN;
}

static void static_learn(struct tuner_policy *p, const struct tuner_sample *sample)
{
}

static void static_shifted(struct tuner_policy *p)
{
}

static void static_destroy(struct tuner_policy *p)
{
}

const struct tuner_policy_ops tuner_policy_static = {
	.name = "static",
	.create = static_create,
	.propose = static_propose,
	.learn = static_learn,
	.shifted = static_shifted,
	.destroy = static_destroy,
};

const struct tuner_policy_ops *tuner_policy_by_name(const char *name)
{
	static const struct tuner_policy_ops *const all[] = {
		&tuner_policy_static, &tuner_policy_bandit, &tuner_policy_xgboost,
		&tuner_policy_qlearning,
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (strcmp(all[i]->name, name) == 0)
			return all[i];
	return NULL;
}
