/* SPDX-License-Identifier: Apache-2.0 */
/* The line of progress: see progress.h. */
#include "mkfs/progress.h"

#include "common/clock.h"

#include <stdio.h>
#include <unistd.h>

#define REDRAW_NS (NSEC_PER_SEC / 10)

void progress_init(struct progress *p, bool force, bool quiet)
{
	*p = (struct progress){ .tty = isatty(STDERR_FILENO) == 1 };
	p->enabled = !quiet && (force || p->tty);
}

static void progress_draw(struct progress *p, unsigned percent)
{
	if (p->drawn && p->percent == percent)
		return;
	fprintf(stderr, p->tty ? "\r%s: %3u %%" : "%s: %u %%\n", p->what, percent);
	fflush(stderr);
	p->drawn = true;
	p->percent = percent;
}

void progress_begin(struct progress *p, const char *what)
{
	progress_end(p);
	p->what = what;
	p->next_ns = 0;
	if (p->enabled)
		progress_draw(p, 0);
}

void progress_update(struct progress *p, uint64_t done, uint64_t total)
{
	uint64_t now;

	if (!p->enabled || total == 0)
		return;
	now = clock_mono_ns();
	if (now < p->next_ns && done < total)
		return;
	p->next_ns = now + REDRAW_NS;
	progress_draw(p, done >= total ? 100 : (unsigned)((double)done * 100 / (double)total));
}

void progress_end(struct progress *p)
{
	if (p->drawn && p->tty)
		fputs("\r\033[K", stderr);
	p->drawn = false;
}
