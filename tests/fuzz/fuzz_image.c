/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target for the decoder of checkpoint items: the first byte is the type. What decodes must
 * stay within its bounds and encode to the same bytes again. Corpus: tests/fuzz/corpus/image.
 */
#include "fs/store/image_item.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t head[IMAGE_HEAD_MAX];
	struct image_item it;
	size_t head_len;

	if (size < 1 || image_item_decode(data[0], data + 1, size - 1, &it) != 0)
		return 0;
	must(it.text_len <= 4095 && it.bytes_len <= it.cap);
	head_len = image_item_encode_head(&it, head);
	must(head_len + it.xattr_len + it.bytes_len == size - 1);
	must(memcmp(head, data + 1, head_len) == 0);
	must(!it.xattr_len || (const uint8_t *)it.xattrs == data + 1 + head_len);
	must(!it.bytes_len || (const uint8_t *)it.bytes + it.bytes_len == data + size);
	return 0;
}
