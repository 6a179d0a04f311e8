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

/* For people. terminal: each line ends in what clears its rest. rows: of the terminal; 0: all. */
void top_print(const json_t *frame, FILE *out, int terminal, unsigned rows);

#endif
