/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records: each operation survives encode, seal, decode; the decoder refuses everything else. Also
 * writes the fuzz corpus: "test_record --corpus DIR".
 */
#include "log/record.h"

#include "common/byteorder.h"
#include "common/crc32c.h"
#include "tests/unit/unit_main.h"

#include <assert.h>
#include <errno.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BUF_BYTES 8192
#define HEAD 56 /* header and common part */

static const char long_target[4096] = { [0 ... 4094] = 't' };

static const struct record samples[] = {
	{ .opcode = RECORD_GENERATION,
	  .u.generation = { .uuid = { 1, 2, 3 },
			    .generation = 7,
			    .format_version = 1,
			    .node_id = 9 } },
	{ .opcode = RECORD_NOOP },
	{ .opcode = RECORD_CREATE,
	  .ino = 5,
	  .gen = 1,
	  .name = "file",
	  .name_len = 4,
	  .u.create = { .parent_ino = 1, .mode = S_IFREG | 0644, .uid = 10, .gid = 20 } },
	{ .opcode = RECORD_CREATE,
	  .ino = 5,
	  .name = "link",
	  .name_len = 4,
	  .name2 = long_target,
	  .name2_len = 4095,
	  .u.create = { .parent_ino = 1, .mode = S_IFLNK | 0777 } },
	{ .opcode = RECORD_CREATE,
	  .ino = 5,
	  .name = "dev",
	  .name_len = 3,
	  .u.create = { .parent_ino = 1, .mode = S_IFCHR | 0600, .rdev = 0x103 } },
	{ .opcode = RECORD_WRITE,
	  .ino = 5,
	  .gen = 2,
	  .data = "hello",
	  .data_len = 5,
	  .u.write = { .offset = 1ULL << 40, .clear_suid = true } },
	{ .opcode = RECORD_SETATTR,
	  .ino = 5,
	  .u.setattr = { .valid_mask = RECORD_SET_ALL,
			 .mode = 04755,
			 .uid = 1,
			 .gid = 2,
			 .size = 1ULL << 43,
			 .atime_ns = 3,
			 .mtime_ns = 4,
			 .ctime_ns = 5 } },
	{ .opcode = RECORD_SETATTR,
	  .ino = 5,
	  .u.setattr = { .valid_mask = RECORD_SET_SIZE, .size = 77 } },
	{ .opcode = RECORD_LINK, .ino = 5, .name = "...", .name_len = 3, .u.link = { 1 } },
	{ .opcode = RECORD_UNLINK, .ino = 5, .name = "d", .name_len = 1, .u.unlink = { 1, true } },
	{ .opcode = RECORD_RENAME,
	  .ino = 5,
	  .name = "old",
	  .name_len = 3,
	  .name2 = "newer",
	  .name2_len = 5,
	  .u.rename = { 1, 2, 6, 2 } },
	{ .opcode = RECORD_FALLOCATE,
	  .ino = 5,
	  .u.fallocate = { 4096, 8192, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE } },
	{ .opcode = RECORD_COPY, .ino = 5, .u.copy = { 6, 1, 2, 3 } },
	{ .opcode = RECORD_SETXATTR,
	  .ino = 5,
	  .name = "user.a/b",
	  .name_len = 8,
	  .data = "v",
	  .data_len = 1 },
	{ .opcode = RECORD_SETXATTR, .ino = 5, .name = "user.empty", .name_len = 10 },
	{ .opcode = RECORD_REMOVEXATTR, .ino = 5, .name = "user.a", .name_len = 6 },
	{ .opcode = RECORD_INODE_FREE, .ino = 5, .gen = 3 },
};
#define SAMPLE_COUNT ((int)(sizeof(samples) / sizeof(samples[0])))

static size_t encode(const struct record *r, uint8_t out[BUF_BYTES])
{
	size_t head = record_head_bytes(r);

	assert(head + r->data_len <= BUF_BYTES && head + r->data_len == record_bytes(r));
	record_encode_head(r, out);
	if (r->data_len > 0)
		memcpy(out + head, r->data, r->data_len);
	record_seal(out, head, 1000, 3, crc32c(0, r->data, r->data_len), r->data_len);
	return record_bytes(r);
}

/* Makes the checksum right again after a test changed bytes. */
static void reseal(uint8_t *buf, size_t len, size_t data_len)
{
	size_t head = len - data_len;

	put_be32(buf + 28, 0);
	put_be32(buf + 28, crc32c(crc32c(0, buf + head, data_len), buf, head));
}

