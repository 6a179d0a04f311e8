/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_TOP_H
#define KVFS_FS_TOP_H
/* kvfs top: from two replies of the control socket's "metrics" to a frame, and its text. Pure. */
#include <jansson.h>
#include <stdio.h>

/*
 * What happened between the two replies, and how things stand at the later one: the object that
 * --json prints, described in top_frame.c. NULL: no memory, or no such replies.
 */
json_t *top_frame(const json_t *before, const json_t *after);

/* What a terminal has room for; rows is 0 where there is none: all, and no control codes. */
struct top_screen {
	unsigned rows, columns;
};

/* For people. On a terminal each line ends in what clears its rest, and is cut where the screen
 * ends: one that wraps would push the first line off it. */
void top_print(const json_t *frame, FILE *out, struct top_screen screen);

#endif
