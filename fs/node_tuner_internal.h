/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_NODE_TUNER_INTERNAL_H
#define KVFS_FS_NODE_TUNER_INTERNAL_H
/* The tuner over a node, its parts: node_tuner.c (life, settings), node_tuner_host.c (what the loop
 * asks for), node_tuner_machine.c (what the machine counts). */
#include "common/metrics.h"
#include "fs/node.h"
#include "fs/node_tuner.h"

/* A setting's values, in the knobs' own units. */
struct node_knobs {
	struct primary_knobs links;
	uint64_t reserve_bytes;
};

/* Found once, read each window; NULL: nobody counts it. */
struct node_tuner_series {
	struct metric *wire, *append, *commit_wait, *record_bytes;
	struct metric *retries[OPTIONS_MIRRORS_MAX];
	unsigned retries_count;
};

/* What node_tuner_machine.c found. */
struct node_tuner_machine {
	const char *root;            /* "" or, in tests, a tree of files that stands for / */
	char port[160];              /* sysfs directory of the RDMA device's port; "": none */
	double link_bytes, pcie_bytes; /* a second; 0: unknown */
	unsigned cpus;
};

struct node_tuner {
	struct node *node;
	struct tuner_loop *_Atomic loop; /* NULL: tuner=off; kv-tuner may look before it is set */
	const struct tuner_policy_ops *policy;
	_Atomic uint32_t in_force;   /* packed; relaxed: it stands alone */

	/* kv-tuner's own, once it runs. */
	struct node_tuner_series series;
	struct node_tuner_machine machine;
	uint32_t live_before;        /* bit i: mirror i was live */
	double regret;
};

extern const struct tuner_host_ops node_tuner_host;

struct node_knobs node_tuner_values(const struct node *n, struct tuner_settings s);
void node_tuner_find_series(struct node_tuner *t);

/* device: of rdma_device=, NULL or "": the only one there is. */
void node_tuner_machine_open(struct node_tuner_machine *m, const char *root, const char *device);
/* Adds what is known of the machine to a snapshot. */
void node_tuner_machine_read(const struct node_tuner_machine *m, struct tuner_snapshot *snap);

#endif
