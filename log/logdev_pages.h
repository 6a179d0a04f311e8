/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_LOGDEV_PAGES_H
#define KVFS_LOG_LOGDEV_PAGES_H
/*
 * Mapping a log file's pages ahead of the append. A page fault in the append path costs several
 * times the append itself (in a virtual machine 10 µs and more), so pages are mapped in steps of
 * PAGES_STEP_BYTES, as one huge page where the kernel can collapse them (tmpfs), else populated in
 * one call. For ordinary files only: contents are never changed. One thread at a time: the writer.
 *
 * Small pages of a file that nobody touched yet cost the most, even when they are merged: 5 ms for
 * 2 MiB on such a machine, 0.1 ms once they were one huge page. So a pool on tmpfs is made of huge
 * pages when it is created.
 */
#include <stdint.h>

#define PAGES_STEP_BYTES (2ULL << 20)

struct pages_ahead {
	uintptr_t base;
	uint64_t bytes; /* of the mapping */
	uint64_t ready; /* mapped up to here since the last restart */
};

/* Makes [0, end + one step) of the mapping ready; cheap when it is. Failure is harmless: pages
 * fault as usual. */
void pages_ahead_reach(struct pages_ahead *p, uint64_t end);

/* The writer goes back to the beginning, or pages were dropped. */
void pages_ahead_restart(struct pages_ahead *p);

/*
 * A new file's [begin, bytes), all zeros, in huge pages, where the kernel can make them; small ones
 * else. -ENOSPC, -EDQUOT: there is no room left, the file is not whole.
 */
int pages_make_huge(int fd, uint64_t begin, uint64_t bytes);

#endif
