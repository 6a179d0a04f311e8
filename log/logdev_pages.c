/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of a log file, mapped ahead: see logdev_pages.h. */
#include "log/logdev_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
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

/*
 * One huge page's place in the file: emptied, then one small page, which the kernel makes whole. A
 * hole costs it less than 512 pages to copy together. The pages are given back whatever happens.
 */
static int pages_replace(int fd, uint8_t *window, uint64_t at)
{
	int rc = 0;

	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
		      (off_t)PAGES_STEP_BYTES) != 0)
		return 0;
	if (mmap(window, PAGES_STEP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		 (off_t)at) == window)
		pages_step((uintptr_t)window, (uintptr_t)window + PAGES_STEP_BYTES);
	do
		rc = fallocate(fd, 0, (off_t)at, (off_t)PAGES_STEP_BYTES) == 0 ? 0 : -errno;
	while (rc == -EINTR); /* tmpfs gives up on a signal, and undoes it */
	return rc;
}

int pages_make_huge(int fd, uint64_t begin, uint64_t bytes)
{
	uint64_t at = (begin + PAGES_STEP_BYTES - 1) & ~(PAGES_STEP_BYTES - 1);
	uint8_t *map, *window;
	int rc = 0;

	map = mmap(NULL, 2 * PAGES_STEP_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return 0; /* slower, not wrong */
	window = (uint8_t *)(((uintptr_t)map + PAGES_STEP_BYTES - 1) &
			     ~((uintptr_t)PAGES_STEP_BYTES - 1));
	for (; rc == 0 && at + PAGES_STEP_BYTES <= bytes; at += PAGES_STEP_BYTES)
		rc = pages_replace(fd, window, at);
	munmap(map, 2 * PAGES_STEP_BYTES);
	return rc;
}
