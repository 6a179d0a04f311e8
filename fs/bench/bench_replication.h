/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_BENCH_REPLICATION_H
#define KVFS_FS_BENCH_REPLICATION_H
/*
 * kvfs bench --replication: the engine without FUSE over each transport, with real mirrors.
 *
 *   cell: one transport, load, size and setting; fresh volumes, fresh mirrors, a warm-up, runs
 *   table: the cells of all transports and sizes under one load
 *
 * Main thread; the clients are threads of their own.
 */
#include "fs/bench/bench_engine.h"
#include "fs/bench/bench_site.h"

#define BENCH_RUNS_MAX 99
#define BENCH_LIST_MAX 16
#define BENCH_TRANSPORTS 3 /* enum addr_kind without auto */

struct bench_replication {
	const char *dir;
	enum addr_kind transports[BENCH_TRANSPORTS];
	unsigned transport_count;
	const struct bench_load *loads[BENCH_LIST_MAX];
	unsigned load_count;
	uint64_t values[BENCH_LIST_MAX];
	unsigned value_count;
	unsigned mirrors, runs;
	enum commit_protocol protocol;
	double warm_up_s, settle_s; /* settle_s: in place of warm_up_s, for the tuner */
	unsigned settings;         /* mask by index of bench_setting_at */
	const char *options;       /* of primary and mirrors, as after -o; NULL: none */
	struct bench_config each;  /* keys, threads, seconds, seed of a run */
	const char *plot;          /* NULL: none */
	bool json;
};

/* Who sets lanes, polling and so on while a cell runs. */
struct bench_setting {
	const char *name;
	enum options_switch tuner; /* off: they stay as they were given */
};
#define BENCH_SETTINGS_MAX 2
#define BENCH_STATIC 0
#define BENCH_TUNED 1
const struct bench_setting *bench_setting_at(unsigned i); /* NULL: past the last */
static inline bool bench_measures(const struct bench_replication *cfg, unsigned setting)
{
	return cfg->settings & 1U << setting;
}

/* One run's figures. */
struct bench_run {
	double ops, mean_us, p99_us, p999_us; /* ops: a second */
};

struct bench_cell {
	enum addr_kind kind;
	bool emulated;             /* the RDMA device is a program */
	const struct bench_load *load;
	uint64_t value_bytes;
	unsigned clients;
	struct bench_run runs[BENCH_SETTINGS_MAX][BENCH_RUNS_MAX];
	bool done[BENCH_SETTINGS_MAX]; /* all its runs; else its figures are 0 and not reported */
	uint64_t errors[BENCH_SETTINGS_MAX];
	int first_errno;
};

/* A transport that this machine doesn't have. */
struct bench_left_out {
	enum addr_kind kind;
	char why[256];
};

struct bench_results {
	const struct bench_replication *cfg;
	struct bench_cell *cells;  /* by load, transport, size */
	unsigned cell_count;
	unsigned cells_done;       /* with each of their settings counted */
	struct bench_left_out left_out[BENCH_TRANSPORTS];
	unsigned left_out_count;
	char device[64];           /* the emulated RDMA device; "": none */
};

/* Measures and reports. An exit code. */
int bench_replication_run(const struct bench_replication *cfg);

/* Smallest, middle and greatest of one figure over a cell's runs. */
struct bench_spread {
	double low, median, high;
};
/* All 0 for a cell that was not done. */
struct bench_spread bench_spread_of(const struct bench_results *r, const struct bench_cell *c,
				    unsigned setting, size_t figure_offset);
#define BENCH_SPREAD(r, c, setting, figure) \
	bench_spread_of(r, c, setting, offsetof(struct bench_run, figure))

/* The shm cell's operations a second by those of the tcp cell of the same load and size, static
 * settings; bar: what it has to be at least, 0: nothing is asked. False: one is missing. */
bool bench_ratio(const struct bench_results *r, const struct bench_load *load, uint64_t value_bytes,
		 double *ret_ratio, double *ret_bar);

const char *bench_transport_name(enum addr_kind kind);

/* bench_report.c: the cells [first, first + n) of one load as a table; all of it as one object. */
void bench_report_table(const struct bench_results *r, unsigned first, unsigned n);
void bench_report_ratios(const struct bench_results *r);
void bench_report_json(const struct bench_results *r);

/* bench_plot.c: writes the figure. -errno. */
int bench_plot_write(const struct bench_results *r, const char *path);

/* bench_replication_args.c. Takes the value of an option; 0 or an exit code, after one line. */
void bench_replication_defaults(struct bench_replication *cfg);
int bench_replication_set_list(struct bench_replication *cfg, const char *option,
			       const char *value);
int bench_replication_check(const struct bench_replication *cfg);

#endif
