/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_MOVES_H
#define KVFS_TUNER_MOVES_H
/*
 * What single moves gained of late, without a model: a bandit with an arm for each move (a knob, up
 * or down). Upper confidence bounds (Auer, Cesa-Bianchi, Fischer, "Finite-time analysis of the
 * multiarmed bandit problem", 2002) on means that fade with time and fade faster when the load
 * shifts. Owned by one thread.
 */
#include "tuner/policy.h"

struct moves {
	double sum[TUNER_MOVES], count[TUNER_MOVES];
};

void moves_learn(struct moves *m, int move, double gain);
void moves_shifted(struct moves *m);

/* What a move gained, in the mean, drawn towards 0 while it was hardly tried; and the upper bound
 * of what it may gain. */
double moves_mean(const struct moves *m, int move);
double moves_score(const struct moves *m, int move);

#endif
