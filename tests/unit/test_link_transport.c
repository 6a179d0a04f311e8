/* SPDX-License-Identifier: Apache-2.0 */
/* When a link that fell back from verbs tries it again. No device and no peer: only the times. */
#include "common/clock.h"
#include "replication/primary/link.h"
#include "replication/transport/transport_verbs.h"
#include "tests/unit/unit_main.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct primary primary;
static struct link one; /* of primary's */

static struct link *fallen_back(int err)
{
	memset(&primary, 0, sizeof(primary));
	memset(&one, 0, sizeof(one));
	pthread_mutex_init(&primary.lock, NULL);
	one.primary = &primary;
	one.addr.kind = ADDR_AUTO;
	one.tops = &transport_verbs_ops;
	snprintf(one.last_error, sizeof(one.last_error), "no way");
	ck_assert_int_eq(link_transport_failed(&one, err), -EAGAIN);
	ck_assert_ptr_nonnull(strstr(one.transport_note, "verbs failed (no way)"));
	return &one;
}

START_TEST(tries_again_later_and_later)
{
	struct link *l = fallen_back(-ETIMEDOUT);
	uint64_t waited_ns = l->verbs_wait_ns;

	ck_assert_uint_gt(l->verbs_retry_ns, clock_mono_ns());
	ck_assert_int_eq(link_transport_failed(l, -ETIMEDOUT), -EAGAIN);
	ck_assert_uint_eq(l->verbs_wait_ns, 2 * waited_ns);
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(link_transport_failed(l, -ETIMEDOUT), -EAGAIN);
	ck_assert_uint_eq(l->verbs_wait_ns, 600 * NSEC_PER_SEC);
	link_transport_ended(l); /* a session's end changes nothing */
	ck_assert_uint_gt(l->verbs_retry_ns, clock_mono_ns() + 500 * NSEC_PER_SEC);
}
END_TEST

/* No session over tcp is ended for it, but the one after it begins with verbs. */
START_TEST(leaves_a_peer_of_another_format_alone)
{
	struct link *l = fallen_back(-EPROTONOSUPPORT);

	ck_assert_uint_eq(l->verbs_retry_ns, UINT64_MAX);
	ck_assert(!link_transport_better(l, clock_mono_ns() + 86400 * NSEC_PER_SEC));
	link_transport_ended(l); /* that which found it out */
	ck_assert_uint_eq(l->verbs_retry_ns, UINT64_MAX);
	l->tops = &transport_tcp_ops;
	link_transport_ended(l);
	ck_assert_uint_eq(l->verbs_retry_ns, 0);
}
END_TEST

/* An address that insists on verbs gets its errors as they are. */
START_TEST(does_not_fall_back_from_an_address_that_insists)
{
	struct link *l = fallen_back(-ETIMEDOUT);

	l->addr.kind = ADDR_VERBS;
	ck_assert_int_eq(link_transport_failed(l, -EPROTONOSUPPORT), -EPROTONOSUPPORT);
	l->addr.kind = ADDR_AUTO;
	ck_assert_int_eq(link_transport_failed(l, -ECANCELED), -ECANCELED);
}
END_TEST

/* Lanes that open and carry nothing: the next time is later, as if they had not opened. */
START_TEST(lanes_that_open_prove_nothing)
{
	struct link *l = fallen_back(-ETIMEDOUT);
	uint64_t waited_ns = l->verbs_wait_ns;

	link_transport_connected(l);
	ck_assert_int_eq(link_transport_failed(l, -ENOTCONN), -EAGAIN);
	ck_assert_uint_eq(l->verbs_wait_ns, 2 * waited_ns);
	ck_assert_uint_gt(l->verbs_retry_ns, clock_mono_ns() + waited_ns);
	link_transport_connected(l); /* and a session that ended soon for another reason */
	link_transport_ended(l);
	ck_assert_int_eq(link_transport_failed(l, -ENOTCONN), -EAGAIN);
	ck_assert_uint_eq(l->verbs_wait_ns, 4 * waited_ns);
	/* one that lasted */
	link_transport_connected(l);
	l->verbs_since_ns -= 600 * NSEC_PER_SEC;
	link_transport_ended(l);
	ck_assert_int_eq(link_transport_failed(l, -ETIMEDOUT), -EAGAIN);
	ck_assert_uint_eq(l->verbs_wait_ns, waited_ns);
	/* sessions over tcp say nothing about it, however long */
	l->tops = &transport_tcp_ops;
	link_transport_connected(l);
	ck_assert_uint_eq(l->verbs_since_ns, 0);
}
END_TEST

/* Writers wait for set-up: for a try that nobody needs no longer than they can. */
START_TEST(a_try_is_shorter_than_the_writers_patience)
{
	struct link *l = fallen_back(-ETIMEDOUT);
	uint64_t whole_ns = transport_setup_ns(40);

	primary.cfg.lanes_open = 40;
	primary.cfg.timeout_ns = 3 * NSEC_PER_SEC;
	ck_assert_uint_eq(link_transport_setup_ns(l), whole_ns);
	l->verbs_trial = true;
	ck_assert_uint_eq(link_transport_setup_ns(l), 1500 * NSEC_PER_MSEC);
	primary.cfg.timeout_ns = 60 * NSEC_PER_SEC;
	ck_assert_uint_eq(link_transport_setup_ns(l), whole_ns);
	primary.cfg.timeout_ns = 3 * NSEC_PER_SEC;
	ck_assert_int_eq(link_transport_failed(l, -ETIMEDOUT), -EAGAIN); /* it is over */
	ck_assert_uint_eq(link_transport_setup_ns(l), whole_ns);
	l->verbs_trial = true;
	link_transport_connected(l);
	ck_assert_uint_eq(link_transport_setup_ns(l), whole_ns);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("link_transport");
	TCase *t = tcase_create("all");

	tcase_add_test(t, tries_again_later_and_later);
	tcase_add_test(t, leaves_a_peer_of_another_format_alone);
	tcase_add_test(t, does_not_fall_back_from_an_address_that_insists);
	tcase_add_test(t, lanes_that_open_prove_nothing);
	tcase_add_test(t, a_try_is_shorter_than_the_writers_patience);
	suite_add_tcase(s, t);
	return unit_run(s);
}
