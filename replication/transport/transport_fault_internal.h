/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_TRANSPORT_FAULT_INTERNAL_H
#define KVFS_REPLICATION_TRANSPORT_FAULT_INTERNAL_H
/* What transport_fault.c (the poll side, life) and transport_fault_post.c (the post side) share. */
#include "replication/transport/transport_fault.h"
#include "replication/transport/transport_internal.h"

#include <pthread.h>
#include <urcu/list.h>

struct held {
	struct cds_list_head node;
	uint64_t due_ns, off;
	uint32_t imm;
	bool control;
	size_t len;
	uint8_t bytes[];
};

struct fault_lane {
	struct cds_list_head held;
	unsigned held_count;
	bool blocked;   /* inner had no credits: wait for its WRITABLE */
	bool withheld;  /* a post came back short because of us: say WRITABLE */
};

/* All members but the fixed ones under lock. */
struct fault_ep {
	struct transport_ep base;       /* fixed */
	struct transport_ep *inner;     /* fixed */
	struct transport_fault_plan plan; /* fixed */
	pthread_mutex_t lock;
	pthread_cond_t cond;            /* kv-fault: held or stop or blocked changed */
	pthread_t thread;
	bool stop, woken;
	uint64_t random, posts, notices, stall_until_ns;
	struct fault_lane lane[TRANSPORT_LANES_MAX];
};

/* transport_fault_post.c */
void *fault_main(void *arg); /* "kv-fault": late deliveries */
int fault_post(struct transport_ep *base, unsigned lane, const struct transport_post *posts,
	       unsigned n);
/* Forgets what is held back on a lane. */
void fault_drop_held_locked(struct fault_lane *l);

#endif
