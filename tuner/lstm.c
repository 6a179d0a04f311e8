/* SPDX-License-Identifier: Apache-2.0 */
/* Forward and backward pass of the LSTM, and its optimiser. Pure but for the struct it is given. */
#include "tuner/lstm.h"

#include <assert.h>
#include <string.h>

#define RATE 0.004
#define CLIP 1.0

enum gate { GATE_IN, GATE_FORGET, GATE_OUT, GATE_NEW, GATES };

/* What the backward pass needs of a forward step. */
struct step {
	double gate[GATES][LSTM_CELLS];
	double c[LSTM_CELLS], tanh_c[LSTM_CELLS], h[LSTM_CELLS];
	double y;
};

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static int gate_weights(int gate, int cell)
{
	return (gate * LSTM_CELLS + cell) * LSTM_GATE;
}

#define OUTPUT_WEIGHTS (4 * LSTM_CELLS * LSTM_GATE)

void lstm_init(struct lstm *n, uint64_t seed)
{
	struct rng rng = { seed };

	memset(n, 0, sizeof(*n));
	for (int i = 0; i < LSTM_WEIGHTS; i++)
		n->w[i] = 0.3 * rng_normal(&rng);
	for (int i = 0; i < LSTM_CELLS; i++) /* remember at first */
		n->w[gate_weights(GATE_FORGET, i) + LSTM_GATE - 1] = 1;
}

static void forward(const struct lstm *n, const double *x, const struct lstm_state *before,
		    struct step *s)
{
	const double *out = &n->w[OUTPUT_WEIGHTS];

	for (int g = 0; g < GATES; g++) {
		for (int i = 0; i < LSTM_CELLS; i++) {
			const double *w = &n->w[gate_weights(g, i)];
			double a = w[LSTM_GATE - 1];

			for (int j = 0; j < LSTM_INPUTS; j++)
				a += w[j] * x[j];
			for (int j = 0; j < LSTM_CELLS; j++)
				a += w[LSTM_INPUTS + j] * before->h[j];
			s->gate[g][i] = g == GATE_NEW ? tanh(a) : sigmoid(a);
		}
	}
	s->y = out[LSTM_CELLS];
	for (int i = 0; i < LSTM_CELLS; i++) {
		s->c[i] = s->gate[GATE_FORGET][i] * before->c[i] +
			  s->gate[GATE_IN][i] * s->gate[GATE_NEW][i];
		s->tanh_c[i] = tanh(s->c[i]);
		s->h[i] = s->gate[GATE_OUT][i] * s->tanh_c[i];
		s->y += out[i] * s->h[i];
	}
}

double lstm_forward(const struct lstm *n, const double x[LSTM_INPUTS], struct lstm_state *state)
{
	struct step s;

	forward(n, x, state, &s);
	memcpy(state->h, s.h, sizeof(s.h));
	memcpy(state->c, s.c, sizeof(s.c));
	return s.y;
}

/* One step back: dh and dc are the gradients that come from later steps, and become those for
 * earlier ones. */
static void backward(const struct lstm *n, const double *x, const struct lstm_state *before,
		     const struct step *s, double dy, double *dh, double *dc, double *gradient)
{
	const double *out = &n->w[OUTPUT_WEIGHTS];
	double earlier[LSTM_CELLS] = { 0 };

	gradient[OUTPUT_WEIGHTS + LSTM_CELLS] += dy;
	for (int i = 0; i < LSTM_CELLS; i++) {
		double in = s->gate[GATE_IN][i], forget = s->gate[GATE_FORGET][i];
		double o = s->gate[GATE_OUT][i], fresh = s->gate[GATE_NEW][i];
		double h = dh[i] + dy * out[i];
		double c = dc[i] + h * o * (1 - s->tanh_c[i] * s->tanh_c[i]);
		double a[GATES] = {
			[GATE_IN] = c * fresh * in * (1 - in),
			[GATE_FORGET] = c * before->c[i] * forget * (1 - forget),
			[GATE_OUT] = h * s->tanh_c[i] * o * (1 - o),
			[GATE_NEW] = c * in * (1 - fresh * fresh),
		};

		gradient[OUTPUT_WEIGHTS + i] += dy * s->h[i];
		for (int g = 0; g < GATES; g++) {
			int at = gate_weights(g, i);

			for (int j = 0; j < LSTM_INPUTS; j++)
				gradient[at + j] += a[g] * x[j];
			for (int j = 0; j < LSTM_CELLS; j++) {
				gradient[at + LSTM_INPUTS + j] += a[g] * before->h[j];
				earlier[j] += a[g] * n->w[at + LSTM_INPUTS + j];
			}
			gradient[at + LSTM_GATE - 1] += a[g];
		}
		dc[i] = c * forget;
	}
	memcpy(dh, earlier, sizeof(earlier));
}

double lstm_gradient(const struct lstm *n, const struct lstm_state *state,
		     const double (*x)[LSTM_INPUTS], const double *target, int len,
		     double *ret_gradient)
{
	struct lstm_state before[LSTM_SPAN + 1];
	struct step s[LSTM_SPAN];
	double dh[LSTM_CELLS] = { 0 }, dc[LSTM_CELLS] = { 0 }, loss = 0;

	assert(len > 0 && len <= LSTM_SPAN);
	memset(ret_gradient, 0, LSTM_WEIGHTS * sizeof(*ret_gradient));
	before[0] = *state;
	for (int t = 0; t < len; t++) {
		forward(n, x[t], &before[t], &s[t]);
		memcpy(before[t + 1].h, s[t].h, sizeof(s[t].h));
		memcpy(before[t + 1].c, s[t].c, sizeof(s[t].c));
		loss += (s[t].y - target[t]) * (s[t].y - target[t]) / 2 / len;
	}
	for (int t = len - 1; t >= 0; t--)
		backward(n, x[t], &before[t], &s[t], (s[t].y - target[t]) / len, dh, dc,
			 ret_gradient);
	return loss;
}

void lstm_update(struct lstm *n, const double *gradient)
{
	double norm = 0, scale;

	for (int i = 0; i < LSTM_WEIGHTS; i++)
		norm += gradient[i] * gradient[i];
	norm = sqrt(norm);
	if (!isfinite(norm))
		return;
	scale = norm > CLIP ? CLIP / norm : 1;
	n->steps++;
	for (int i = 0; i < LSTM_WEIGHTS; i++) {
		double g = gradient[i] * scale;

		n->m[i] = 0.9 * n->m[i] + 0.1 * g;
		n->v[i] = 0.999 * n->v[i] + 0.001 * g * g;
		n->w[i] -= RATE * (n->m[i] / (1 - pow(0.9, n->steps))) /
			   (sqrt(n->v[i] / (1 - pow(0.999, n->steps))) + 1e-8);
	}
}
