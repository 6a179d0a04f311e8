/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_EXPLAIN_H
#define KVFS_TUNER_EXPLAIN_H
/*
 * Decisions for people and programs: the last ones in a ring, and any of them as JSON or as text:
 * features, what the policy thinks of each candidate, choice, outcome. The ring is for one thread;
 * the loop locks it.
 */
#include "tuner/tuner.h"

#include <jansson.h>
#include <stdio.h>

#define DECISION_LOG_MAX 128

struct decision_log {
	uint64_t added;
	struct tuner_decision all[DECISION_LOG_MAX];
};

void decision_log_add(struct decision_log *log, const struct tuner_decision *d);
/* The i-th newest, from 0; NULL: not so many. */
const struct tuner_decision *decision_log_get(const struct decision_log *log, unsigned i);

/* A new reference each; NULL: no memory. A feature that is missing is null. */
json_t *tuner_explain_settings(struct tuner_settings s);
json_t *tuner_explain_features(const struct tuner_features *f);
json_t *tuner_explain_decision(const struct tuner_decision *d);

/* Some lines of text for one decision. */
void tuner_explain_print(FILE *out, const struct tuner_decision *d);

#endif
