/* SPDX-License-Identifier: Apache-2.0 */
/* Arms of the bandit over single moves. Pure but for the struct it is given. */
#include "tuner/moves.h"

#include <math.h>

#define FADE 0.97       /* a trial */
#define FADE_SHIFT 0.3  /* a shift of the load */
#define SPREAD 0.05     /* about how far gains of one move differ */

void moves_learn(struct moves *m, int move, double gain)
{
	for (int i = 0; i < TUNER_MOVES; i++) {
		m->sum[i] *= FADE;
		m->count[i] *= FADE;
	}
	m->sum[move] += gain;
	m->count[move] += 1;
}

void moves_shifted(struct moves *m)
{
	for (int i = 0; i < TUNER_MOVES; i++) {
		m->sum[i] *= FADE_SHIFT;
		m->count[i] *= FADE_SHIFT;
	}
}

double moves_mean(const struct moves *m, int move)
{
	return m->sum[move] / (m->count[move] + 0.3);
}

double moves_score(const struct moves *m, int move)
{
	double total = 1;

	for (int i = 0; i < TUNER_MOVES; i++)
		total += m->count[i];
	return moves_mean(m, move) +
	       SPREAD * sqrt(2 * log(total + 1) / (m->count[move] + 0.3));
}
