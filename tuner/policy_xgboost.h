/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_POLICY_XGBOOST_H
#define KVFS_TUNER_POLICY_XGBOOST_H
/* The model's policy over a given table of library calls: for tests that let calls fail. */
#include "tuner/policy.h"
#include "tuner/xgb_api.h"

/* A row: the load's features, the settings, and what both make of each other: records under way a
 * batch, batches a lane, bytes a batch, processors left, shares of queue and append. */
#define XGBOOST_DERIVED 7
#define XGBOOST_COLUMNS (TUNER_FEATURES + TUNER_KNOBS + XGBOOST_DERIVED)

int policy_xgboost_create(const struct xgb_api *api, uint64_t seed,
			  struct tuner_policy **ret_policy);

/* Full trainings, and the rolling absolute errors of predictions and of always predicting 0. */
void policy_xgboost_stats(const struct tuner_policy *p, unsigned *ret_trainings, double *ret_error,
			  double *ret_zero_error);

#endif