static int decode(const uint8_t *buf, size_t len)
{
	struct record r;
	size_t bytes;

	return record_decode(buf, len, &r, &bytes);
}

static void assert_same_bytes(const void *a, const void *b, size_t len)
{
	if (len > 0)
		ck_assert_mem_eq(a, b, len);
	else
		ck_assert_ptr_null(a);
}

START_TEST(round_trip)
{
	const struct record *want = &samples[_i];
	uint8_t buf[BUF_BYTES], again[BUF_BYTES];
	struct record r;
	size_t len = encode(want, buf), bytes = 0;

	ck_assert_int_eq(record_peek_bytes(buf, len, &bytes), 0);
	ck_assert_uint_eq(bytes, len);
	bytes = 0;
	ck_assert_int_eq(record_decode(buf, sizeof(buf), &r, &bytes), 0);
	ck_assert_uint_eq(bytes, len);
	ck_assert_uint_eq(r.lsn, 1000);
	ck_assert_uint_eq(r.epoch, 3);
	ck_assert_uint_eq(r.ino, want->ino);
	ck_assert_uint_eq(r.gen, want->gen);
	ck_assert_int_eq(r.opcode, want->opcode);
	ck_assert_uint_eq(r.name_len, want->name_len);
	ck_assert_uint_eq(r.name2_len, want->name2_len);
	ck_assert_uint_eq(r.data_len, want->data_len);
	assert_same_bytes(r.name, want->name, want->name_len);
	assert_same_bytes(r.name2, want->name2, want->name2_len);
	assert_same_bytes(r.data, want->data, want->data_len);
	ck_assert_uint_eq(encode(&r, again), len);
	ck_assert_mem_eq(again, buf, len);
}
END_TEST

START_TEST(every_changed_bit_is_refused)
{
	uint8_t buf[BUF_BYTES];
	size_t len = encode(&samples[_i], buf), at;

	for (at = 0; at < len; at++) {
		int rc;

		buf[at] ^= (uint8_t)(1U << (at % 8));
		rc = decode(buf, len);
		/* A changed length may also ask for more bytes. */
		ck_assert(rc == -EBADMSG || (rc == -EAGAIN && at >= 24 && at < 28));
		buf[at] ^= (uint8_t)(1U << (at % 8));
	}
	ck_assert_int_eq(decode(buf, len), 0);
}
END_TEST

START_TEST(short_buffers_ask_for_more)
{
	uint8_t buf[BUF_BYTES];
	size_t len = encode(&samples[_i], buf), n;

	for (n = 0; n < len; n++)
		ck_assert_int_eq(decode(buf, n), -EAGAIN);
}
END_TEST

START_TEST(flags_and_lsn_zero_are_refused)
{
	uint8_t buf[BUF_BYTES];
	size_t len = encode(&samples[_i], buf), data_len = samples[_i].data_len;

	buf[51] = 1;
	reseal(buf, len, data_len);
	ck_assert_int_eq(decode(buf, len), -EBADMSG);
	buf[51] = 0;
	reseal(buf, len, data_len);
	ck_assert_int_eq(decode(buf, len), 0);
	put_be64(buf, 0);
	reseal(buf, len, data_len);
	ck_assert_int_eq(decode(buf, len), -EBADMSG);
}
END_TEST

static int try_record(const struct record *r)
{
	uint8_t buf[BUF_BYTES];

	return decode(buf, encode(r, buf));
}

static int try_link(const char *name, uint32_t len)
{
	return try_record(&(struct record){ .opcode = RECORD_LINK, .ino = 5, .name = name,
					    .name_len = len, .u.link = { 1 } });
}

START_TEST(names)
{
	char name[257];

	memset(name, 'n', sizeof(name));
	ck_assert_int_eq(try_link(name, 255), 0);
	ck_assert_int_eq(try_link(name, 256), -EBADMSG);
	ck_assert_int_eq(try_link(name, 0), -EBADMSG);
	ck_assert_int_eq(try_link(".", 1), -EBADMSG);
	ck_assert_int_eq(try_link("..", 2), -EBADMSG);
	ck_assert_int_eq(try_link(".a", 2), 0);
	ck_assert_int_eq(try_link("...", 3), 0);
	ck_assert_int_eq(try_link("a/b", 3), -EBADMSG);
	ck_assert_int_eq(try_link("a\0b", 3), -EBADMSG);
	ck_assert_int_eq(try_link("\xff\x01\n", 3), 0);
}
END_TEST

