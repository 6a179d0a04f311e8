/* SPDX-License-Identifier: Apache-2.0 */
/* Holt's method and the LSTM side by side, on log2 of the load. One thread. */
#include "tuner/forecast.h"

#include "tuner/lstm.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEVEL 0.5       /* Holt's alpha */
#define TREND 0.2       /* Holt's beta */
#define FADE 0.03       /* of the rolling errors: about the last 33 windows */
#define SPEAK_AFTER 100 /* windows of learning before the LSTM may */
#define BETTER 0.95     /* by this much */
#define MOST 5.0        /* doublings that a forecast may promise */

struct forecast {
	unsigned n;            /* values seen */
	double last;
	double level, trend;
	double holt, lstm;     /* forecasts for the coming window */
	double holt_error, lstm_error;
	double mean, spread;   /* of the series, for scaling the LSTM's input */
	struct lstm net;
	struct lstm_state before; /* where the span begins */
	double x[LSTM_SPAN][LSTM_INPUTS], target[LSTM_SPAN];
	int len;               /* of the span */
};

int forecast_create(uint64_t seed, struct forecast **ret_forecast)
{
	struct forecast *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	lstm_init(&f->net, seed ^ 0x6c73746d);
	*ret_forecast = f;
	return 0;
}

void forecast_destroy(struct forecast *f)
{
	free(f);
}

static double clamp(double v, double most)
{
	return v > most ? most : v < -most ? -most : v;
}

/* The span moves on by one; its first value goes into the state it begins with. */
static void slide(struct forecast *f)
{
	if (f->len < LSTM_SPAN)
		return;
	lstm_forward(&f->net, f->x[0], &f->before);
	memmove(f->x, f->x + 1, sizeof(f->x) - sizeof(f->x[0]));
	memmove(f->target, f->target + 1, sizeof(f->target) - sizeof(f->target[0]));
	f->len--;
}

static void step_lstm(struct forecast *f, double v)
{
	double gradient[LSTM_WEIGHTS], y = 0;
	struct lstm_state s;

	if (f->len > 0) { /* what came after the span's last value is known now */
		f->target[f->len - 1] = clamp((v - f->last) / f->spread, 8);
		lstm_gradient(&f->net, &f->before, f->x, f->target, f->len, gradient);
		lstm_update(&f->net, gradient);
	}
	slide(f);
	f->x[f->len][0] = clamp((v - f->mean) / f->spread, 8);
	f->x[f->len][1] = f->n > 1 ? clamp((v - f->last) / f->spread, 8) : 0;
	f->len++;
	s = f->before;
	for (int i = 0; i < f->len; i++)
		y = lstm_forward(&f->net, f->x[i], &s);
	f->lstm = v + clamp(y * f->spread, MOST);
}

static void step_holt(struct forecast *f, double v)
{
	double level = f->n > 1 ? LEVEL * v + (1 - LEVEL) * (f->level + f->trend) : v;

	f->trend = f->n > 1 ? TREND * (level - f->level) + (1 - TREND) * f->trend : 0;
	f->level = level;
	f->holt = level + f->trend;
}

static bool lstm_speaks(const struct forecast *f)
{
	return f->n > SPEAK_AFTER && f->lstm_error < BETTER * f->holt_error;
}

double forecast_step(struct forecast *f, double load)
{
	double v, next;

	if (!(load > 0) || isinf(load))
		return 1;
	v = log2(load);
	f->n++;
	if (f->n == 1) {
		f->mean = v;
		f->spread = 1;
	} else {
		f->holt_error += FADE * (fabs(f->holt - v) - f->holt_error);
		f->lstm_error += FADE * (fabs(f->lstm - v) - f->lstm_error);
		f->mean += 0.01 * (v - f->mean);
		f->spread = fmax(0.1, f->spread + 0.01 * (fabs(v - f->mean) - f->spread));
	}
	step_lstm(f, v);
	step_holt(f, v);
	f->last = v;
	if (f->n < 4)
		return 1;
	next = lstm_speaks(f) ? f->lstm : f->holt;
	return exp2(clamp(next - v, MOST));
}

void forecast_errors(const struct forecast *f, double *ret_holt, double *ret_lstm,
		     bool *ret_lstm_speaks)
{
	*ret_holt = f->holt_error;
	*ret_lstm = f->lstm_error;
	*ret_lstm_speaks = lstm_speaks(f);
}
