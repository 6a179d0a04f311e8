/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_SIM_NIC_H
#define KVFS_TUNER_SIM_NIC_H
/*
 * A simulated RDMA card and the path of a replicated record through it, in virtual time: throughput
 * and latency of a load under settings, by a closed queueing network (approximate mean value
 * analysis) over CPU, commit leader, the card's processing units and cache, PCIe, link and mirror.
 * For judging tuner policies at scales a machine at hand hasn't; figures and sources are in
 * sim_params.h. Pure, some 20 us a call.
 */
#include "tuner/settings.h"

struct sim_load {
	double clients;     /* records under way at most, one a client */
	double think_ns;    /* a client's pause between records */
	double bytes;       /* mean size of a record */
	double spread;      /* of the size: standard deviation over mean */
	double mirrors;
	double cores;       /* of the machine */
	double other_cores; /* other programs keep busy */
	double follow_ns;   /* CPU that clients and mirrors on this machine take, a record */
	double idle_qps;    /* of other programs: many connections, each used now and then */
	double idle_rate;   /* their messages/s, together */
	double bulk_qps;    /* of other programs: always busy, want the link */
	double fresh_mib;   /* memory a burst takes before the registrar has caught up; 0: none */
	double live_mib;    /* of registered memory in use */
};

struct sim_result {
	double ops_per_s;
	double commit_ns, rtt_ns, append_ns; /* means */
	double latency_spread;               /* standard deviation over mean */
	double cpu_cores;                    /* of this process */
	double follow_cores;                 /* of clients and mirrors on this machine */
	double queue;                        /* records at the commit leader */
	double link_bytes_per_s;             /* of all programs */
	double mtt_miss, qp_miss;            /* shares of look-ups */
	double region_miss;                  /* share of new regions that had to wait */
};

void sim_nic_run(const struct sim_load *load, struct tuner_settings settings,
		 struct sim_result *ret_result);

#endif
