/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_UNIT_MAIN_H
#define KVFS_TESTS_UNIT_MAIN_H
/* main() of a unit test: runs one suite, prints Check's summary, exits 1 on failure. */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Built with a sanitizer: its own memory and time are in what a test measures. */
#if defined(__has_feature)
#define UNIT_CLANG_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define UNIT_CLANG_SANITIZED 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || UNIT_CLANG_SANITIZED
#define UNIT_SANITIZED 1
#else
#define UNIT_SANITIZED 0
#endif

/* KVFS_TEST_LONG, as in tests/shell/mounts.sh: unset, empty and 0 mean the usual length. */
static inline bool unit_long(void)
{
	const char *text = getenv("KVFS_TEST_LONG");

	return text && *text && strcmp(text, "0") != 0;
}

/* KVFS_TEST_PATIENCE: how many times slower than usual things may be, 1 to 100. */
static inline unsigned unit_patience(void)
{
	const char *text = getenv("KVFS_TEST_PATIENCE");
	unsigned long n = text ? strtoul(text, NULL, 10) : 1;

	return n >= 1 && n <= 100 ? (unsigned)n : 1;
}

static inline int unit_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}

#endif
