/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_XGB_MODEL_H
#define KVFS_TUNER_XGB_MODEL_H
/*
 * Values of rows of floats (NaN: missing), learnt by XGBoost from differences alone: of a pair of
 * rows it is known how much more the second is worth. So what is learnt of two steps adds up to
 * what both are worth together, and what rows of a pair have in common needs no value of its own.
 * Gradient-boosted trees by histogram on one thread, so that the same rows give the same model.
 * Created, trained, asked and destroyed by one thread, as the library wants. No call waits;
 * training 256 rows takes some milliseconds.
 */
#include "tuner/xgb_api.h"

#include <stdbool.h>
#include <stddef.h>

struct xgb_model;

/* An empty model of cols columns. -ENOMEM. */
int xgb_model_create(const struct xgb_api *api, unsigned cols, struct xgb_model **ret_model);
void xgb_model_destroy(struct xgb_model *m);

struct xgb_pairs {
	unsigned n;
	const float *x;          /* 2n rows: the first of a pair, then its second */
	const float *difference; /* n: value of the second less that of the first */
	const float *weight;     /* n: 1 / variance, in any unit */
};

/* Adds rounds of boosting on these pairs; afresh: drops what it knew first. -EIO: the library
 * failed, -ENOMEM; the model is then as before, or empty if it was not usable any more. */
int xgb_model_train(struct xgb_model *m, const struct xgb_pairs *p, unsigned rounds, bool afresh);

/* One value a row, in one call; only differences mean something. -EAGAIN: nothing learnt yet;
 * -EIO. */
int xgb_model_predict(struct xgb_model *m, const float *x, unsigned rows, float *ret_y);

/* Rounds so far; 0: nothing learnt. */
unsigned xgb_model_rounds(const struct xgb_model *m);

/* *ret_bytes is malloc'ed. -EAGAIN, -ENOMEM, -EIO. */
int xgb_model_save(struct xgb_model *m, void **ret_bytes, size_t *ret_len);
/* -EINVAL: not a model of this many columns; the old one stays. -EIO, -ENOMEM. */
int xgb_model_load(struct xgb_model *m, const void *bytes, size_t len);

/* What the library said last; a string of its own thread. */
const char *xgb_model_error(const struct xgb_model *m);

#endif
