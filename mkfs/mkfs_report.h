/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_MKFS_MKFS_REPORT_H
#define KVFS_MKFS_MKFS_REPORT_H
/* The summary of mkfs.kvfs on stdout, for people and for programs. */
#include "mkfs/make.h"

struct mkfs_report {
	const struct make_plan *plan;
	const struct place *place;
	enum place_medium medium;
	bool made;                 /* false: -n */
	struct volume_super super; /* made only */
};

void mkfs_report_text(const struct mkfs_report *r);
int mkfs_report_json(const struct mkfs_report *r); /* -ENOMEM */

#endif
