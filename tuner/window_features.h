/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_FEATURES_H
#define KVFS_TUNER_FEATURES_H
/*
 * What the tuner knows of a window of time: a vector computed from two snapshots of the metrics,
 * one at each end. A snapshot is a copy taken without a lock on the data path; counters only grow.
 * What a machine can't tell is left out of `have`, and its features are NaN, never 0: the model
 * treats NaN as missing. Pure.
 */
#include "common/histogram.h"

#include <stdbool.h>
#include <stdint.h>

enum tuner_counter { /* since start */
	TUNER_OPS,           /* records committed */
	TUNER_BYTES,         /* their bytes */
	TUNER_RETRIES,       /* retransmissions, RNR */
	TUNER_CPU_NS,        /* CPU time of this process */
	TUNER_MACHINE_NS,    /* busy CPU time of the whole machine */
	TUNER_LINK_BYTES,    /* sent by the port, all programs: the NIC's counter */
	TUNER_MEM_BYTES,     /* read and written in memory, of this process */
	TUNER_REGION_HITS,
	TUNER_REGION_MISSES,
	TUNER_COUNTERS
};

enum tuner_gauge { /* as of now; 0 or less: unknown */
	TUNER_CPUS,          /* that this process may use */
	TUNER_LINK_CAPACITY, /* bytes/s */
	TUNER_PCIE_CAPACITY, /* bytes/s, width times speed */
	TUNER_MEM_CAPACITY,  /* bytes/s */
	TUNER_QUEUE_DEPTH,   /* records waiting for their commit; with queue_known 0 is known */
	TUNER_COPIES,        /* mirrors each record goes to */
	TUNER_TRANSPORTS,    /* which: sum of TUNER_OVER_* of those mirrors */
	TUNER_MIRROR_CPU,    /* with mirrors_known 0 is known; of each the most of all mirrors: */
	TUNER_MIRROR_LOG,    /* cores; share of its log's pool in use; */
	TUNER_MIRROR_RING,   /* share of its ring in use, */
	TUNER_MIRROR_LAG,    /* and records received and not executed, at most since it said so */
	TUNER_GAUGES
};

/* Of one mirror. So that the sum of up to 16 tells each set of them from any other. */
#define TUNER_OVER_SHM 1
#define TUNER_OVER_VERBS 17
#define TUNER_OVER_TCP 289

enum tuner_hist {
	TUNER_RTT_NS,    /* posted to acknowledged */
	TUNER_RECORD,    /* bytes of a record */
	TUNER_APPEND_NS, /* local log */
	TUNER_COMMIT_NS, /* request to commit */
	TUNER_HISTS
};

struct tuner_snapshot {
	uint64_t time_ns;
	uint32_t have; /* bit c: counter c is known */
	uint32_t estimated; /* bit c: it is worked out from bytes moved, nobody counts it */
	bool queue_known;   /* the queue's depth, also where it is 0 */
	bool mirrors_known; /* the mirrors have told their load lately */
	uint64_t counter[TUNER_COUNTERS];
	double gauge[TUNER_GAUGES];
	uint64_t hist[TUNER_HISTS][HISTOGRAM_BUCKETS];
	uint64_t hist_sum[TUNER_HISTS];
};

/* Adding one, removing one or changing a meaning: raise TUNER_SCHEMA, which makes old models
 * foreign. */
#define TUNER_SCHEMA 5
enum tuner_feature {
	TUNER_F_RTT_P50_US,
	TUNER_F_RTT_P90_US,
	TUNER_F_RTT_P99_US,
	TUNER_F_RECORD_MEAN,
	TUNER_F_RECORD_P90,
	TUNER_F_OPS_PER_S,
	TUNER_F_BYTES_PER_S,
	TUNER_F_CPU_OWN,
	TUNER_F_CPU_OTHER, /* cores */
	TUNER_F_CPUS,
	TUNER_F_MEM_SHARE,
	TUNER_F_MEM_ESTIMATED, /* the last: 1 from bytes moved, 0 from a counter */
	TUNER_F_LINK_SHARE,
	TUNER_F_LINK_OTHER,
	TUNER_F_LINK_ESTIMATED, /* the last: 1 without a counter */
	TUNER_F_PCIE_SHARE,
	TUNER_F_QUEUE_DEPTH,
	TUNER_F_IN_FLIGHT,
	TUNER_F_RETRIES_PER_OP,
	TUNER_F_APPEND_P50_US,
	TUNER_F_COMMIT_P50_US,
	TUNER_F_COMMIT_P90_US,
	TUNER_F_COMMIT_P99_US,
	TUNER_F_REGION_HIT_RATE,
	TUNER_F_MIRROR_CPU, /* cores; of the busiest mirror, as the next three */
	TUNER_F_MIRROR_LOG,
	TUNER_F_MIRROR_RING,
	TUNER_F_MIRROR_LAG, /* records */
	TUNER_F_MIRRORS,
	TUNER_F_TRANSPORTS, /* TUNER_TRANSPORTS */
	TUNER_F_FORECAST, /* forecast load over present load; the loop fills it in */
	TUNER_FEATURES
};

struct tuner_features {
	float v[TUNER_FEATURES];
};

const char *tuner_feature_name(enum tuner_feature f);
/* Whether feature f of these is an estimate. */
bool tuner_feature_estimated(const struct tuner_features *features, enum tuner_feature f);

/* Counters that went backwards (a restart) and windows of no time give NaN. */
void tuner_features_compute(const struct tuner_snapshot *before, const struct tuner_snapshot *after,
			    struct tuner_features *ret_features);

/* Copies h's buckets into the snapshot; other threads may be adding. */
void tuner_snapshot_hist(struct tuner_snapshot *snap, enum tuner_hist which,
			 const struct histogram *h);

#endif
