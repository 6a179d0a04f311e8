/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner/forecast.h"

#include "tests/unit/unit_main.h"
#include "tuner/lstm.h"

#include <string.h>

/* The analytic gradient of each weight against a central difference. */
START_TEST(gradient_is_right)
{
	static struct lstm n;
	static double gradient[LSTM_WEIGHTS], unused[LSTM_WEIGHTS];
	double x[LSTM_SPAN][LSTM_INPUTS], target[LSTM_SPAN];
	struct lstm_state state;
	struct rng rng = { 7 };
	const double step = 1e-5;

	lstm_init(&n, 3);
	for (int i = 0; i < LSTM_SPAN; i++) {
		x[i][0] = rng_normal(&rng);
		x[i][1] = rng_normal(&rng);
		target[i] = rng_normal(&rng);
	}
	for (int i = 0; i < LSTM_CELLS; i++) {
		state.h[i] = rng_between(&rng, -0.5, 0.5);
		state.c[i] = rng_normal(&rng);
	}
	lstm_gradient(&n, &state, (const double (*)[LSTM_INPUTS])x, target, LSTM_SPAN, gradient);
	for (int i = 0; i < LSTM_WEIGHTS; i++) {
		double w = n.w[i], up, down;

		n.w[i] = w + step;
		up = lstm_gradient(&n, &state, (const double(*)[LSTM_INPUTS])x, target, LSTM_SPAN,
				   unused);
		n.w[i] = w - step;
		down = lstm_gradient(&n, &state, (const double(*)[LSTM_INPUTS])x, target, LSTM_SPAN,
				     unused);
		n.w[i] = w;
		ck_assert_double_eq_tol((up - down) / (2 * step), gradient[i], 1e-6);
	}
}
END_TEST

static double feed(struct forecast *f, unsigned i, unsigned beat)
{
	return forecast_step(f, i % beat < beat / 4 ? 400 : 40);
}

START_TEST(lstm_learns_a_beat_that_holt_cannot)
{
	double holt, lstm, ahead = 0;
	struct forecast *f;
	bool speaks;

	ck_assert_int_eq(forecast_create(1, &f), 0);
	for (unsigned i = 0; i < 12 * 250; i++)
		ahead = feed(f, i, 12);
	forecast_errors(f, &holt, &lstm, &speaks);
	ck_assert(speaks);
	ck_assert_double_lt(lstm, holt / 2);
	ck_assert_double_gt(ahead, 3); /* the window after the last is a burst's first */
	forecast_destroy(f);
}
END_TEST

START_TEST(holt_speaks_on_a_trend)
{
	double holt, lstm, ahead = 0;
	struct forecast *f;
	bool speaks;

	ck_assert_int_eq(forecast_create(1, &f), 0);
	for (unsigned i = 0; i < 60; i++)
		ahead = forecast_step(f, exp2(i / 20.0));
	forecast_errors(f, &holt, &lstm, &speaks);
	ck_assert(!speaks);
	ck_assert_double_eq_tol(ahead, exp2(1 / 20.0), 0.01);
	forecast_destroy(f);
}
END_TEST

/* What the LSTM had learnt is over, and Holt is exact: however long it has learnt. */
START_TEST(lstm_falls_silent)
{
	double holt, lstm, v = 5;
	struct forecast *f;
	bool speaks;

	ck_assert_int_eq(forecast_create(1, &f), 0);
	for (unsigned i = 0; i < 12 * 250; i++)
		(void)feed(f, i, 12);
	forecast_errors(f, &holt, &lstm, &speaks);
	ck_assert(speaks);
	for (unsigned i = 0; i < 400; i++)
		(void)forecast_step(f, exp2(v += 0.02));
	forecast_errors(f, &holt, &lstm, &speaks);
	ck_assert_double_gt(lstm, holt);
	ck_assert(!speaks);
	forecast_destroy(f);
}
END_TEST

START_TEST(same_seed_same_forecast)
{
	struct forecast *f, *g;

	ck_assert_int_eq(forecast_create(5, &f), 0);
	ck_assert_int_eq(forecast_create(5, &g), 0);
	for (unsigned i = 0; i < 400; i++)
		ck_assert_double_eq(feed(f, i, 9), feed(g, i, 9));
	forecast_destroy(f);
	forecast_destroy(g);
}
END_TEST

START_TEST(nonsense_is_skipped)
{
	struct forecast *f;

	ck_assert_int_eq(forecast_create(5, &f), 0);
	ck_assert_double_eq(forecast_step(f, NAN), 1);
	ck_assert_double_eq(forecast_step(f, -1), 1);
	ck_assert_double_eq(forecast_step(f, INFINITY), 1);
	for (unsigned i = 0; i < 200; i++)
		ck_assert(isfinite(forecast_step(f, i % 2 ? 1e-300 : 1e300)));
	forecast_destroy(f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tuner forecast");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, gradient_is_right);
	tcase_add_test(t, lstm_learns_a_beat_that_holt_cannot);
	tcase_add_test(t, holt_speaks_on_a_trend);
	tcase_add_test(t, lstm_falls_silent);
	tcase_add_test(t, same_seed_same_forecast);
	tcase_add_test(t, nonsense_is_skipped);
	suite_add_tcase(s, t);
	return unit_run(s);
}