START_TEST(refused_operations)
{
	static const struct record bad[] = {
		{ .opcode = RECORD_INODE_FREE },
		{ .opcode = RECORD_GENERATION, .ino = 1, .u.generation.generation = 1 },
		{ .opcode = RECORD_GENERATION },
		/* type, mode bits, device number, link target, parent */
		{ .opcode = RECORD_CREATE, .ino = 5, .name = "f", .name_len = 1,
		  .u.create = { .parent_ino = 1, .mode = 0644 } },
		{ .opcode = RECORD_CREATE, .ino = 5, .name = "f", .name_len = 1,
		  .u.create = { .parent_ino = 1, .mode = S_IFREG | 0x10000 } },
		{ .opcode = RECORD_CREATE, .ino = 5, .name = "f", .name_len = 1,
		  .u.create = { .parent_ino = 1, .mode = S_IFREG, .rdev = 1 } },
		{ .opcode = RECORD_CREATE, .ino = 5, .name = "f", .name_len = 1, .name2 = "t",
		  .name2_len = 1, .u.create = { .parent_ino = 1, .mode = S_IFREG } },
		{ .opcode = RECORD_CREATE, .ino = 5, .name = "f", .name_len = 1,
		  .u.create = { .parent_ino = 1, .mode = S_IFLNK } },
		{ .opcode = RECORD_CREATE, .ino = 5, .name = "f", .name_len = 1, .name2 = "a\0b",
		  .name2_len = 3, .u.create = { .parent_ino = 1, .mode = S_IFLNK } },
		{ .opcode = RECORD_CREATE, .ino = 5, .name = "f", .name_len = 1,
		  .name2 = long_target, .name2_len = 4096,
		  .u.create = { .parent_ino = 1, .mode = S_IFLNK } },
		{ .opcode = RECORD_CREATE, .ino = 5, .name = "f", .name_len = 1,
		  .u.create = { .mode = S_IFREG } },
		{ .opcode = RECORD_WRITE, .ino = 5, .data = "xy", .data_len = 2,
		  .u.write.offset = (1ULL << 43) - 1 },
		{ .opcode = RECORD_WRITE, .ino = 5, .data = "xy", .data_len = 2,
		  .u.write.offset = UINT64_MAX },
		{ .opcode = RECORD_SETATTR, .ino = 5, .u.setattr.valid_mask = 256 },
		{ .opcode = RECORD_SETATTR, .ino = 5,
		  .u.setattr = { .valid_mask = RECORD_SET_MODE, .mode = 010000 } },
		{ .opcode = RECORD_SETATTR, .ino = 5,
		  .u.setattr = { .valid_mask = RECORD_SET_SIZE, .size = (1ULL << 43) + 1 } },
		{ .opcode = RECORD_LINK, .ino = 5, .name = "f", .name_len = 1 },
		{ .opcode = RECORD_RENAME, .ino = 5, .name = "o", .name_len = 1, .name2 = "n",
		  .name2_len = 1, .u.rename = { 1, 2, 0, 2 } },
		{ .opcode = RECORD_RENAME, .ino = 5, .name = "o", .name_len = 1, .name2 = "n",
		  .name2_len = 1, .u.rename = { 1, 2, 3, 1 } },
		{ .opcode = RECORD_RENAME, .ino = 5, .name = "o", .name_len = 1, .name2 = "..",
		  .name2_len = 2, .u.rename = { 1, 2, 0, 0 } },
		{ .opcode = RECORD_FALLOCATE, .ino = 5, .u.fallocate = { 0, 0, 0 } },
		{ .opcode = RECORD_FALLOCATE, .ino = 5,
		  .u.fallocate = { 0, 1, FALLOC_FL_PUNCH_HOLE } },
		{ .opcode = RECORD_FALLOCATE, .ino = 5,
		  .u.fallocate = { 0, 1, FALLOC_FL_COLLAPSE_RANGE } },
		{ .opcode = RECORD_FALLOCATE, .ino = 5, .u.fallocate = { UINT64_MAX, 2, 0 } },
		{ .opcode = RECORD_FALLOCATE, .ino = 5, .u.fallocate = { 2, UINT64_MAX, 0 } },
		{ .opcode = RECORD_COPY, .ino = 5, .u.copy = { 0, 0, 0, 1 } },
		{ .opcode = RECORD_COPY, .ino = 5, .u.copy = { 6, UINT64_MAX, 0, 1 } },
		{ .opcode = RECORD_COPY, .ino = 5, .u.copy = { 6, 0, 1ULL << 43, 1 } },
		{ .opcode = RECORD_SETXATTR, .ino = 5 },
		{ .opcode = RECORD_SETXATTR, .ino = 5, .name = "a\0b", .name_len = 3 },
	};
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(try_record(&bad[i]) == -EBADMSG, "case %zu", i);
}
END_TEST

