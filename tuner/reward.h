/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_REWARD_H
#define KVFS_TUNER_REWARD_H
/*
 * The reward of a window: the logarithm of its throughput, less a little for a long tail, CPU and
 * lanes, so that of two settings that are equally fast the cheaper one wins. Only differences
 * between windows next to each other mean anything: a log-ratio. Pure.
 */
#include "tuner/settings.h"
#include "tuner/window_features.h"

/* NaN when the window had no throughput. */
double tuner_reward(const struct tuner_features *f, struct tuner_settings in_force);

#endif
