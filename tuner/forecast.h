/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_FORECAST_H
#define KVFS_TUNER_FORECAST_H
/*
 * The load of the next window over that of this one. Holt's method (level and trend, exponentially
 * smoothed) first; a small LSTM learns beside it and speaks only while its rolling error is the
 * smaller one. One thread.
 */
#include <stdbool.h>
#include <stdint.h>

struct forecast;

/* -ENOMEM. The seed sets the LSTM's first weights. */
int forecast_create(uint64_t seed, struct forecast **ret_forecast);
void forecast_destroy(struct forecast *f);

/* Takes a window's load, learns from it, returns the forecast of the next over this one. A load
 * that isn't a positive number is skipped; 1 as long as nothing can be said. */
double forecast_step(struct forecast *f, double load);

/* Rolling mean errors, in log2 of the load, and who speaks. */
void forecast_errors(const struct forecast *f, double *ret_holt, double *ret_lstm,
		     bool *ret_lstm_speaks);

#endif
