/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_TUNER_INTERNAL_H
#define KVFS_TUNER_TUNER_INTERNAL_H
/* The tuner's state, shared by tuner.c (which load, which mode), tuner_trial.c (steps and their
 * outcome) and tuner_doubt.c (whether what was learnt still holds). */
#include "tuner/context.h"
#include "tuner/forecast.h"
#include "tuner/tuner.h"

/*
 *   HOLD ── step ──> TRIAL ── gained or not ──> HOLD
 *    │ ── audit ──> AUDIT ──────────────────────┘
 *    │ ── reward fell ──> DOUBT (at the static settings) ──> HOLD
 *    └─── burst forecast ──> GROWN ──> HOLD
 * Another load, or a freeze, leads from each to HOLD.
 */
enum tuner_mode { MODE_HOLD, MODE_TRIAL, MODE_AUDIT, MODE_DOUBT, MODE_GROWN };

struct tuner {
	struct tuner_config config;
	struct tuner_policy *policy;
	struct contexts contexts;
	struct context *ctx;          /* the present load; NULL: none seen yet */
	enum tuner_mode mode;
	struct tuner_settings wanted; /* what the last step asked for */
	bool asked;                   /* wanted is set */

	struct tuner_settings to;     /* TRIAL and AUDIT: under trial */
	struct mean trial;
	double prior, prior_error;    /* what the policy expects of it */

	struct key_mean trial_key;
	struct key_noise key_noise;
	double noise;                 /* standard deviation of a window's reward */
	double last_reward;
	struct tuner_settings last_in_force;
	bool last_known;              /* the window before this one may be compared with it */

	uint64_t shifts;              /* bit i: the load shifted i windows ago */
	uint64_t unstable_until;      /* window */
	uint64_t grow_after;          /* window */
	unsigned odd;                 /* windows in a row far from what was expected */
	unsigned doubts;              /* false alarms of late */
	unsigned calm;                /* windows as expected since the last alarm, or the load's */
	double doubted;               /* DOUBT: reward of the window that gave the alarm */
	double budget;                /* windows that may still be spent on trials */
	struct forecast *forecast;
	double load;                  /* records under way as it is told; NaN: unknown */
	const char *failure;
};

/* How far a window's reward may lie from the mean before it is more than noise. */
double tuner_odd_limit(const struct tuner *t);

/* In HOLD: begins an audit or a trial when one is due. Fills in d's action and what goes with
 * it. */
void tuner_trial_next(struct tuner *t, const struct tuner_window *w, struct tuner_decision *d);
/* One more window of a TRIAL or AUDIT. */
void tuner_trial_observe(struct tuner *t, const struct tuner_window *w,
			 const struct context_key *key, struct tuner_decision *d);

/* Fills in q's candidates: what may be tried from q->now. */
void tuner_reach(const struct tuner *t, const struct tuner_window *w, struct tuner_query *q);

/* DOUBT: a window at the static settings after one that was much worse than expected. */
void tuner_doubt_settle(struct tuner *t, const struct tuner_window *w, struct tuner_decision *d);
/* HOLD: a window that was as expected. */
void tuner_doubt_calm(struct tuner *t);

/* What a window of the present load gives away; see struct tuner_decision. */
double tuner_regret(const struct tuner *t, const struct tuner_window *w, double reward);

#define TUNER_REWARD_MOST 24   /* windows in a mean */
#define TUNER_BUDGET_MOST 60.0 /* windows of trials a load may take at once */

/* Windows between comparisons with the static settings; the next one when the settings come from
 * another load, or the load moved. */
#define TUNER_AUDIT_EVERY 200
#define TUNER_AUDIT_SOON 8
#define TUNER_AUDIT_NOW 0 /* of audit_at: with the one window that is there to compare with */

#define TUNER_BASE_KEYS 8 /* windows in the mean key that a trial is compared with */

/* Goes to settings s from the next window on. */
void tuner_move(struct tuner *t, struct tuner_decision *d, struct tuner_settings s,
		enum tuner_mode mode, enum tuner_action action, const char *why);

#endif
