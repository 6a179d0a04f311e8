/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_TUNER_H
#define KVFS_TUNER_TUNER_H
/*
 * The decision: windows in, settings out. No clock, no thread, no I/O; what it decides follows from
 * its configuration, its seed and the windows alone, so a recorded trace repeats it (trace.h). The
 * loop (loop.h) calls it once a window; a simulator or a replay may as well.
 * Each load (context.h) begins at the static settings, or, when it was met before, at the best that
 * was measured then. From there one knob moves one step at a time: the policy names the step, some
 * windows before and after say what it gained, and it is kept only when that is more than noise and
 * a margin. Otherwise, and at once when a window is much worse, the step is taken back and banned
 * for a while. Returning to settings that were measured, and to the static ones, may move several
 * knobs. Nothing moves while frozen.
 */
#include "tuner/policy.h"
#include "tuner/settings.h"
#include "tuner/window_features.h"

enum tuner_window_flag {
	TUNER_WINDOW_RESYNC = 1,   /* a mirror is being filled */
	TUNER_WINDOW_FAILOVER = 2, /* roles are changing, the in-sync set did, or it is empty */
	TUNER_WINDOW_FROZEN = 4,   /* an operator said so */
};

struct tuner_window {
	uint64_t index;
	uint32_t flags;
	struct tuner_bounds bounds;
	struct tuner_settings
		in_force; /* in this window: what really applied, not what was asked for */
	struct tuner_features features;
};

enum tuner_action {
	TUNER_STAY,      /* measuring, or nothing is worth a trial */
	TUNER_TRY,       /* a step, on trial */
	TUNER_WAIT,      /* the trial goes on */
	TUNER_KEEP,      /* the trial gained */
	TUNER_ROLLBACK,  /* it did not */
	TUNER_RECALL,    /* a load met before: the best measured then */
	TUNER_FALL_BACK, /* another load, or worse than expected: the static settings */
	TUNER_AUDIT,     /* a look at the static settings, to compare */
	TUNER_GROW,      /* a burst is forecast: lanes and reserve in advance */
	TUNER_FREEZE,    /* nothing moves */
	TUNER_ACTIONS
};
const char *tuner_action_name(enum tuner_action a);

/* All that --explain shows of a window. */
struct tuner_decision {
	uint64_t window;
	enum tuner_action action;
	const char *why; /* a static string */
	struct tuner_settings before, after;
	double reward;          /* of the window; NaN: none */
	double expected;        /* mean reward at the settings kept so far */
	double gain;            /* of the trial so far */
	/* Reward given away: what the load's best known settings (the kept ones, the static ones)
	 * are worth in the mean, less what this window was; 0 under those, and while nothing is
	 * known. */
	double regret;
	struct tuner_features features;
	struct tuner_query query;       /* n is 0 when no policy was asked */
	struct tuner_features look;     /* query.features: the load as the policy saw it */
	struct tuner_proposal proposal;
};

struct tuner_config {
	const struct tuner_policy_ops *policy;
	uint64_t seed;
	struct tuner_settings shipped; /* the static settings */
	double min_ops_per_s;          /* below it the load is too low to judge by */
	bool forecast;                 /* grow before a burst */
};
void tuner_config_init(struct tuner_config *ret_config);

struct tuner;

/* -ENOMEM, or what the policy's create said. */
int tuner_create(const struct tuner_config *config, struct tuner **ret_tuner);
void tuner_destroy(struct tuner *t);

/* The settings for the window after w. ret_decision is filled in whole. */
struct tuner_settings tuner_step(struct tuner *t, const struct tuner_window *w,
				 struct tuner_decision *ret_decision);

/* The model: bytes to keep, or from a kept file (model_file.h). 0, -ENOTSUP (this policy keeps
 * none), -EINVAL (not its own; it goes on without), -ENOMEM. */
int tuner_model_save(struct tuner *t, void **ret_bytes, size_t *ret_len);
int tuner_model_load(struct tuner *t, const void *bytes, size_t len);

/* Why the policy gave up, or NULL. */
const char *tuner_failure(const struct tuner *t);

#endif
