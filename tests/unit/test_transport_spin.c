/* SPDX-License-Identifier: Apache-2.0 */
/* When a poll spins before it sleeps: while its waits are short, and now and then to see whether
 * they have become so. */
#include "replication/transport/transport_internal.h"
#include "tests/unit/unit_main.h"

#include <check.h>

#define SPIN_US 1000 /* far more than a busy machine takes between two lines here */

static struct transport_ep ep;

static void setup(void)
{
	ep = (struct transport_ep){ .poll_us = SPIN_US };
}

static void wait_of(uint64_t ns, bool in_vain)
{
	transport_waited(&ep, transport_now_ns() - ns, in_vain);
}

/* How many of n polls would spin. */
static unsigned spins(unsigned n)
{
	unsigned count = 0;

	while (n--)
		count += transport_spin_ns(&ep, NSEC_PER_SEC) > 0;
	return count;
}

START_TEST(short_waits_spin)
{
	for (int i = 0; i < 100; i++) {
		ck_assert_uint_eq(transport_spin_ns(&ep, NSEC_PER_SEC), SPIN_US * NSEC_PER_USEC);
		wait_of(SPIN_US * NSEC_PER_USEC / 4, false);
	}
	ck_assert_uint_eq(transport_spin_ns(&ep, 5), 5);
}
END_TEST

START_TEST(one_long_wait_ends_it)
{
	wait_of(NSEC_PER_SEC, false);
	ck_assert_uint_eq(spins(15), 0);
}
END_TEST

/* However long poll_us is against the caller's timeout. */
START_TEST(idle_does_not_spin)
{
	ep.poll_us = TRANSPORT_POLL_US_MAX;
	for (int i = 0; i < 100; i++)
		wait_of(NSEC_PER_MSEC, true);
	ck_assert_uint_le(spins(64), 4);
}
END_TEST

START_TEST(short_waits_begin_it_again)
{
	unsigned n = 0;

	for (int i = 0; i < 1000; i++)
		wait_of(NSEC_PER_SEC, true);
	while (spins(2) < 2 && n < 100) {
		wait_of(0, false);
		n++;
	}
	ck_assert_uint_gt(n, 2);
	ck_assert_uint_lt(n, 13);
}
END_TEST

/* Asleep a wait lasts longer than poll_us, only for the wake-up: the probes find out. */
START_TEST(probes_find_that_it_pays)
{
	unsigned polls = 0;

	wait_of(NSEC_PER_SEC, false);
	while (spins(2) < 2 && polls < 1000) {
		bool spun = transport_spin_ns(&ep, NSEC_PER_SEC) > 0;

		wait_of(spun ? 0 : SPIN_US * NSEC_PER_USEC + 1, false);
		polls++;
	}
	ck_assert_uint_lt(polls, 1000);
}
END_TEST

START_TEST(zero_never_spins)
{
	ep.poll_us = 0;
	for (int i = 0; i < 100; i++) {
		ck_assert_uint_eq(transport_spin_ns(&ep, NSEC_PER_SEC), 0);
		wait_of(0, i % 2);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("transport_spin");
	TCase *t = tcase_create("spin");

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, short_waits_spin);
	tcase_add_test(t, one_long_wait_ends_it);
	tcase_add_test(t, idle_does_not_spin);
	tcase_add_test(t, short_waits_begin_it_again);
	tcase_add_test(t, probes_find_that_it_pays);
	tcase_add_test(t, zero_never_spins);
	suite_add_tcase(s, t);
	return unit_run(s);
}
