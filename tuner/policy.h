/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_POLICY_H
#define KVFS_TUNER_POLICY_H
/*
 * The policy seam: which of the allowed next settings is worth a trial. The tuner (tuner.h) does
 * the rest for every policy alike: it measures before and after, keeps or rolls back, bans, freezes
 * and falls back, so a policy, even a broken one, can propose nothing worse than one step for one
 * window.
 * A policy is owned by one thread from create to destroy, blocks on nothing, and is a function of
 * its seed and of what it was given: the same calls give the same answers.
 */
#include "tuner/settings.h"
#include "tuner/window_features.h"

#include <stddef.h>

/* What a trial taught: reward in the windows at `to` less reward in the windows at `from` next
 * to them. */
struct tuner_sample {
	struct tuner_features features; /* of the load; see tuner_query */
	struct tuner_settings from, to;
	float gain, error; /* error: standard deviation of gain's */
};

/* To stay, one step, two steps, what was best in loads like this one, the static settings. */
#define TUNER_REMEMBERED 3
#define TUNER_CANDIDATES (1 + TUNER_MOVES + TUNER_MOVES * TUNER_MOVES / 2 + TUNER_REMEMBERED + 1)

struct tuner_query {
	uint64_t window;
	/* What the load is like at the static settings: means of its windows; NaN where settings
	 * matter and it was never seen there. */
	const struct tuner_features *features;
	struct tuner_settings now;
	int n; /* candidates: legal, within the bounds, not banned; [0] is to stay */
	struct tuner_settings candidate[TUNER_CANDIDATES];
};

struct tuner_proposal {
	int choice;    /* index of a candidate; 0 stays */
	bool explored; /* the tuner's: another, or to stay, was predicted to be better */
	float score[TUNER_CANDIDATES]; /* of each candidate; NaN where there is no opinion */
	/* Gain expected of each, and how far off that may be, where the policy says so; else as it
	 * was: NaN. */
	float predicted[TUNER_CANDIDATES], error[TUNER_CANDIDATES];
	float prior, prior_error;     /* gain expected of the choice, and how far off that may be */
};

/* What gains of a step are like when nothing is known of it: 0, give or take this. */
#define TUNER_PRIOR_ERROR 0.06f

struct tuner_policy; /* each implementation has its own */

struct tuner_policy_ops {
	const char *name;
	bool adapts; /* false: the tuner stays with the shipped settings and measures only */

	/* -ENOMEM, or what the model's library said. */
	int (*create)(uint64_t seed, struct tuner_policy **ret_policy);
	void (*propose)(struct tuner_policy *p, const struct tuner_query *q,
			struct tuner_proposal *ret_proposal);
	void (*learn)(struct tuner_policy *p, const struct tuner_sample *sample);
	/* The load is another one: what was learnt of single moves may no longer hold. */
	void (*shifted)(struct tuner_policy *p);

	/* NULL: nothing to keep. save gives malloc'ed bytes; load takes them: -EINVAL,
	 * unchanged, if they are not its own. */
	int (*save)(struct tuner_policy *p, void **ret_bytes, size_t *ret_len);
	int (*load)(struct tuner_policy *p, const void *bytes, size_t len);

	/* NULL: never fails. Else 0, or -errno once it gave up: the tuner stays with static
	 * settings. */
	int (*failed)(struct tuner_policy *p, const char **ret_why);
	void (*destroy)(struct tuner_policy *p); /* NULL is fine */
};

extern const struct tuner_policy_ops tuner_policy_static;
extern const struct tuner_policy_ops tuner_policy_bandit;
extern const struct tuner_policy_ops tuner_policy_xgboost;
extern const struct tuner_policy_ops tuner_policy_qlearning;

/* "static", "bandit", "xgboost", "qlearning"; NULL: no such policy. */
const struct tuner_policy_ops *tuner_policy_by_name(const char *name);

#endif