/* Sets one byte of a good record's body; the checksum is right, the meaning is not. */
START_TEST(refused_bytes)
{
	static const struct {
		int sample, at;
		uint8_t value;
	} bad[] = {
		{ 1, 49, 0 },                        /* opcode 0 */
		{ 1, 49, RECORD_OPCODE_END },
		{ 1, 55, 1 },                        /* fixed_len */
		{ 2, HEAD + 31, 1 },                 /* create: zero */
		{ 2, HEAD + 25, 3 },                 /* create: name_len */
		{ 5, HEAD + 15, 2 },                 /* write: clear_suid */
		{ 7, HEAD + 7, 1 },                  /* setattr: mode without its bit */
		{ 8, HEAD + 12, 1 },                 /* link: zero */
		{ 9, HEAD + 11, 2 },                 /* unlink: is_dir */
		{ 9, HEAD + 15, 1 },                 /* unlink: zero */
		{ 11, HEAD + 23, 1 },                /* fallocate: zero */
		{ 13, HEAD + 3, 1 },                 /* xattr: zero */
		{ 15, HEAD + 1, 5 },                 /* removexattr: name_len short */
	};
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const struct record *r = &samples[bad[i].sample];
		uint8_t buf[BUF_BYTES];
		size_t len = encode(r, buf);

		buf[bad[i].at] = bad[i].value;
		reseal(buf, len, r->data_len);
		ck_assert_msg(decode(buf, len) == -EBADMSG, "case %zu", i);
	}
}
END_TEST

START_TEST(length_limits)
{
	uint8_t buf[BUF_BYTES] = { 0 };
	size_t bytes = 17;

	put_be32(buf + 24, 15);
	ck_assert_int_eq(record_peek_bytes(buf, sizeof(buf), &bytes), -EBADMSG);
	put_be32(buf + 24, RECORD_BYTES_MAX - 39);
	ck_assert_int_eq(record_peek_bytes(buf, sizeof(buf), &bytes), -EBADMSG);
	put_be32(buf + 24, UINT32_MAX);
	ck_assert_int_eq(record_peek_bytes(buf, sizeof(buf), &bytes), -EBADMSG);
	ck_assert_uint_eq(bytes, 17);
	put_be32(buf + 24, RECORD_BYTES_MAX - 40);
	ck_assert_int_eq(record_peek_bytes(buf, 40, &bytes), 0);
	ck_assert_uint_eq(bytes, RECORD_BYTES_MAX);
}
END_TEST

START_TEST(opcode_names)
{
	ck_assert_str_eq(record_opcode_name(RECORD_WRITE), "write");
	ck_assert_str_eq(record_opcode_name((enum record_opcode)0), "invalid");
	ck_assert_str_eq(record_opcode_name(RECORD_OPCODE_END), "invalid");
}
END_TEST

static int write_corpus(const char *dir)
{
	int i;

	for (i = 0; i < SAMPLE_COUNT; i++) {
		uint8_t buf[BUF_BYTES];
		size_t len = encode(&samples[i], buf);
		char path[4096];
		FILE *f;

		snprintf(path, sizeof(path), "%s/%02d-%s", dir, i,
			 record_opcode_name(samples[i].opcode));
		f = fopen(path, "wb");
		if (f == NULL || fwrite(buf, 1, len, f) != len || fclose(f) != 0)
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	Suite *s;
	TCase *t;

	if (argc == 3 && strcmp(argv[1], "--corpus") == 0)
		return write_corpus(argv[2]);
	s = suite_create("record");
	t = tcase_create("all");
	tcase_add_loop_test(t, round_trip, 0, SAMPLE_COUNT);
	tcase_add_loop_test(t, every_changed_bit_is_refused, 0, SAMPLE_COUNT);
	tcase_add_loop_test(t, short_buffers_ask_for_more, 0, SAMPLE_COUNT);
	tcase_add_loop_test(t, flags_and_lsn_zero_are_refused, 0, SAMPLE_COUNT);
	tcase_add_test(t, names);
	tcase_add_test(t, refused_operations);
	tcase_add_test(t, refused_bytes);
	tcase_add_test(t, length_limits);
	tcase_add_test(t, opcode_names);
	suite_add_tcase(s, t);
	return unit_run(s);
}
