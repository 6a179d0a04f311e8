/* SPDX-License-Identifier: Apache-2.0 */
/* The system's clocks: see clock.h. */
#include "common/clock.h"

#include <stdatomic.h>
#include <time.h>

static _Atomic uint64_t last_real_ns;

static uint64_t clock_read_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

uint64_t clock_mono_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC);
}

uint64_t clock_real_ns(void)
{
	uint64_t now = clock_read_ns(CLOCK_REALTIME);
	uint64_t last = atomic_load_explicit(&last_real_ns, memory_order_relaxed);

	while (now > last) {
		if (atomic_compare_exchange_weak_explicit(
			    &last_real_ns, &last, now, memory_order_relaxed, memory_order_relaxed))
			return now;
	}
	return last;
}
