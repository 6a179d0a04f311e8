/* SPDX-License-Identifier: Apache-2.0 */
/* The segments of the kept checkpoint: who lives there, how many bytes, and which to
 * clean. Store's lock. */
#include "fs/store/image_internal.h"

#include "log/ckpt_format.h"

#include <errno.h>
#include <stdlib.h>

/* Its file's header and one block, however little is in it. */
#define IMAGE_SEG_BYTES_MIN (2 * CKPT_PAGE_BYTES)

static int push_seg(struct image *im)
{
	struct image_seg *s;

	if (im->seg_count == im->seg_cap) {
		uint32_t cap = im->seg_cap * 2 + 16;
		struct image_seg **grown = realloc(im->segs, cap * sizeof(struct image_seg *));

		if (!grown)
			return -ENOMEM;
		im->segs = grown;
		im->seg_cap = cap;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	CDS_INIT_LIST_HEAD(&s->objs);
	s->total_bytes = IMAGE_SEG_BYTES_MIN;
	im->segs[im->seg_count++] = s;
	return 0;
}

int image_seg_get(struct image *im, uint64_t number, struct image_seg **ret_seg)
{
	if (number == 0 || number >= IMAGE_SEG_INFLIGHT)
		return -EBADMSG;
	if (im->seg_count == 0)
		im->seg_base = (uint32_t)number;
	if (number < im->seg_base)
		return -EBADMSG;
	while (number - im->seg_base >= im->seg_count) {
		int err = push_seg(im);

		if (err)
			return err;
	}
	*ret_seg = im->segs[number - im->seg_base];
	return 0;
}

struct image_seg *image_seg_of(struct image *im, uint32_t number)
{
	assert(number >= im->seg_base && number - im->seg_base < im->seg_count);
	return im->segs[number - im->seg_base];
}

void image_seg_add_obj(struct image *im, uint32_t number, struct image_obj *obj, uint32_t bytes)
{
	struct image_seg *s = image_seg_of(im, number);

	obj->seg = number;
	obj->bytes = bytes;
	obj->persisted = 1;
	cds_list_add_tail(&obj->node, &s->objs);
	s->live_bytes += bytes;
}

void image_segs_drop_head(struct image *im, uint32_t upto)
{
	uint32_t n = 0;

	while (n < im->seg_count && im->seg_base + n <= upto) {
		assert(cds_list_empty(&im->segs[n]->objs));
		free(im->segs[n++]);
	}
	for (uint32_t i = n; i < im->seg_count; i++)
		im->segs[i - n] = im->segs[i];
	im->seg_base += n;
	im->seg_count -= n;
}

void image_segs_drop_tail(struct image *im, uint32_t count)
{
	while (im->seg_count > count) {
		assert(cds_list_empty(&im->segs[im->seg_count - 1]->objs));
		free(im->segs[--im->seg_count]);
	}
}

void image_segs_free(struct image *im)
{
	for (uint32_t i = 0; i < im->seg_count; i++)
		free(im->segs[i]);
	free(im->segs);
}

uint32_t image_segs_choose(struct image *im)
{
	uint64_t total = im->dirty_bytes, live = im->dirty_bytes;
	uint64_t budget = im->dirty_bytes > im->budget_bytes ? im->dirty_bytes : im->budget_bytes;
	uint32_t n = 0;

	if (im->tomb_lost)
		return im->seg_count ? im->seg_base + im->seg_count - 1 : 0;
	for (uint32_t i = 0; i < im->seg_count; i++) {
		total += im->segs[i]->total_bytes;
		live += im->segs[i]->live_bytes;
	}
	/* What lives in a cleaned segment is written again: total falls by its garbage only. */
	while (n < im->seg_count) {
		const struct image_seg *s = im->segs[n];
		bool worth = total > 2 * live + im->slack_bytes && budget;

		if (!worth && s->live_bytes)
			break;
		budget -= s->live_bytes < budget ? s->live_bytes : budget;
		total -= s->total_bytes -
			 (s->live_bytes < s->total_bytes ? s->live_bytes : s->total_bytes);
		n++;
	}
	return n ? im->seg_base + n - 1 : 0;
}
