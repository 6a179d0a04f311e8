/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_NODE_TUNER_INTERNAL_H
#define KVFS_FS_NODE_TUNER_INTERNAL_H
/* The tuner over a node, its parts: node_tuner.c (life, settings), node_tuner_host.c (what the loop
 * asks for), node_tuner_machine.c (what the machine counts), node_tuner_traffic.c (bytes moved). */
#include "common/metrics.h"
#include "fs/node/node.h"
#include "fs/node/node_tuner.h"

#include <sched.h>

/* A setting's values, in the knobs' own units. */
struct node_knobs {
	struct primary_knobs links;
	uint64_t reserve_bytes;
};

/* Found once, read each window; NULL: nobody counts it. */
struct node_tuner_series {
	struct metric *wire, *append, *commit_wait, *record_bytes, *read_bytes;
	struct metric *retries[OPTIONS_MIRRORS_MAX];
	unsigned retries_count;
};

/* What node_tuner_machine.c found. */
struct node_tuner_machine {
	const char *root;            /* "" or, in tests, a tree of files that stands for / */
	char port[160];              /* sysfs directory of the RDMA device's port; "": none */
	struct verbs_port rdma;      /* the same port, by name */
	double link_bytes, pcie_bytes; /* a second; 0: unknown */
	double memory_bytes; /* a second, that one processor writes past its caches; 0: not
				measured yet */
	cpu_set_t set; /* that this process may use */
	unsigned cpus; /* in it */
};

/* Bytes moved since the tuner began, from counters that may begin anew. kv-tuner's. */
struct node_tuner_nic {
	char name[LINK_INTERFACE_BYTES];
	uint64_t last; /* its counter */
};
struct node_tuner_traffic {
	bool any;                /* the last values are known */
	uint64_t records_last, reads_last, sent_last[OPTIONS_MIRRORS_MAX];
	uint64_t memory, sent, nic_sent;
	struct node_tuner_nic nics[OPTIONS_MIRRORS_MAX];
	unsigned nic_count;
	bool any_retries;        /* the last value is known */
	uint64_t retries_last, retries;
};

struct node_tuner {
	struct node *node;
	struct tuner_loop *_Atomic loop; /* NULL: tuner=off; kv-tuner may look before it is set */
	const struct tuner_policy_ops *policy;
	_Atomic uint32_t in_force;   /* packed; relaxed: it stands alone */

	/* kv-tuner's own, once it runs. */
	struct node_tuner_series series;
	struct node_tuner_machine machine;
	struct node_tuner_traffic traffic;
	uint32_t live_before;        /* bit i: mirror i was live */
	double regret;
};

extern const struct tuner_host_ops node_tuner_host;

struct node_knobs node_tuner_values(const struct node *n, struct tuner_settings s);
/* A hash of what a model's levels stand for: the options' own values, and the processors. */
uint32_t node_tuner_conditions(const struct node *n, unsigned cpus);
void node_tuner_find_series(struct node_tuner *t);
/* TUNER_TRANSPORTS of the live links. */
double node_tuner_transports(const struct link_stats *links, unsigned count);

/* device: of rdma_device=, NULL or "": the only one there is. */
void node_tuner_machine_open(struct node_tuner_machine *m, const char *root, const char *device);
/* Adds what is known of the machine to a snapshot. */
void node_tuner_machine_read(const struct node_tuner_machine *m, struct tuner_snapshot *snap);
/* Measures memory_bytes: some 50 ms of this thread's time, once. */
void node_tuner_machine_measure(struct node_tuner_machine *m);
/* Of a network interface bytes sent, all programs, and what it can send in a second (0: it doesn't
 * say). False: no such counter. */
bool node_tuner_machine_nic(const struct node_tuner_machine *m, const char *name,
			    uint64_t *ret_sent, double *ret_bytes_per_s);

/* What the RDMA device's port has sent again, all programs. False: nobody counts it. */
bool node_tuner_machine_retries(const struct node_tuner_machine *m, uint64_t *ret_retries);
/* Adds retries to a snapshot: those of the links, and where a live one goes over RDMA its device's.
 * Nobody counts these: all that is known is too little, and it is left out. */
void node_tuner_retries_read(struct node_tuner_traffic *t, const struct node_tuner_machine *m,
			     const struct link_stats *links, unsigned count, uint64_t of_links,
			     struct tuner_snapshot *snap);

/* Adds what moved to a snapshot that machine_read has filled: memory, always an estimate; and where
 * no live link goes over RDMA the links' load, from their interfaces in place of the RDMA
 * device's. records and reads: bytes so far. */
void node_tuner_traffic_read(struct node_tuner_traffic *t, const struct node_tuner_machine *m,
			     const struct link_stats *links, unsigned count, uint64_t records,
			     uint64_t reads, struct tuner_snapshot *snap);

#endif
