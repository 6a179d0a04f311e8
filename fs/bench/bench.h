/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_BENCH_H
#define KVFS_FS_BENCH_H
/*
 * kvfs bench: a YCSB-like load of whole-file operations on any directory, so that kvfs and what
 * people would use instead are measured by the same program.
 */
#include "common/histogram.h"

#include <stdbool.h>
#include <stdint.h>

enum bench_op { BENCH_GET, BENCH_PUT, BENCH_CREATE, BENCH_APPEND, BENCH_SCAN, BENCH_RMW,
		BENCH_OPS };

/* A load: shares of the operations in percent. Keys by a zipfian distribution (0.99) or uniformly;
 * for D the latest keys. */
struct bench_load {
	const char *name;
	const char *what;
	uint8_t percent[BENCH_OPS];
	enum { BENCH_UNIFORM, BENCH_ZIPFIAN, BENCH_LATEST } keys;
	/* one large file, written or read in io_bytes pieces; percent is not used */
	bool sequential;
	unsigned clients_max; /* 0: any number */
	unsigned pause_us;    /* of each client after BENCH_BURST_OPS operations; 0: none */
};

#define BENCH_BURST_OPS 64

struct bench_config {
	const char *dir;
	const struct bench_load *load;
	uint64_t keys;
	uint64_t value_bytes;
	uint64_t file_bytes;  /* sequential */
	unsigned threads;
	double seconds;
	uint64_t seed;
};

struct bench_result {
	double seconds;
	uint64_t ops, errors, bytes;
	int first_errno;
	struct histogram latency; /* ns of one operation */
};

const struct bench_load *bench_load_find(const char *name); /* NULL: no such load */
const struct bench_load *bench_load_at(unsigned i);         /* NULL: past the last */

/* Makes the keys of cfg under dir/kvfs-bench (progress may be NULL), runs, and removes them with
 * bench_clean. 0 or -errno of the preparation; errors of operations are counted. Blocks
 * for about cfg->seconds. */
int bench_prepare(const struct bench_config *cfg, void (*progress)(uint64_t done, uint64_t total));
int bench_run(const struct bench_config *cfg, struct bench_result *ret_result);
int bench_clean(const struct bench_config *cfg);

#endif
