/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tuner_endure [WINDOWS]: XGBoost's policy over a long time on the simulated NIC: 100 000 windows
 * with KVFS_TEST_LONG=1, else 10 000. Prints CPU time a window and resident memory after each
 * tenth, and exits 1 when its least in the second half is above that in the first (a trace of the
 * NIC, one at a time, is a few MiB of what comes and goes), or when a window takes more than 0.5 %
 * of a core at one window a second.
 */
#include "tests/unit/unit_main.h"
#include "tuner/sim_work.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* What the least of five readings still swings by; a leak of 42 bytes a window shows at 100 000. */
#define GROWTH_MOST_KIB 2048
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

static struct sim_trace *trace_new(unsigned which)
{
	struct sim_trace *t;

	if (sim_trace_create((enum sim_workload)(which % SIM_WORKLOADS), 1 + which, false, &t))
		exit(2);
	return t;
}

static double cpu_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
	unsigned long windows = argc > 1 ? strtoul(argv[1], NULL, 10) :
				unit_long() ? 100000 : 10000;
	struct tuner_settings s = tuner_settings_shipped;
	struct sim_trace *trace = trace_new(0);
	unsigned at = 0, which = 0;
	long least[2] = { LONG_MAX, LONG_MAX };
	struct tuner_config config;
	struct tuner *tuner;
	double spent = 0, longest = 0;

	tuner_config_init(&config);
	config.policy = &tuner_policy_xgboost;
	if (windows < 100 || tuner_create(&config, &tuner))
		return 2;
	for (unsigned long i = 0; i < windows; i++) {
		struct tuner_window w;
		struct tuner_decision d;
		double begin;

		if (at == trace->windows) {
			sim_trace_destroy(trace);
			trace = trace_new(++which);
			at = 0;
		}
		sim_trace_window(trace, at++, s, &w);
		w.index = i;
		begin = cpu_us();
		s = tuner_step(tuner, &w, &d);
		begin = cpu_us() - begin;
		spent += begin;
		longest = begin > longest ? begin : longest;
		if ((i + 1) % (windows / 10) == 0) {
			long now = resident_kib(), *half = &least[i >= windows / 2];

			*half = now < *half ? now : *half;
			printf("%lu: %ld KiB\n", i + 1, now);
		}
	}
	printf("%lu windows: %.0f us of CPU each, %.0f at most\n", windows, spent / (double)windows,
	       longest);
	tuner_destroy(tuner);
	sim_trace_destroy(trace);
	return least[1] - least[0] > GROWTH_MOST_KIB || spent / (double)windows > CPU_MOST_US;
}
