/* SPDX-License-Identifier: Apache-2.0 */
/* The tuner's series: see tuner_metrics.h. */
#include "tuner/tuner_metrics.h"

static const char *const knob_names[TUNER_KNOBS] = {
	[TUNER_KNOB_LANES] = "lanes",
	[TUNER_KNOB_POLL_US] = "poll_us",
	[TUNER_KNOB_BATCH] = "batch",
	[TUNER_KNOB_RESERVE_BYTES] = "reserve_bytes",
};
static const char *const outcome_names[TUNER_OUTCOMES] = {
	[TUNER_HOLD] = "hold",
	[TUNER_MOVE] = "move",
	[TUNER_ROLLBACK] = "rollback",
	[TUNER_FREEZE] = "freeze",
};

static const struct metrics_def setting_def = {
	.name = "kvfs_tuner_setting",
	.help = "Settings of replication in force, whoever chose them: lanes, poll_us "
		"(microseconds), batch "
		"(records), reserve_bytes.",
	.kind = METRICS_GAUGE,
};
static const struct metrics_def active_def = {
	.name = "kvfs_tuner_active",
	.help = "1: a policy moves the settings; 0: they are static.",
	.kind = METRICS_GAUGE,
};
static const struct metrics_def reward_def = {
	.name = "kvfs_tuner_reward",
	.help = "Of the last window: log-ratio of throughput to the window before, less penalties.",
	.kind = METRICS_GAUGE,
};
static const struct metrics_def regret_def = {
	.name = "kvfs_tuner_regret",
	.help = "Reward missed so far against the candidate that was predicted best.",
	.kind = METRICS_GAUGE,
};
static const struct metrics_def decisions_def = {
	.name = "kvfs_tuner_decisions_total",
	.help = "Windows by what was decided at their end.",
	.kind = METRICS_COUNTER,
};

void tuner_metrics_init(struct tuner_metrics *t, struct metrics *m)
{
	*t = (struct tuner_metrics){
		.metrics = m,
		.active = metrics_series(m, &active_def, NULL),
		.reward = metrics_series(m, &reward_def, NULL),
		.regret = metrics_series(m, &regret_def, NULL),
	};
	for (unsigned i = 0; i < TUNER_OUTCOMES; i++)
		t->decisions[i] =
			metrics_series(m, &decisions_def, "outcome", outcome_names[i], NULL);
}

void tuner_metrics_setting(struct tuner_metrics *t, enum tuner_knob knob, uint64_t value)
{
	if (!t->setting[knob])
		t->setting[knob] =
			metrics_series(t->metrics, &setting_def, "knob", knob_names[knob], NULL);
	metric_set(t->setting[knob], value);
}

void tuner_metrics_active(struct tuner_metrics *t, bool active)
{
	metric_set(t->active, active);
}

void tuner_metrics_window(struct tuner_metrics *t, double reward, double regret,
			  enum tuner_outcome outcome)
{
	metric_set_real(t->reward, reward);
	metric_set_real(t->regret, regret);
	metric_add(t->decisions[outcome], 1);
}
