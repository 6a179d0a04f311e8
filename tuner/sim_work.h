/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_SIM_WORK_H
#define KVFS_TUNER_SIM_WORK_H
/*
 * Workloads for the simulated NIC, each a trace of phases with shifts between them and noise
 * over all of them, and the metrics a tuner would see. A trace is a function of workload and seed;
 * its noise is the same whatever the settings are, so policies are compared window by window. One
 * thread a trace.
 */
#include "tuner/sim_nic.h"
#include "tuner/tuner.h"
#include "tuner/window_features.h"

enum sim_workload {
	SIM_SMALL,   /* many small records, the number of clients changes */
	SIM_LARGE,   /* few large ones; now and then somebody's backup takes the link */
	SIM_SWITCH,  /* small and large in turn */
	SIM_BURST,   /* calm with bursts at a steady beat */
	SIM_MIX,     /* sizes far apart at the same time */
	SIM_TENANTS, /* others come with many connections, or with bulk transfers, and go */
	SIM_SQUEEZE, /* other programs take the CPU, and give it back */
	SIM_DRIFT,   /* clients and sizes move slowly, as over a day */
	SIM_WORKLOADS,
	/* Held out: nothing was chosen by looking at these. */
	SIM_RANDOM = SIM_WORKLOADS, /* each phase any load at all */
	SIM_RETURN,                 /* three loads, any at all, come and go */
	SIM_WANDER,                 /* all of a load moves at random, in small steps */
	/* As the first eight; behind the others, as the number is in the seed. */
	SIM_LOCAL,                  /* clients and mirrors are on this machine */
	SIM_WORKLOADS_ALL
};
const char *sim_workload_name(enum sim_workload w);

#define SIM_PHASES_MAX 8
#define SIM_LOADS_MAX 160

struct sim_phase {
	unsigned first, windows;
};

struct sim_trace {
	unsigned windows;
	unsigned nphases;
	struct sim_phase phase[SIM_PHASES_MAX];
	unsigned nloads;
	struct sim_load load[SIM_LOADS_MAX];
	uint8_t *load_of;                          /* a window's load */
	float *noise;                              /* a window's factor on throughput */
	struct sim_result **known; /* results by load and settings, as they were asked for */
	/* The metrics so far. */
	uint64_t seed;
	struct tuner_snapshot before, now;
	struct histogram scratch;
};

/* short_phases: 100 windows a phase in place of 150 to 250. -ENOMEM. */
int sim_trace_create(enum sim_workload workload, uint64_t seed, bool short_phases,
		     struct sim_trace **ret_trace);
void sim_trace_destroy(struct sim_trace *t);

/* Without noise. */
const struct sim_result *sim_trace_result(struct sim_trace *t, unsigned window,
					  struct tuner_settings s);
/* With it: records/s. */
double sim_trace_throughput(struct sim_trace *t, unsigned window, struct tuner_settings s);

/* Lets a window pass under settings s and gives what a tuner sees of it. Windows in order, from
 * 0. */
void sim_trace_window(struct sim_trace *t, unsigned window, struct tuner_settings s,
		      struct tuner_window *ret_window);

#endif
