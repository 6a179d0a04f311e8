/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_IMAGE_OBJ_H
#define KVFS_FS_IMAGE_OBJ_H
/* What each checkpointed object (inode, name, chunk of a large value) carries: see image.h. All
 * under the store's lock. All zero: an object the image does not know yet. */
#include <assert.h>
#include <stdint.h>
#include <urcu/list.h>

struct image_obj {
	struct cds_list_head node; /* the dirty list, or the list of the segment that holds it */
	/* segment that holds the newest copy; 0: dirty; IMAGE_SEG_INFLIGHT */
	uint32_t seg;
	/* of that copy; dirty: estimate; in flight: index in the batch */
	uint32_t bytes : 24;
	uint32_t kind : 3;         /* enum image_kind */
	uint32_t parity : 1;       /* dirty: that of the checkpoint it belongs to */
	uint32_t persisted : 1;    /* some segment may hold a copy: removal needs a tombstone */
};
static_assert(sizeof(struct image_obj) == 24, "part of the 256 bytes of metadata a key may take");

#endif
