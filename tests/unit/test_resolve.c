/* SPDX-License-Identifier: Apache-2.0 */
/* Dialling by name, with this program's own getaddrinfo before the C library's: one whose name
 * servers do not answer until the test says so. */
#include "replication/resolve.h"

#include "common/clock.h"
#include "common/thread.h"
#include "replication/dial.h"
#include "tests/unit/unit_main.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static atomic_bool asked, answers;
static _Atomic unsigned answered;

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
		struct addrinfo **ret_list)
{
	static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
	int err;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	if (!node || strcmp(node, "slow.example") != 0)
		return real(node, service, hints, ret_list);
	if (hints->ai_flags & AI_NUMERICHOST)
		return EAI_NONAME;
	asked = true;
	while (!answers)
		sched_yield();
	err = real("127.0.0.1", service, hints, ret_list);
	answered++;
	return err;
}

struct dialling {
	struct addr addr;
	atomic_bool cancel;
	pthread_t thread;
	int err, fd;
};

static void *dial_main(void *arg)
{
	struct dialling *d = arg;

	/* less than the name servers take: the deadline is of the connection alone */
	d->err = dial_connect(&d->addr, clock_mono_ns() + 2 * NSEC_PER_SEC, &d->cancel, &d->fd);
	return NULL;
}

/* Who is to end does not wait for name servers; one that waits gets there. _i: it is to end. */
START_TEST(slow_names_hold_up_no_end)
{
	struct dialling d = { .addr = { .kind = ADDR_TCP, .host = "slow.example" }, .fd = -1 };
	struct addr here = { .kind = ADDR_TCP, .host = "127.0.0.1" };
	int listener;

	ck_assert_int_eq(dial_listen(&here, &listener, &d.addr.port), 0);
	ck_assert_int_eq(thread_start(&d.thread, "dial", dial_main, &d), 0);
	while (!asked)
		sched_yield();
	if (_i)
		d.cancel = true;
	else
		answers = true;
	pthread_join(d.thread, NULL); /* the test's timeout is the limit */
	ck_assert_int_eq(d.err, _i ? -ECANCELED : 0);
	if (d.fd >= 0)
		close(d.fd);
	answers = true;
	while (!answered) /* and lets go of what it found */
		sched_yield();
	close(listener);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("resolve");
	TCase *t = tcase_create("all");

	tcase_add_loop_test(t, slow_names_hold_up_no_end, 0, 2);
	suite_add_tcase(s, t);
	return unit_run(s);
}
