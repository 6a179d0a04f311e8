/* SPDX-License-Identifier: Apache-2.0 */
/* Superblock, key file and lock of a volume, and the errors of opening what is damaged. */
#include "log/volume.h"

#include "common/byteorder.h"
#include "common/crc32c.h"
#include "common/io.h"
#include "log/volume_format.h"
#include "tests/unit/unit_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[256];
static int dirfd;
static uint8_t key[VOLUME_KEY_BYTES];

static struct volume_super sample_super(void)
{
	struct volume_super s = {
		.format_version = VOLUME_FORMAT_VERSION,
		.state = VOLUME_READY,
		.node_id = 0x01020304,
		.log_bytes = 32ULL << 20,
		.created_ns = 1700000000123456789ULL,
		.promised_epoch = 7,
		.promised_node = 8,
		.promised_life = 0x89abcdef,
		.epochs = { .count = 1, .entry = { { 7, 1, 8, 0x89abcdef } } },
		.label = "l\303\244bel",
	};

	memset(s.uuid, 0xa5, sizeof(s.uuid));
	volume_key_id(key, s.key_id);
	return s;
}

static void make_volume(void)
{
	struct volume v = { .dirfd = dirfd, .lockfd = -1, .super = sample_super() };

	ck_assert_int_eq(volume_lock(dirfd, VOLUME_LOCK_CREATE, &v.lockfd), 0);
	ck_assert_int_eq(volume_write_super(&v), 0);
	close(v.lockfd);
	ck_assert_int_eq(volume_key_write(dirfd, VOLUME_KEY_NAME, key, v.super.uuid), 0);
}

static void setup(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/kvfs-volume-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dirfd, 0);
	memset(key, 0x5a, sizeof(key));
	make_volume();
}

static void teardown(void)
{
	unlinkat(dirfd, VOLUME_SUPERBLOCK_NAME, 0);
	unlinkat(dirfd, VOLUME_KEY_NAME, 0);
	close(dirfd);
	rmdir(dir);
}

