/* SPDX-License-Identifier: Apache-2.0 */
#include "common/units.h"

#include "tests/unit/unit_main.h"

#include <errno.h>

START_TEST(parses_sizes)
{
	uint64_t v = 0;

	ck_assert_int_eq(units_parse_size("4096", &v), 0);
	ck_assert_uint_eq(v, 4096);
	ck_assert_int_eq(units_parse_size("1.5GiB", &v), 0);
	ck_assert_uint_eq(v, 3ULL << 29);
	ck_assert_int_eq(units_parse_size("64m", &v), 0);
	ck_assert_uint_eq(v, 64ULL << 20);
	ck_assert_int_eq(units_parse_size("-1", &v), -EINVAL);
	ck_assert_int_eq(units_parse_size("0x10", &v), -EINVAL);
	ck_assert_int_eq(units_parse_size("1Q", &v), -EINVAL);
	ck_assert_int_eq(units_parse_size("99999999E", &v), -ERANGE);
	ck_assert_uint_eq(v, 64ULL << 20);
}
END_TEST

START_TEST(formats_sizes)
{
	char text[UNITS_TEXT_BYTES];

	ck_assert_str_eq(units_format_size(512, text), "512 B");
	ck_assert_str_eq(units_format_size(3ULL << 29, text), "1.50 GiB");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("units");
	TCase *t = tcase_create("all");

	tcase_add_test(t, parses_sizes);
	tcase_add_test(t, formats_sizes);
	suite_add_tcase(s, t);
	return unit_run(s);
}
