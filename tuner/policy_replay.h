/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_POLICY_REPLAY_H
#define KVFS_TUNER_POLICY_REPLAY_H
/*
 * The policy of tests and of traces whose model is gone: proposes what a trace says was proposed in
 * each window, so that what the tuner made of it (trials, rollbacks, bans) can be looked at again.
 */
#include "tuner/policy.h"
#include "tuner/trace.h"

/* Copies the n records, in the order of their windows. -ENOMEM. */
int policy_replay_create(const struct tuner_recorded *recorded, unsigned n,
			 struct tuner_policy **ret_policy);

/* Its other members; create is NULL and to be filled in by whoever has the records. */
extern const struct tuner_policy_ops tuner_policy_replay;

#endif
