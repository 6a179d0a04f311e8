/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_LSTM_H
#define KVFS_TUNER_LSTM_H
/*
 * A small recurrent network (LSTM: Hochreiter, Schmidhuber, 1997; with a forget gate: Gers et al.,
 * 2000) that predicts the next value of a series from those before, trained online by
 * back-propagation through the last LSTM_SPAN values and Adam (Kingma, Ba, 2015). All weights are
 * one array, so that a test can check the gradient against finite differences. One thread; the same
 * seed and values give the same answers.
 */
#include "tuner/rng.h"

#define LSTM_INPUTS 2
#define LSTM_CELLS 8
#define LSTM_SPAN 32
/* For each cell 4 gates, each with weights for inputs, cells and a bias; then the output's. */
#define LSTM_GATE (LSTM_INPUTS + LSTM_CELLS + 1)
#define LSTM_WEIGHTS (4 * LSTM_CELLS * LSTM_GATE + LSTM_CELLS + 1)

struct lstm_state {
	double h[LSTM_CELLS], c[LSTM_CELLS];
};

struct lstm {
	double w[LSTM_WEIGHTS];
	double m[LSTM_WEIGHTS], v[LSTM_WEIGHTS]; /* Adam's moments */
	unsigned steps;
};

void lstm_init(struct lstm *n, uint64_t seed);

/* One value further; returns the prediction of the next target. */
double lstm_forward(const struct lstm *n, const double x[LSTM_INPUTS], struct lstm_state *state);

/* Half the mean squared error over len values (at most LSTM_SPAN) from state on, and its
 * gradient. */
double lstm_gradient(const struct lstm *n, const struct lstm_state *state,
		     const double (*x)[LSTM_INPUTS], const double *target, int len,
		     double *ret_gradient);

/* One step of Adam along the gradient, which is clipped. */
void lstm_update(struct lstm *n, const double *gradient);

#endif
