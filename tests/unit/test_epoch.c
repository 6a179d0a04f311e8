/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs, and the table of where each began. */
#include "log/epoch.h"
#include "tests/unit/unit_main.h"

#include <errno.h>
#include <string.h>

START_TEST(numbers)
{
	char text[EPOCH_TEXT_BYTES];

	ck_assert_uint_eq(epoch_next(0, false), epoch_make(1, 1));
	ck_assert_uint_eq(epoch_next(7, false), epoch_make(1, 1));
	ck_assert_uint_eq(epoch_next(epoch_make(3, 7), false), epoch_make(3, 8));
	ck_assert_uint_eq(epoch_next(epoch_make(3, 7), true), epoch_make(4, 1));
	ck_assert_uint_eq(epoch_next(0, true), epoch_make(2, 1));
	ck_assert_uint_gt(epoch_next(epoch_make(3, (1 << EPOCH_START_BITS) - 1), false),
			  epoch_make(3, 1));
	ck_assert_uint_lt(epoch_make(3, 1000), epoch_make(4, 1));
	ck_assert_str_eq(epoch_format(epoch_make(12, 34), text), "12.34");
}
END_TEST

/* epoch, first_lsn, node_id; life: 5, or what is added to that */
static struct epochs table(const uint64_t (*rows)[4], unsigned n)
{
	struct epochs t = { 0 };

	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(epochs_begin(&t, rows[i][0], rows[i][1], (uint32_t)rows[i][2],
					      5 + (uint32_t)rows[i][3]), 0);
	return t;
}
#define TABLE(...)                                                                                 \
	table((const uint64_t[][4]){ __VA_ARGS__ }, sizeof((uint64_t[][4]){ __VA_ARGS__ }) / 32)

START_TEST(begins_and_finds)
{
	struct epochs t = TABLE({ 10, 1, 1 }, { 11, 101, 1 }, { 20, 151, 2 });
	struct epochs_entry e;

	ck_assert(!epochs_at(&t, 0, &e));
	ck_assert(epochs_at(&t, 100, &e) && e.epoch == 10);
	ck_assert(epochs_at(&t, 101, &e) && e.epoch == 11);
	ck_assert(epochs_at(&t, 1000, &e) && e.epoch == 20 && e.node_id == 2);
	ck_assert_int_eq(epochs_begin(&t, 20, 200, 2, 5), -EINVAL);
	/* nothing was written in it: the next takes its place */
	ck_assert_int_eq(epochs_begin(&t, 21, 151, 2, 5), 0);
	ck_assert_uint_eq(t.count, 3);
	ck_assert(epochs_at(&t, 151, &e) && e.epoch == 21);
	/* the tail is lost */
	ck_assert_int_eq(epochs_begin(&t, 22, 51, 2, 5), 0);
	ck_assert_uint_eq(t.count, 2);
	ck_assert(epochs_at(&t, 120, &e) && e.epoch == 22);
}
END_TEST

START_TEST(forgets_the_oldest)
{
	struct epochs t = { 0 };
	struct epochs_entry e;

	for (unsigned i = 1; i <= EPOCHS_MAX + 5; i++)
		ck_assert_int_eq(epochs_begin(&t, i, i * 10, 1, i), 0);
	ck_assert_uint_eq(t.count, EPOCHS_MAX);
	ck_assert(!epochs_at(&t, 59, &e));
	ck_assert(epochs_at(&t, 60, &e) && e.epoch == 6);
}
END_TEST

START_TEST(parts)
{
	struct epochs a = TABLE({ 10, 1, 1 }, { 11, 101, 1 });
	struct epochs lost = TABLE({ 10, 1, 1 }, { 11, 101, 1 }, { 12, 121, 1 });
	struct epochs more = TABLE({ 10, 1, 1 }, { 12, 91, 1 });
	struct epochs other = TABLE({ 10, 1, 1 }, { 11, 101, 2 });
	/* a copy counts from the same numbers */
	struct epochs twin = TABLE({ 10, 1, 1 }, { 11, 101, 1, 1 }, { 12, 161, 1 });
	struct epochs stranger = TABLE({ 10, 1, 7 });
	struct epochs none = { 0 };

	ck_assert_uint_eq(epochs_common(&a, 150, &a, 150), 150);
	ck_assert_uint_eq(epochs_common(&a, 150, &a, 170), 150);
	ck_assert_uint_eq(epochs_common(&a, 150, &lost, 200), 120);
	ck_assert_uint_eq(epochs_common(&lost, 200, &a, 150), 120);
	ck_assert_uint_eq(epochs_common(&a, 150, &more, 500), 90);
	ck_assert_uint_eq(epochs_common(&a, 150, &other, 500), 100);
	ck_assert_uint_eq(epochs_common(&a, 150, &twin, 500), 100);
	ck_assert_uint_eq(epochs_common(&twin, 500, &a, 150), 100);
	ck_assert(!epochs_equal(&a, &other));
	twin.count = 2;
	ck_assert(!epochs_equal(&a, &twin));
	ck_assert_uint_eq(epochs_common(&a, 150, &stranger, 500), 0);
	ck_assert_uint_eq(epochs_common(&a, 150, &none, 500), 0);
	/* the table may reach beyond the records */
	ck_assert_uint_eq(epochs_common(&lost, 110, &a, 150), 110);
	ck_assert_uint_eq(epochs_common(&lost, 50, &a, 150), 50);
}
END_TEST

START_TEST(on_media)
{
	struct epochs t = TABLE({ 10, 1, 1 }, { 11, 101, 2, 0xFFFFFFF0 },
				{ 1ULL << 40, 1ULL << 50, 0xFFFFFFFF }),
		      u;
	uint8_t buf[EPOCHS_BYTES_MAX];
	size_t len = epochs_encode(&t, buf);

	ck_assert_uint_eq(len, 3 * EPOCHS_ENTRY_BYTES);
	ck_assert_int_eq(epochs_decode(buf, len, &u), 0);
	ck_assert(epochs_equal(&t, &u));
	ck_assert_int_eq(epochs_decode(buf, 0, &u), 0);
	ck_assert_uint_eq(u.count, 0);
	ck_assert_int_eq(epochs_decode(buf, len - 1, &u), -EBADMSG);
	ck_assert_int_eq(epochs_decode(buf, EPOCHS_BYTES_MAX + EPOCHS_ENTRY_BYTES, &u), -EBADMSG);
	memmove(buf + EPOCHS_ENTRY_BYTES, buf, EPOCHS_ENTRY_BYTES); /* does not rise */
	ck_assert_int_eq(epochs_decode(buf, len, &u), -EBADMSG);
	epochs_encode(&t, buf);
	memset(buf + 20, 0, 4); /* without a life, as before there were any */
	ck_assert_int_eq(epochs_decode(buf, len, &u), -EBADMSG);
	memset(buf, 0, sizeof(buf));
	ck_assert_int_eq(epochs_decode(buf, EPOCHS_ENTRY_BYTES, &u), -EBADMSG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("epoch");
	TCase *t = tcase_create("all");

	tcase_add_test(t, numbers);
	tcase_add_test(t, begins_and_finds);
	tcase_add_test(t, forgets_the_oldest);
	tcase_add_test(t, parts);
	tcase_add_test(t, on_media);
	suite_add_tcase(s, t);
	return unit_run(s);
}
