/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_MKFS_PROGRESS_H
#define KVFS_MKFS_PROGRESS_H
/*
 * One line of progress on stderr, rewritten in place. Nothing is printed when it is not enabled,
 * and on something that is not a terminal each step is a line of its own. One thread at a time.
 */
#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool enabled;
	bool tty;
	bool drawn;           /* a line stands on the terminal */
	unsigned percent;     /* what it says */
	uint64_t next_ns;     /* no redraw before */
	const char *what;
};

/* force: also where stderr is not a terminal; quiet: never. */
void progress_init(struct progress *p, bool force, bool quiet);

/* A new step; what is a string that stays. */
void progress_begin(struct progress *p, const char *what);

/* done of total units; redraws at most ten times a second. total 0 shows nothing. */
void progress_update(struct progress *p, uint64_t done, uint64_t total);

/* Takes the line away, before other output. */
void progress_end(struct progress *p);

#endif
