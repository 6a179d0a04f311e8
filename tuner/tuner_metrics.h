/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_TUNER_METRICS_H
#define KVFS_TUNER_TUNER_METRICS_H
/*
 * What people see of the tuner: the settings that are in force, whoever chose them, and what it
 * decided. Set by the start (static settings) and then by the tuner's thread.
 */
#include "common/metrics.h"

enum tuner_metrics_knob {
	TUNER_METRICS_LANES,
	TUNER_METRICS_POLL_US,
	TUNER_METRICS_BATCH,
	TUNER_METRICS_RESERVE_BYTES,
	TUNER_METRICS_KNOBS
};
enum tuner_metrics_outcome {
	TUNER_METRICS_HOLD,
	TUNER_METRICS_MOVE,
	TUNER_METRICS_ROLLBACK,
	TUNER_METRICS_FREEZE,
	TUNER_METRICS_OUTCOMES
};

struct tuner_metrics {
	struct metrics *metrics;
	/* made when first set: a knob nobody has is not shown */
	struct metric *setting[TUNER_METRICS_KNOBS];
	struct metric *active, *reward, *regret;
	struct metric *decisions[TUNER_METRICS_OUTCOMES];
};

void tuner_metrics_init(struct tuner_metrics *t, struct metrics *m); /* m may be NULL */

/* One thread at a time. The value is in the knob's own unit: lanes, microseconds, records, bytes.
 */
void tuner_metrics_setting(struct tuner_metrics *t, enum tuner_metrics_knob knob, uint64_t value);

/* A policy moves settings, or they are static. */
void tuner_metrics_active(struct tuner_metrics *t, bool active);

/* A window ended: its reward (tuner/reward.h; NaN: none, the last one stays), the regret summed up
 * so far (struct tuner_decision), and what was decided. */
void tuner_metrics_window(struct tuner_metrics *t, double reward, double regret,
			  enum tuner_metrics_outcome outcome);

#endif
