/* SPDX-License-Identifier: Apache-2.0 */
/* XGBoost behind xgb_model.h. A booster exists from the first training or loading on. One
 * thread. */
#include "tuner/xgb_model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct xgb_api xgb_api_library = {
	.dmatrix_create = XGDMatrixCreateFromMat,
	.dmatrix_free = XGDMatrixFree,
	.create = XGBoosterCreate,
	.set_param = XGBoosterSetParam,
	.boost = XGBoosterBoostOneIter,
	.rounds = XGBoosterBoostedRounds,
	.features = XGBoosterGetNumFeature,
	.predict = XGBoosterPredictFromDMatrix,
	.save = XGBoosterSaveModelToBuffer,
	.load = XGBoosterLoadModelFromBuffer,
	.free = XGBoosterFree,
	.last_error = XGBGetLastError,
};

struct xgb_model {
	const struct xgb_api *api;
	unsigned cols;
	BoosterHandle booster; /* NULL: nothing learnt */
	unsigned rounds;
};

int xgb_model_create(const struct xgb_api *api, unsigned cols, struct xgb_model **ret_model)
{
	struct xgb_model *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->api = api;
	m->cols = cols;
	*ret_model = m;
	return 0;
}

static void forget(struct xgb_model *m)
{
	if (m->booster)
		m->api->free(m->booster);
	m->booster = NULL;
	m->rounds = 0;
}

void xgb_model_destroy(struct xgb_model *m)
{
	if (!m)
		return;
	forget(m);
	free(m);
}

static int set_params(const struct xgb_model *m, BoosterHandle b)
{
	static const struct { const char *name, *value;
	} params[] = {
		{ "verbosity", "0" },
		{ "nthread", "1" },
		{ "tree_method", "hist" },
		{ "seed", "1" },
		{ "objective", "reg:squarederror" },
		{ "base_score", "0" },
		{ "max_depth", "4" },
		{ "eta", "0.2" },
		{ "min_child_weight", "0.4" },
		{ "lambda", "0.5" },
		{ "max_bin", "64" },
	};

	for (size_t i = 0; i < sizeof(params) / sizeof(params[0]); i++)
		if (m->api->set_param(b, params[i].name, params[i].value))
			return -EIO;
	return 0;
}

/* A booster needs a matrix from the start: without one it can't be trained later. */
static int new_booster(const struct xgb_model *m, DMatrixHandle matrix, BoosterHandle *ret_booster)
{
	BoosterHandle b;

	if (m->api->create(&matrix, 1, &b))
		return -EIO;
	if (set_params(m, b)) {
		m->api->free(b);
		return -EIO;
	}
	*ret_booster = b;
	return 0;
}

static int ask(const struct xgb_model *m, BoosterHandle b, DMatrixHandle matrix, bool training,
	       unsigned rows, const float **ret_y)
{
	static const char *const config[] = {
		"{\"type\": 1, \"training\": false, \"iteration_begin\": 0, "
		"\"iteration_end\": 0, \"strict_shape\": false}",
		"{\"type\": 1, \"training\": true, \"iteration_begin\": 0, "
		"\"iteration_end\": 0, \"strict_shape\": false}",
	};
	const bst_ulong *shape;
	bst_ulong dim;

	if (m->api->predict(b, matrix, config[training], &shape, &dim, ret_y) || dim < 1 ||
	    shape[0] != rows)
		return -EIO;
	return 0;
}

/* Newton steps on the squared error of differences. The two rows of a pair move at once, hence
 * twice the weight in the second derivative. */
