/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_LOOP_INTERNAL_H
#define KVFS_TUNER_LOOP_INTERNAL_H
/* The loop's state, shared by loop.c (the thread) and loop_orders.c (what other threads ask).
 * `lock` covers what they ask for and the decision log; a leaf. */
#include "tuner/explain.h"
#include "tuner/loop.h"

#include <pthread.h>
#include <stdatomic.h>

struct tuner_loop {
	struct tuner_loop_config config;
	pthread_t thread;
	_Atomic uint32_t in_force; /* packed; written by kv-tuner, relaxed: it stands alone */

	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool started, stop, frozen, is_set; /* lock */
	int start_err;                      /* lock */
	struct tuner_settings set;          /* lock */
	FILE *next_trace;                   /* lock; to be taken over */
	bool new_trace;                     /* lock */
	bool recording;                     /* lock */
	const char *failure;                /* lock */
	uint64_t windows;                   /* lock */
	struct decision_log log;            /* lock */

	/* kv-tuner's own. */
	struct tuner *tuner;
	FILE *trace;
	bool trace_failed; /* and it was said */
	bool said_failure;
	uint64_t index;
	struct tuner_snapshot before, now;
};

#endif
