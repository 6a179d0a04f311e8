/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_LOOP_H
#define KVFS_TUNER_LOOP_H
/*
 * The tuner's thread, kv-tuner: once a window it takes a snapshot of the metrics, decides, and has
 * the settings applied. The policy and its model are created, used and destroyed in that thread.
 * What is above gives it the metrics and applies settings through an ops struct. Data-path threads
 * read one atomic word.
 */
#include "tuner/tuner.h"

#include <jansson.h>
#include <stdio.h>

/* All called from kv-tuner; none may wait for long. */
struct tuner_host_ops {
	/* ret_snapshot is zeroed before. Without a lock on the data path. */
	void (*snapshot)(void *ctx, struct tuner_snapshot *ret_snapshot);
	/* What device, peer and limits allow now, and TUNER_WINDOW_*. */
	void (*limits)(void *ctx, struct tuner_bounds *ret_bounds, uint32_t *ret_flags);
	/* Returns what is in force then: less than wanted where a lane didn't open or memory
	 * wasn't there. */
	struct tuner_settings (*apply)(void *ctx, struct tuner_settings wanted);
	/* One line for people: the model could not be used, the policy gave up. */
	void (*report)(void *ctx, const char *text);
	/* What a window led to, for metrics. May be NULL. */
	void (*decided)(void *ctx, const struct tuner_decision *d);
};

struct tuner_loop_config {
	struct tuner_config tuner;
	const struct tuner_host_ops *host;
	void *ctx;
	uint64_t window_ns;
	int dirfd;   /* the volume, for the model's file; -1: none. Stays the caller's */
	/* A hash of what a model depends on and no feature says: the values that the static
	 * settings' levels stand for, the processors. A file made under others is not used. */
	uint32_t conditions;
	FILE *trace; /* NULL: none; as of tuner_loop_record, but from the first window on */
};

struct tuner_loop;

/* -ENOMEM, -EAGAIN, or what the policy's create said. Returns once the first settings are in
 * force. */
int tuner_loop_start(const struct tuner_loop_config *config, struct tuner_loop **ret_loop);
/* Saves the model and joins the thread. NULL is fine. Blocks on disk. */
void tuner_loop_stop(struct tuner_loop *loop);

/* What is in force. Any thread, no lock. */
struct tuner_settings tuner_loop_settings(const struct tuner_loop *loop);

/* From the next window on. A freeze ends the trial under way; what was set by hand stays until the
 * thaw. set freezes at s, set_knobs (a mask of 1 << enum tuner_knob) at what is set or in force but
 * for the knobs of the mask; both within the limits. Any thread. */
void tuner_loop_freeze(struct tuner_loop *loop, bool frozen);
void tuner_loop_set(struct tuner_loop *loop, struct tuner_settings s);
void tuner_loop_set_knobs(struct tuner_loop *loop, unsigned mask, struct tuner_settings s);

struct tuner_loop_state {
	bool frozen, set_by_hand; /* by an operator */
	struct tuner_settings set; /* by hand: from the next window on, within its bounds */
	bool recording;
	const char *failure;      /* why the policy gave up, a static string, or NULL */
	uint64_t windows;         /* so far */
};
void tuner_loop_state(struct tuner_loop *loop, struct tuner_loop_state *ret_state);

/* The last n decisions, newest first, as a new JSON array. NULL: no memory. Any thread. */
json_t *tuner_loop_explain(struct tuner_loop *loop, unsigned n);

/*
 * Records from the next window on into out, which is the loop's then and is closed at the end or
 * when it fails; NULL ends it. So that the trace can be decided anew without difference, the tuner
 * begins again with it: it keeps the model, and forgets the loads it has met. kv-tuner waits for
 * what out's writes wait for: a file belongs behind trace_writer.h. Any thread.
 */
void tuner_loop_record(struct tuner_loop *loop, FILE *out);

#endif
