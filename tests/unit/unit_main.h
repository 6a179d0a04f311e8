/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_UNIT_MAIN_H
#define KVFS_TESTS_UNIT_MAIN_H
/* main() of a unit test: runs one suite, prints Check's summary, exits 1 on failure. */
#include <check.h>

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
