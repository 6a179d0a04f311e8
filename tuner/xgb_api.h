/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_XGB_API_H
#define KVFS_TUNER_XGB_API_H
/*
 * The calls of XGBoost's C API that kvfs makes, as a table, so that a test can let the n-th fail.
 * Contracts are the library's (xgboost/c_api.h): 0, or -1 and a text from last_error.
 */
#include <xgboost/c_api.h>

struct xgb_api {
	int (*dmatrix_create)(const float *data, bst_ulong rows, bst_ulong cols, float missing,
			      DMatrixHandle *ret);
	int (*dmatrix_free)(DMatrixHandle m);
	int (*create)(const DMatrixHandle m[], bst_ulong len, BoosterHandle *ret);
	int (*set_param)(BoosterHandle b, const char *name, const char *value);
	int (*boost)(BoosterHandle b, DMatrixHandle train, float *gradient, float *hessian,
		     bst_ulong len);
	int (*rounds)(BoosterHandle b, int *ret);
	int (*features)(BoosterHandle b, bst_ulong *ret);
	int (*predict)(BoosterHandle b, DMatrixHandle m, const char *config,
		       const bst_ulong **ret_shape, bst_ulong *ret_dim, const float **ret);
	int (*save)(BoosterHandle b, const char *config, bst_ulong *ret_len, const char **ret);
	int (*load)(BoosterHandle b, const void *bytes, bst_ulong len);
	int (*free)(BoosterHandle b);
	const char *(*last_error)(void);
};

extern const struct xgb_api xgb_api_library;

#endif
