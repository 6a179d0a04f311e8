/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_XGB_FAULT_H
#define KVFS_TESTS_XGB_FAULT_H
/*
 * XGBoost whose n-th call from now on fails, and as many after it as one likes. Freeing never
 * fails. The real library does what isn't failed. One thread.
 */
#include "tuner/xgb_api.h"

static unsigned xgb_fault_at, xgb_fault_times, xgb_fault_calls;

/* at: 1 is the next call, 0 none. */
static inline void xgb_fault_set(unsigned at, unsigned times)
{
	xgb_fault_at = at;
	xgb_fault_times = times;
	xgb_fault_calls = 0;
}

static int xgb_fault_due(void)
{
	xgb_fault_calls++;
	return xgb_fault_at > 0 && xgb_fault_calls >= xgb_fault_at &&
	       xgb_fault_calls - xgb_fault_at < xgb_fault_times;
}

static int fault_dmatrix_create(const float *d, bst_ulong r, bst_ulong c, float m,
				DMatrixHandle *ret)
{
	return xgb_fault_due() ? -1 : XGDMatrixCreateFromMat(d, r, c, m, ret);
}

static int fault_create(const DMatrixHandle m[], bst_ulong n, BoosterHandle *ret)
{
	return xgb_fault_due() ? -1 : XGBoosterCreate(m, n, ret);
}

static int fault_set_param(BoosterHandle b, const char *name, const char *value)
{
	return xgb_fault_due() ? -1 : XGBoosterSetParam(b, name, value);
}

static int fault_boost(BoosterHandle b, DMatrixHandle m, float *g, float *h, bst_ulong n)
{
	return xgb_fault_due() ? -1 : XGBoosterBoostOneIter(b, m, g, h, n);
}

static int fault_rounds(BoosterHandle b, int *ret)
{
	return xgb_fault_due() ? -1 : XGBoosterBoostedRounds(b, ret);
}

static int fault_features(BoosterHandle b, bst_ulong *ret)
{
	return xgb_fault_due() ? -1 : XGBoosterGetNumFeature(b, ret);
}

static int fault_predict(BoosterHandle b, DMatrixHandle m, const char *c, const bst_ulong **s,
			 bst_ulong *d, const float **ret)
{
	return xgb_fault_due() ? -1 : XGBoosterPredictFromDMatrix(b, m, c, s, d, ret);
}

static int fault_save(BoosterHandle b, const char *c, bst_ulong *len, const char **ret)
{
	return xgb_fault_due() ? -1 : XGBoosterSaveModelToBuffer(b, c, len, ret);
}

static int fault_load(BoosterHandle b, const void *bytes, bst_ulong len)
{
	return xgb_fault_due() ? -1 : XGBoosterLoadModelFromBuffer(b, bytes, len);
}

static const struct xgb_api xgb_fault_api = {
	.dmatrix_create = fault_dmatrix_create, .dmatrix_free = XGDMatrixFree,
	.create = fault_create, .set_param = fault_set_param, .boost = fault_boost,
	.rounds = fault_rounds, .features = fault_features,
	.predict = fault_predict, .save = fault_save, .load = fault_load, .free = XGBoosterFree,
	.last_error = XGBGetLastError,
};

#endif