static void poke(off_t off, const void *data, size_t len)
{
	int fd = openat(dirfd, VOLUME_SUPERBLOCK_NAME, O_WRONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(io_pwrite_full(fd, data, len, off), 0);
	close(fd);
}

static void peek(off_t off, void *data, size_t len)
{
	int fd = openat(dirfd, VOLUME_SUPERBLOCK_NAME, O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(io_pread_full(fd, data, len, off), 0);
	close(fd);
}

static void damage_copy(unsigned copy)
{
	poke((off_t)copy * VOLUME_SUPER_COPY_OFFSET + 40, "\377\377\377\377", 4);
}

/* Sets one big-endian field of both copies, with a right checksum. */
static void forge_field(size_t offset, uint32_t value)
{
	uint8_t buf[VOLUME_SUPER_BYTES];

	peek(0, buf, sizeof(buf));
	put_be32(buf + offset, value);
	put_be32(buf + offsetof(struct volume_media, checksum), 0);
	put_be32(buf + offsetof(struct volume_media, checksum), crc32c(0, buf, sizeof(buf)));
	poke(0, buf, sizeof(buf));
	poke(VOLUME_SUPER_COPY_OFFSET, buf, sizeof(buf));
}

static void expect_refusal(int err, const char *part)
{
	struct volume *v = NULL;
	const char *why = NULL;

	ck_assert_int_eq(volume_open(dir, false, &v, &why), err);
	ck_assert_ptr_null(v);
	ck_assert_ptr_nonnull(why);
	ck_assert_ptr_nonnull(strstr(why, part));
	ck_assert_ptr_null(strchr(why, '\n'));
}

static struct volume *expect_open(void)
{
	struct volume *v = NULL;
	const char *why = "";

	ck_assert_msg(volume_open(dir, false, &v, &why) == 0, "%s", why);
	return v;
}

START_TEST(opens_what_was_written)
{
	struct volume *v = expect_open();
	struct volume_super want = sample_super();

	ck_assert_mem_eq(v->super.uuid, want.uuid, 16);
	ck_assert_str_eq(v->super.label, want.label);
	ck_assert_uint_eq(v->super.node_id, want.node_id);
	ck_assert_uint_eq(v->super.log_bytes, want.log_bytes);
	ck_assert_uint_eq(v->super.created_ns, want.created_ns);
	ck_assert_uint_eq(v->super.promised_epoch, want.promised_epoch);
	ck_assert_uint_eq(v->super.promised_node, want.promised_node);
	ck_assert_uint_eq(v->super.promised_life, want.promised_life);
	ck_assert(epochs_equal(&v->super.epochs, &want.epochs));
	ck_assert_mem_eq(v->key, key, sizeof(key));
	ck_assert_int_eq(v->path[0], '/');
	ck_assert(!v->used_second_copy);
	volume_close(v);
	volume_close(NULL);
}
END_TEST

START_TEST(first_copy_damaged_uses_second)
{
	struct volume *v;

	damage_copy(0);
	v = expect_open();
	ck_assert(v->used_second_copy);
	ck_assert_uint_eq(v->super.promised_epoch, 7);
	ck_assert_int_eq(volume_write_super(v), 0);
	volume_close(v);
	v = expect_open();
	ck_assert(!v->used_second_copy);
	volume_close(v);
}
END_TEST

START_TEST(second_copy_damaged_is_written_first)
{
	struct volume *v;

	damage_copy(1);
	v = expect_open();
	ck_assert_uint_eq(v->copy, 0);
	ck_assert_int_eq(volume_write_super(v), 0);
	volume_close(v);
	damage_copy(0);
	volume_close(expect_open());
}
END_TEST

START_TEST(both_copies_damaged)
{
	damage_copy(0);
	damage_copy(1);
	expect_refusal(-EBADMSG, "both copies");
}
END_TEST

START_TEST(no_magic_is_not_a_volume)
{
	poke(0, "xxxx", 4);
	poke(VOLUME_SUPER_COPY_OFFSET, "xxxx", 4);
	expect_refusal(-ENODATA, "not a kvfs volume");
	unlinkat(dirfd, VOLUME_SUPERBLOCK_NAME, 0);
	expect_refusal(-ENODATA, "no superblock");
}
END_TEST

START_TEST(wrong_version)
{
	for (int step = -1; step <= 1; step += 2) {
		forge_field(offsetof(struct volume_media, format_version),
			    (uint32_t)(VOLUME_FORMAT_VERSION + step));
		expect_refusal(-EPROTONOSUPPORT, "another version");
	}
}
END_TEST

START_TEST(unknown_incompat_feature)
{
	forge_field(offsetof(struct volume_media, feature_incompat), 1U << 31);
	expect_refusal(-EPROTONOSUPPORT, "another version");
}
END_TEST

START_TEST(unknown_compat_feature_is_fine)
{
	forge_field(offsetof(struct volume_media, feature_compat), 1U << 31);
	volume_close(expect_open());
}
END_TEST

START_TEST(fields_out_of_range)
{
	forge_field(offsetof(struct volume_media, state), VOLUME_RESYNCING + 1);
	expect_refusal(-EBADMSG, "both copies");
	forge_field(offsetof(struct volume_media, state), VOLUME_READY);
	forge_field(offsetof(struct volume_media, label_len), 64);
	expect_refusal(-EBADMSG, "both copies");
}
END_TEST

START_TEST(incomplete)
{
	forge_field(offsetof(struct volume_media, state), VOLUME_INCOMPLETE);
	expect_refusal(-EUCLEAN, "incomplete");
}
END_TEST

START_TEST(locked)
{
	struct volume *v = expect_open(), *probe = NULL;
	const char *why = NULL;

	expect_refusal(-EBUSY, "in use");
	ck_assert_int_eq(volume_open(dir, true, &probe, &why), 0);
	volume_close(probe);
	volume_close(v);
	volume_close(expect_open());
}
END_TEST

START_TEST(wrong_key)
{
	uint8_t other[VOLUME_KEY_BYTES] = { 1 };
	struct volume_super s = sample_super();

	ck_assert_int_eq(volume_key_write(dirfd, VOLUME_KEY_NAME, other, s.uuid), 0);
	expect_refusal(-EKEYREJECTED, "another volume");
	s.uuid[0] ^= 1;
	ck_assert_int_eq(volume_key_write(dirfd, VOLUME_KEY_NAME, key, s.uuid), 0);
	expect_refusal(-EKEYREJECTED, "another volume");
	unlinkat(dirfd, VOLUME_KEY_NAME, 0);
	expect_refusal(-EKEYREJECTED, "missing");
}
END_TEST

START_TEST(no_directory)
{
	struct volume *v = NULL;
	const char *why = NULL;

	ck_assert_int_eq(volume_open("/nonexistent/volume", false, &v, &why), -ENOENT);
	ck_assert_int_eq(volume_open("/dev/null", false, &v, &why), -ENOTDIR);
}
END_TEST

/* A stop between the two writes leaves either the old or the new state, never none. */
START_TEST(crash_between_the_copies)
{
	uint8_t old[VOLUME_SUPER_COPIES][VOLUME_SUPER_BYTES];
	struct volume *v = expect_open();

	for (unsigned i = 0; i < VOLUME_SUPER_COPIES; i++)
		peek((off_t)i * VOLUME_SUPER_COPY_OFFSET, old[i], VOLUME_SUPER_BYTES);
	v->super.promised_epoch = 8;
	ck_assert_int_eq(volume_write_super(v), 0);
	volume_close(v);
	/* Only the second copy was written: the newer one counts. */
	poke(0, old[0], VOLUME_SUPER_BYTES);
	v = expect_open();
	ck_assert_uint_eq(v->super.promised_epoch, 8);
	ck_assert_uint_eq(v->copy, 1);
	ck_assert(!v->used_second_copy);
	volume_close(v);
	/* The second write was torn: the old one is whole. */
	damage_copy(1);
	v = expect_open();
	ck_assert_uint_eq(v->super.promised_epoch, 7);
	volume_close(v);
}
END_TEST

START_TEST(key_file_forms)
{
	static const char hex[] =
		"00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";
	static const struct {
		const char *tail;
		int err;
	} cases[] = {
		{ "", 0 },
		{ "\n", 0 },
		{ "\nuuid=00112233-4455-6677-8899-aabbccddeeff\n", 0 },
		{ "\nuuid=00112233-4455-6677-8899-aabbccddeef\n", -EBADMSG },
		{ "\nuuid=00112233445566778899aabbccddeeff0000\n", -EBADMSG },
		{ "0\n", -EBADMSG },
		{ "\nother\n", -EBADMSG },
	};
	uint8_t k[VOLUME_KEY_BYTES], u[16];
	char text[256], uuid_text[VOLUME_UUID_TEXT_BYTES];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int len = snprintf(text, sizeof(text), "%s%s", hex, cases[i].tail);

		ck_assert_int_eq(io_replace_file(dirfd, VOLUME_KEY_NAME, text, (size_t)len, 0600),
				 0);
		ck_assert_msg(volume_key_read(dirfd, VOLUME_KEY_NAME, k, u) == cases[i].err,
			      "case %zu", i);
	}
	ck_assert_uint_eq(k[15], 0xff);
	ck_assert_int_eq(volume_uuid_parse("00112233-4455-6677-8899-aabbccddeeff", 36, u), 0);
	ck_assert_str_eq(volume_uuid_format(u, uuid_text), "00112233-4455-6677-8899-aabbccddeeff");
	ck_assert_int_eq(io_replace_file(dirfd, VOLUME_KEY_NAME, hex, 63, 0600), 0);
	ck_assert_int_eq(volume_key_read(dirfd, VOLUME_KEY_NAME, k, u), -EBADMSG);
}
END_TEST

START_TEST(key_file_is_private)
{
	struct stat st;

	ck_assert_int_eq(fstatat(dirfd, VOLUME_KEY_NAME, &st, 0), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
}
END_TEST

START_TEST(labels)
{
	ck_assert(volume_label_valid("", 0));
	ck_assert(volume_label_valid("\342\202\254", 3));
	ck_assert(!volume_label_valid("\300\200", 2));
	ck_assert(!volume_label_valid("\355\240\200", 3));
	ck_assert(!volume_label_valid("a\nb", 3));
	ck_assert(!volume_label_valid("\342\202", 2));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("volume");
	TCase *t = tcase_create("all");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, opens_what_was_written);
	tcase_add_test(t, first_copy_damaged_uses_second);
	tcase_add_test(t, second_copy_damaged_is_written_first);
	tcase_add_test(t, both_copies_damaged);
	tcase_add_test(t, no_magic_is_not_a_volume);
	tcase_add_test(t, wrong_version);
	tcase_add_test(t, unknown_incompat_feature);
	tcase_add_test(t, unknown_compat_feature_is_fine);
	tcase_add_test(t, fields_out_of_range);
	tcase_add_test(t, incomplete);
	tcase_add_test(t, locked);
	tcase_add_test(t, wrong_key);
	tcase_add_test(t, no_directory);
	tcase_add_test(t, crash_between_the_copies);
	tcase_add_test(t, key_file_forms);
	tcase_add_test(t, key_file_is_private);
	tcase_add_test(t, labels);
	suite_add_tcase(s, t);
	return unit_run(s);
}
