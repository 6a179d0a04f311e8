/* SPDX-License-Identifier: Apache-2.0 */
#include "common/json_text.h"

#include "tests/unit/unit_main.h"

#include <stdio.h>

static void check(const char *in, const char *want)
{
	json_t *j = json_text(in);

	ck_assert_ptr_nonnull(j);
	ck_assert_str_eq(json_string_value(j), want);
	json_decref(j);
}

START_TEST(utf8_stays)
{
	check("", "");
	check("/srv/kv\t\"x\\", "/srv/kv\t\"x\\");
	check("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf",
	      "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf");
}
END_TEST

START_TEST(other_bytes_are_escaped)
{
	check("b\xff", "b\\xff");
	check("\x80\xc3", "\\x80\\xc3"); /* a tail alone, a character cut off */
	check("\xc3(", "\\xc3(");
	check("\xe2\x82", "\\xe2\\x82");
	check("\xc0\xaf", "\\xc0\\xaf");         /* not the shortest form */
	check("\xe0\x80\xaf", "\\xe0\\x80\\xaf");
	check("\xed\xa0\x80", "\\xed\\xa0\\x80"); /* a surrogate */
	check("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"); /* above U+10FFFF */
}
END_TEST

/* jansson has its own idea of what is valid; it must take whatever comes out. */
START_TEST(any_bytes_give_a_string)
{
	unsigned char text[5] = { 0 };
	unsigned seed = 1;

	for (unsigned i = 0; i < 200000; i++) {
		json_t *j;

		for (unsigned k = 0; k < 4; k++) {
			seed = seed * 1103515245U + 12345U;
			text[k] = (unsigned char)((seed >> 16) | 1);
			if (i % 2 == 0) /* mostly continuation bytes behind a head */
				text[k] = (unsigned char)(k ? 0x80 | (text[k] & 0x3f)
							    : text[k] | 0xc0);
		}
		j = json_text((const char *)text);
		ck_assert_msg(j != NULL, "%02x %02x %02x %02x", text[0], text[1], text[2], text[3]);
		json_decref(j);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("json_text");
	TCase *t = tcase_create("all");

	tcase_add_test(t, utf8_stays);
	tcase_add_test(t, other_bytes_are_escaped);
	tcase_add_test(t, any_bytes_give_a_string);
	suite_add_tcase(s, t);
	return unit_run(s);
}
