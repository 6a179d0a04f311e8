/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_COMMON_METRICS_INTERNAL_H
#define KVFS_COMMON_METRICS_INTERNAL_H
/* State of a registry: metrics.c makes series, metrics_snapshot.c reads them. All under lock but
 * shared. */
#include "common/metrics.h"

#include <pthread.h>

#define METRICS_CELLS                                                                              \
	16384 /* a block: 128 KiB, of which only what is counted in becomes resident */

struct metrics_family {
	const struct metrics_def *def;
	struct metric *first;
	struct metrics_family *next;
};

struct metrics_collector {
	void (*collect)(void *ctx);
	void *ctx;
	struct metrics_collector *next;
};

struct metrics_state {
	pthread_mutex_t lock;
	struct metrics_family *families;
	struct metrics_collector *collectors;
	unsigned series_count, cells_used;
	_Atomic uint64_t *shared; /* METRICS_CELLS: of threads without a block */
};

#endif
