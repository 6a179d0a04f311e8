/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What counting costs: an addition, an observation, a look at the clock, and all that a put of one
 * key with one mirror does on the primary, in nanoseconds. By hand.
 */
#include "common/clock.h"
#include "common/metrics.h"

#include <stdio.h>

#define ROUNDS 500U
#define CALLS 2000U

static const struct metrics_def count_def = { .name = "b_total",
					      .help = "Count.",
					      .kind = METRICS_COUNTER };
static const struct metrics_def time_def = {
	.name = "b_seconds",
	.help = "Time.",
	.kind = METRICS_HISTOGRAM,
	.ns = true,
	.first_bits = METRICS_NS_FIRST_BITS,
	.sub_bits = 1,
};

static struct metric *count, *hist[8];

static void nothing(uint64_t i)
{
	__asm__ volatile("" : : "r"(i) : "memory");
}

static void add(uint64_t i)
{
	metric_add(count, 1);
	nothing(i);
}

static void observe(uint64_t i)
{
	metric_observe(hist[0], 1000 + (i & 0xffff));
}

static void look(uint64_t i)
{
	nothing(clock_mono_ns());
}

/* Of one request that changes something: what was not done before there were metrics. */
static void change(uint64_t i)
{
	uint64_t began = clock_mono_ns(), append = clock_mono_ns(), end;

	metric_add(count, 1);				   /* in flight */
	metric_observe(hist[0], clock_mono_ns() - append); /* log */
	end = clock_mono_ns();
	metric_observe(hist[1], end - began); /* operation */
	metric_add(count, (uint64_t)-1);
	metric_observe(hist[2], end - began);	  /* commit wait */
	metric_observe(hist[3], 1100 + (i & 15)); /* record */
	metric_add(count, 1024);		  /* bytes */
	metric_observe(hist[4], end - began);	  /* acknowledgement of a mirror */
	metric_observe(hist[5], end - began);	  /* wire */
}

/* The best of many short rounds: what others do on the machine then disturbs least. */
static void measure(const char *what, void (*fn)(uint64_t i))
{
	uint64_t best = UINT64_MAX;

	for (unsigned r = 0; r < ROUNDS; r++) {
		uint64_t began = clock_mono_ns(), took;

		for (uint64_t i = 0; i < CALLS; i++)
			fn(i);
		took = clock_mono_ns() - began;
		best = took < best ? took : best;
	}
	printf("%-32s %7.2f ns\n", what, (double)best / CALLS);
}

int main(void)
{
	struct metrics *m = metrics_create();
	char name[2] = "0";

	count = metrics_series(m, &count_def, NULL);
	for (; name[0] < '8'; name[0]++)
		hist[name[0] - '0'] = metrics_series(m, &time_def, "i", name, NULL);
	measure("a call", nothing);
	measure("an addition", add);
	measure("an observation", observe);
	measure("a look at the clock", look);
	measure("all of a change with a mirror", change);
	metrics_destroy(m);
	return 0;
}
