/* SPDX-License-Identifier: Apache-2.0 */
#include "log/logdev_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

static void pages_step(uintptr_t begin, uintptr_t end)
{
	uintptr_t huge = (begin + PAGES_STEP_BYTES - 1) & ~(uintptr_t)(PAGES_STEP_BYTES - 1);

	/* collapsing wants at least one page of the range mapped */
	if (huge == begin && end - begin == PAGES_STEP_BYTES &&
	    madvise((void *)begin, (size_t)sysconf(_SC_PAGESIZE), MADV_POPULATE_WRITE) == 0 &&
	    madvise((void *)begin, PAGES_STEP_BYTES, MADV_COLLAPSE) == 0)
		return;
	(void)madvise((void *)begin, end - begin, MADV_POPULATE_WRITE);
}

void pages_ahead_reach(struct pages_ahead *p, uint64_t end)
{
	uint64_t want = end + PAGES_STEP_BYTES;

	if (want > p->bytes)
		want = p->bytes;
	while (p->ready < want) {
		/* the first step ends at a huge-page boundary of the address, the others
		 * keep to them */
		uintptr_t begin = p->base + p->ready;
		uintptr_t next = (begin + PAGES_STEP_BYTES) & ~(uintptr_t)(PAGES_STEP_BYTES - 1);
		uint64_t left = p->bytes - p->ready;

		if (next - begin > left)
			next = begin + left;
		begin &= ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
		pages_step(begin, next);
		p->ready = next - p->base;
	}
}

void pages_ahead_restart(struct pages_ahead *p)
{
	p->ready = 0;
}