static int boost(const struct xgb_model *m, BoosterHandle b, DMatrixHandle matrix,
		 const struct xgb_pairs *p, unsigned rounds)
{
	float *gradient = malloc(4 * (size_t)p->n * sizeof(*gradient));
	float *hessian = gradient + 2 * (size_t)p->n;
	int err = gradient ? 0 : -ENOMEM;

	for (unsigned r = 0; r < rounds && !err; r++) {
		const float *y;

		err = ask(m, b, matrix, true, 2 * p->n, &y);
		for (unsigned i = 0; i < p->n && !err; i++) {
			float off = y[2 * i + 1] - y[2 * i] - p->difference[i];

			gradient[2 * i] = -p->weight[i] * off;
			gradient[2 * i + 1] = p->weight[i] * off;
			hessian[2 * i] = hessian[2 * i + 1] = 2 * p->weight[i];
		}
		if (!err && m->api->boost(b, matrix, gradient, hessian, 2 * (bst_ulong)p->n))
			err = -EIO;
	}
	free(gradient);
	return err;
}

int xgb_model_train(struct xgb_model *m, const struct xgb_pairs *p, unsigned rounds, bool afresh)
{
	BoosterHandle b = NULL;
	DMatrixHandle matrix;
	int err;

	if (m->api->dmatrix_create(p->x, 2 * (bst_ulong)p->n, m->cols, NAN, &matrix))
		return -EIO;
	if (!m->booster || afresh) {
		err = new_booster(m, matrix, &b);
		if (err)
			goto out;
		err = boost(m, b, matrix, p, rounds);
		if (err) {
			m->api->free(b);
			goto out;
		}
		forget(m);
		m->booster = b;
	} else {
		err = boost(m, m->booster, matrix, p, rounds);
		if (err) { /* some of the rounds may be in it */
			forget(m);
			goto out;
		}
	}
	m->rounds += rounds;
out:
	m->api->dmatrix_free(matrix);
	return err;
}

int xgb_model_predict(struct xgb_model *m, const float *x, unsigned rows, float *ret_y)
{
	DMatrixHandle matrix;
	const float *y;
	int err;

	if (!m->booster)
		return -EAGAIN;
	if (m->api->dmatrix_create(x, rows, m->cols, NAN, &matrix))
		return -EIO;
	err = ask(m, m->booster, matrix, false, rows, &y);
	if (!err)
		memcpy(ret_y, y, rows * sizeof(*y));
	m->api->dmatrix_free(matrix);
	return err;
}

unsigned xgb_model_rounds(const struct xgb_model *m)
{
	return m->rounds;
}

int xgb_model_save(struct xgb_model *m, void **ret_bytes, size_t *ret_len)
{
	const char *bytes;
	bst_ulong len;
	void *copy;

	if (!m->booster)
		return -EAGAIN;
	if (m->api->save(m->booster, "{\"format\": \"ubj\"}", &len, &bytes))
		return -EIO;
	copy = malloc(len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, bytes, len);
	*ret_bytes = copy;
	*ret_len = len;
	return 0;
}

int xgb_model_load(struct xgb_model *m, const void *bytes, size_t len)
{
	float *row = calloc(m->cols, sizeof(*row));
	DMatrixHandle matrix;
	BoosterHandle b;
	bst_ulong cols;
	int rounds = 0, err;

	if (!row)
		return -ENOMEM;
	err = m->api->dmatrix_create(row, 1, m->cols, NAN, &matrix) ? -EIO : 0;
	free(row);
	if (err)
		return err;
	err = new_booster(m, matrix, &b);
	if (err)
		goto out;
	/* Only what save writes: the library takes other bytes for its old binary format and
	 * believes lengths. */
	if (len < 2 || memcmp(bytes, "{L", 2) != 0 || m->api->load(b, bytes, len) ||
	    m->api->features(b, &cols) || cols != m->cols || m->api->rounds(b, &rounds) ||
	    rounds <= 0 || set_params(m, b)) {
		m->api->free(b);
		err = -EINVAL;
		goto out;
	}
	forget(m);
	m->booster = b;
	m->rounds = (unsigned)rounds;
out:
	m->api->dmatrix_free(matrix);
	return err;
}

const char *xgb_model_error(const struct xgb_model *m)
{
	return m->api->last_error();
}
