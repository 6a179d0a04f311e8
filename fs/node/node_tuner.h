/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_NODE_TUNER_H
#define KVFS_FS_NODE_TUNER_H
/*
 * The tuner over a node: what tuner/loop.h asks of its host, answered by the primary. A window's
 * snapshot is read from the threads' counters and other atomics; the data path's locks are not
 * taken. Limits come from the links: lanes that were opened, what the transports have, and whether
 * a mirror is being filled.
 *
 * The static settings are those of the mount's options; every level of a ladder but the one they
 * are on stands for the ladder's own value. One loop a node; only a primary with mirrors has one.
 *
 * Threads: start and stop from the one that starts and stops the node; the rest from any, between
 * the two. The host's functions run in kv-tuner.
 */
#include "tuner/loop.h"

#include <jansson.h>

struct node;
struct node_tuner;

struct node_tuner_config {
	const struct tuner_policy_ops *policy;
	uint64_t window_ns;
	uint64_t seed;
	double min_ops_per_s; /* below it a window says nothing */
	bool keep_model;      /* load it from the volume, and save it there */
	FILE *trace;          /* NULL: none; the loop's from the start on */
	/* NULL: node_tuner_host. Tests put one before it that lies; its ctx is the same. */
	const struct tuner_host_ops *host;
};

/* As the node's options say: the policy, windows of a second, the volume's model. */
void node_tuner_config_init(const struct node *n, struct node_tuner_config *ret_config);

/*
 * Starts the loop; after node_start_primary, and after what counts requests has made its series
 * (fs_create). The static settings are in force when it returns. cfg NULL: as the options say; with
 * tuner=off there is no loop, and settings only move by hand. Without mirrors nothing is started,
 * and 0 returned.
 * -ENOMEM, -EAGAIN, with why.
 */
int node_tuner_start(struct node *n, const struct node_tuner_config *cfg, char *why,
		     size_t why_cap);
/* Saves the model. Before node_stop, which does it as well. Not started is fine. */
void node_tuner_stop(struct node *n);

/* The loop, for tuner_loop_freeze, _set, _explain and _record; NULL: not started. */
struct tuner_loop *node_tuner_loop(const struct node *n);

/* The lanes of a configuration: more are opened than used, where the tuner may want them. */
void node_tuner_lanes(const struct node *n, struct primary_config *cfg);
/* So many are opened to a mirror, at most. */
unsigned node_tuner_lanes_open(const struct node *n);
/* Of the mount's options: what it runs with untuned. */
struct tuner_settings node_tuner_static(const struct node *n);
/* What the links, their transports and the arena allow now. Any thread. */
void node_tuner_bounds(struct node *n, struct tuner_bounds *ret_bounds);
/* Puts settings in force without a loop (a sweep of static ones); returns what is in force then. */
struct tuner_settings node_tuner_apply(struct node *n, struct tuner_settings wanted);

/* State and settings for status and kvfs tune, a new object; NULL: no memory. */
json_t *node_tuner_json(struct node *n);
/* control_tune.c: the reply to "tune". */
json_t *control_tune(struct node *n, const json_t *request);

#endif
