/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_XGB_MODEL_H
#define KVFS_TUNER_XGB_MODEL_H
/*
 * A regression model by XGBoost: rows of floats (NaN: missing) to one value each. Gradient-boosted
 * trees by histogram on one thread, so that the same rows give the same model. Created, trained,
 * asked and destroyed by one thread, as the library wants. No call waits; training 256 rows takes
 * some milliseconds.
 */
#include "tuner/xgb_api.h"

#include <stdbool.h>
#include <stddef.h>

struct xgb_model;

/* An empty model of cols columns. -ENOMEM. */
int xgb_model_create(const struct xgb_api *api, unsigned cols, struct xgb_model **ret_model);
void xgb_model_destroy(struct xgb_model *m);

/* Adds rounds of boosting on these rows; afresh: drops what it knew first. -EIO: the library
 * failed; the model is then as before, or empty if it was not usable any more. */
int xgb_model_train(struct xgb_model *m, const float *x, const float *y, unsigned rows,
		    unsigned rounds, bool afresh);

/* One prediction a row, in one call. -EAGAIN: nothing learnt yet. -EIO. */
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
