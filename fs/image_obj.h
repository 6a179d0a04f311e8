/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_IMAGE_OBJ_H
#define KVFS_FS_IMAGE_OBJ_H
/* What each checkpointed object (inode, name, chunk of a large value) carries: see fs/image.h. */
#include <stdint.h>
#include <urcu/list.h>

struct image_obj {
	struct cds_list_head node; /* the dirty list, or the list of the segment that holds it */
	uint32_t seg;              /* segment that holds the newest copy; 0: dirty (or brand new) */
	uint32_t gen;              /* checkpoint generation in which it was last dirtied */
	uint32_t seg_bytes;        /* bytes of that copy */
	uint32_t persisted;        /* non-zero: some kept segment has a copy, so removal needs a tombstone */
};

#endif
