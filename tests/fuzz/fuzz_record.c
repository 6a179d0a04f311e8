/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the record decoder, as log recovery runs it over a pool's bytes. What it accepts
 * must encode to the same bytes again. Since a fuzzer doesn't find checksums, each input is also
 * tried with the checksum made right (data length guessed as the decoder takes it).
 */
#include "log/record.h"

#include "common/byteorder.h"
#include "common/crc32c.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_same(const struct record *r, const uint8_t *bytes, size_t len)
{
	size_t head_len = record_head_bytes(r);
	uint8_t *head = malloc(head_len);

	if (head == NULL)
		return;
	if (record_bytes(r) != len)
		abort();
	record_encode_head(r, head);
	record_seal(head, head_len, r->lsn, r->epoch, crc32c(0, r->data, r->data_len), r->data_len);
	if (memcmp(head, bytes, head_len) != 0)
		abort();
	free(head);
}

static void walk(const uint8_t *data, size_t size)
{
	struct record r;
	size_t at = 0, bytes;

	while (record_decode(data + at, size - at, &r, &bytes) == 0) {
		if (bytes > size - at)
			abort();
		check_same(&r, data + at, bytes);
		at += bytes;
	}
}

/* Bytes of value data at the end of the record, from its unchecked fields. */
static size_t guess_data(const uint8_t *p, size_t bytes)
{
	size_t body = RECORD_HEADER_BYTES + sizeof(struct record_common), data = 0;
	unsigned opcode =
		get_be16(p + RECORD_HEADER_BYTES + offsetof(struct record_common, opcode));

	if (opcode == RECORD_WRITE && bytes >= body + sizeof(struct record_write))
		data = get_be32(p + body + offsetof(struct record_write, length));
	if ((opcode == RECORD_SETXATTR || opcode == RECORD_REMOVEXATTR) &&
	    bytes >= body + sizeof(struct record_xattr))
		data = get_be32(p + body + offsetof(struct record_xattr, value_len));
	return data > bytes - body ? 0 : data;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t bytes, data_len, at = offsetof(struct record_header, checksum);
	uint8_t *copy;
	uint32_t crc;

	walk(data, size);
	if (record_peek_bytes(data, size, &bytes) != 0 || bytes > size)
		return 0;
	copy = malloc(size);
	if (copy == NULL)
		return 0;
	memcpy(copy, data, size);
	data_len = guess_data(copy, bytes);
	put_be32(copy + at, 0);
	crc = crc32c(0, copy + bytes - data_len, data_len);
	put_be32(copy + at, crc32c(crc, copy, bytes - data_len));
	walk(copy, size);
	free(copy);
	return 0;
}
