/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of the reward. Pure. */
#include "tuner/reward.h"

#include <math.h>

/* A tail twice as long is worth 1 % of throughput, the whole machine's CPU 4 %, a step of lanes
 * 0.1 %. */
#define TAIL_WEIGHT 0.01
#define CPU_WEIGHT 0.04
#define LANES_WEIGHT 0.001
#define RESERVE_WEIGHT 0.001

double tuner_reward(const struct tuner_features *f, struct tuner_settings in_force)
{
	double ops = f->v[TUNER_F_OPS_PER_S], reward;
	double tail = log2(f->v[TUNER_F_COMMIT_P90_US]);
	double cpu = f->v[TUNER_F_CPU_OWN] / f->v[TUNER_F_CPUS];

	if (!(ops > 0))
		return NAN;
	reward = log(ops);
	if (isfinite(tail))
		reward -= TAIL_WEIGHT * tail;
	if (isfinite(cpu))
		reward -= CPU_WEIGHT * cpu;
	return reward - LANES_WEIGHT * in_force.level[TUNER_KNOB_LANES] -
	       RESERVE_WEIGHT * in_force.level[TUNER_KNOB_RESERVE];
}
