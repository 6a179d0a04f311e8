/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tuner_endure [WINDOWS]: XGBoost's policy over a long time (100 000 windows unless told) on the
 * simulated NIC. Prints CPU time a window and resident memory, and exits 1 when memory grew after
 * the first tenth, or when a window takes more than 0.5 % of a core at one window a second.
 */
#include "tuner/sim_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define GROWTH_MOST_KIB 1024
#define CPU_MOST_US 5000.0

static long resident_kib(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long pages = -1, unused;

	if (!f || fscanf(f, "%ld %ld", &unused, &pages) != 2)
		exit(2);
	fclose(f);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static double cpu_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
	unsigned long windows = argc > 1 ? strtoul(argv[1], NULL, 10) : 100000;
	struct tuner_settings s = tuner_settings_shipped;
	struct sim_trace *trace[SIM_WORKLOADS];
	long first = 0, last;
	struct tuner_config config;
	struct tuner *tuner;
	double spent = 0, longest = 0;

	tuner_config_init(&config);
	config.policy = &tuner_policy_xgboost;
	if (windows < 100 || tuner_create(&config, &tuner))
		return 2;
	for (unsigned w = 0; w < SIM_WORKLOADS; w++)
		if (sim_trace_create((enum sim_workload)w, 1, false, &trace[w]))
			return 2;
	for (unsigned long i = 0, at = 0, which = 0; i < windows; i++, at++) {
		struct tuner_window w;
		struct tuner_decision d;
		double begin;

		if (at == trace[which]->windows) {
			at = 0;
			which = (which + 1) % SIM_WORKLOADS;
		}
		sim_trace_window(trace[which], (unsigned)at, s, &w);
		w.index = i;
		begin = cpu_us();
		s = tuner_step(tuner, &w, &d);
		begin = cpu_us() - begin;
		spent += begin;
		longest = begin > longest ? begin : longest;
		if (i == windows / 10)
			first = resident_kib();
	}
	last = resident_kib();
	printf("%lu windows: %.0f us of CPU each, %.0f at most; resident %ld KiB after a tenth, "
	       "%ld at the end\n",
	       windows, spent / (double)windows, longest, first, last);
	tuner_destroy(tuner);
	for (unsigned w = 0; w < SIM_WORKLOADS; w++)
		sim_trace_destroy(trace[w]);
	return last - first > GROWTH_MOST_KIB || spent / (double)windows > CPU_MOST_US;
}
