/* SPDX-License-Identifier: Apache-2.0 */
/* The tuner's series: see tuner_metrics.h. */
#include "tuner/tuner_metrics.h"

#include <math.h>

static const char *const knob_names[TUNER_METRICS_KNOBS] = {
	[TUNER_METRICS_LANES] = "lanes",
	[TUNER_METRICS_POLL_US] = "poll_us",
	[TUNER_METRICS_BATCH] = "batch",
	[TUNER_METRICS_RESERVE_BYTES] = "reserve_bytes",
};
static const char *const outcome_names[TUNER_METRICS_OUTCOMES] = {
	[TUNER_METRICS_HOLD] = "hold",
	[TUNER_METRICS_MOVE] = "move",
	[TUNER_METRICS_ROLLBACK] = "rollback",
	[TUNER_METRICS_FREEZE] = "freeze",
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
	.help = "Of the last window with load: logarithm of records a second, less penalties for "
		"tail latency, CPU, lanes and memory.",
	.kind = METRICS_GAUGE,
};
static const struct metrics_def regret_def = {
	.name = "kvfs_tuner_regret",
	.help = "Reward given away so far: what the best settings known of each load are "
		"worth less what there was, in trials and while something else was kept.",
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
	for (unsigned i = 0; i < TUNER_METRICS_OUTCOMES; i++)
		t->decisions[i] =
			metrics_series(m, &decisions_def, "outcome", outcome_names[i], NULL);
}

void tuner_metrics_setting(struct tuner_metrics *t, enum tuner_metrics_knob knob, uint64_t value)
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
			  enum tuner_metrics_outcome outcome)
{
	if (isfinite(reward))
		metric_set_real(t->reward, reward);
	metric_set_real(t->regret, regret);
	metric_add(t->decisions[outcome], 1);
}
