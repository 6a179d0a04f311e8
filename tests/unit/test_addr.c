/* SPDX-License-Identifier: Apache-2.0 */
#include "replication/transport/addr.h"

#include "tests/unit/unit_main.h"

#include <errno.h>
#include <string.h>

static const struct {
	const char *text;
	enum addr_kind kind;
	const char *host;
	uint16_t port;
} good[] = {
	{ "node1:7000", ADDR_AUTO, "node1", 7000 },
	{ "10.0.0.1:1", ADDR_AUTO, "10.0.0.1", 1 },
	{ "verbs:node-2.example:65535", ADDR_VERBS, "node-2.example", 65535 },
	{ "tcp:localhost:0", ADDR_TCP, "localhost", 0 },
	{ "tcp:[::1]:7000", ADDR_TCP, "::1", 7000 },
	{ "[fe80::1%eth0]:7000", ADDR_AUTO, "fe80::1%eth0", 7000 },
	{ "shm:/run/kvfs/m1:x.sock", ADDR_SHM, "/run/kvfs/m1:x.sock", 0 },
};

START_TEST(parses_and_prints)
{
	struct addr a;
	const char *why = NULL;
	char text[300];

	ck_assert_int_eq(addr_parse(good[_i].text, &a, &why), 0);
	ck_assert_int_eq(a.kind, good[_i].kind);
	ck_assert_str_eq(a.host, good[_i].host);
	ck_assert_uint_eq(a.port, good[_i].port);
	addr_format(&a, text, sizeof(text));
	ck_assert_str_eq(text, good[_i].text);
}
END_TEST

static const char *const bad[] = {
	"", "node1", ":7000", "node1:", "node1:65536", "node1:-1", "node1:7000x", "node1: 7000",
	"::1:7000", "[::1]", "[::1:7000", "[node]:7000", "[]:7000", "[fe80::1%]:1", "no de:1",
	"tcp:", "verbs:7000", "shm:", "rdma:node:1",
};

START_TEST(refuses)
{
	struct addr a;
	const char *why = NULL;

	memset(&a, 0x5A, sizeof(a));
	ck_assert_int_eq(addr_parse(bad[_i], &a, &why), -EINVAL);
	ck_assert_ptr_nonnull(why);
	ck_assert_uint_eq(a.port, 0x5A5A);
}
END_TEST

START_TEST(refuses_long_names)
{
	char text[600];
	struct addr a;
	const char *why = NULL;

	memset(text, 'a', sizeof(text));
	memcpy(text + 256, ":1", 3);
	ck_assert_int_eq(addr_parse(text, &a, &why), -EINVAL);
	memset(text, 'a', sizeof(text));
	memcpy(text + 255, ":1", 3);
	ck_assert_int_eq(addr_parse(text, &a, &why), 0);
	memcpy(text, "shm:", 4);
	text[4 + 108] = '\0';
	ck_assert_int_eq(addr_parse(text, &a, &why), -EINVAL);
	text[4 + 107] = '\0';
	ck_assert_int_eq(addr_parse(text, &a, &why), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("addr");
	TCase *t = tcase_create("all");

	tcase_add_loop_test(t, parses_and_prints, 0, sizeof(good) / sizeof(good[0]));
	tcase_add_loop_test(t, refuses, 0, sizeof(bad) / sizeof(bad[0]));
	tcase_add_test(t, refuses_long_names);
	suite_add_tcase(s, t);
	return unit_run(s);
}
