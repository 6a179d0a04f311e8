/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_TRACE_H
#define KVFS_TUNER_TRACE_H
/*
 * A trace of a tuner's windows, as JSON a line: a head (schema, policy, seed, static settings, the
 * model it began with), then each window as the tuner saw it and what was decided. From the head
 * and the windows a new tuner makes the same decisions again: tuner_trace_replay checks that.
 * Blocks on the file. One thread a trace.
 */
#include "tuner/tuner.h"

#include <stdio.h>

/* model may be NULL. The stream stays the caller's. -EIO, -ENOMEM. */
int tuner_trace_begin(FILE *out, const struct tuner_config *config, const void *model, size_t len);
int tuner_trace_add(FILE *out, const struct tuner_window *w, const struct tuner_decision *d);

/* The head: a configuration that stays valid; *ret_model is malloc'ed or NULL. -EINVAL: not a
 * trace, told by its first bytes; -ESTALE: of another feature schema; -ENOMEM; as read(2). */
int tuner_trace_read_head(FILE *in, struct tuner_config *ret_config, void **ret_model,
			  size_t *ret_len);

struct tuner_recorded {
	struct tuner_window window;
	enum tuner_action action;
	struct tuner_settings after;
	int choice; /* of the proposal, -1: the policy was not asked */
	struct tuner_settings choice_settings;
	float prior, prior_error;
};
/* The next window. -ENODATA: no more; -EINVAL: damaged; -ENOMEM; as read(2). */
int tuner_trace_read(FILE *in, struct tuner_recorded *ret_recorded);

/* Decides all windows of the trace anew and compares. on_window, if not NULL, gets each
 * decision. 0: all the same; -EILSEQ: *ret_window is the first that differs; else as the
 * functions above. */
int tuner_trace_replay(FILE *in, void (*on_window)(void *ctx, const struct tuner_decision *d),
		       void *ctx, uint64_t *ret_window);

#endif
