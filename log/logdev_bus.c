/* SPDX-License-Identifier: Apache-2.0 */
/* The handler of SIGBUS that ends a guarded store: see logdev_bus.h. */
#include "log/logdev_bus.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>

static _Thread_local sigjmp_buf bus_out;
static _Thread_local volatile sig_atomic_t bus_guarded;

/* Without SA_SIGINFO's address: what is mapped where is the library's. */
static void bus_error(int sig)
{
	sigset_t bus;

	if (bus_guarded) {
		bus_guarded = false;
		/* ThreadSanitizer's handler around this one blocks all signals */
		sigemptyset(&bus);
		sigaddset(&bus, SIGBUS);
		pthread_sigmask(SIG_UNBLOCK, &bus, NULL);
		siglongjmp(bus_out, 1);
	}
	signal(sig, SIG_DFL); /* the faulting access comes again, and ends the process */
}

static void bus_install(void)
{
	struct sigaction sa = { .sa_handler = bus_error };

	/* SA_NODEFER: the jump out needs no mask to be restored, which would be a system call for
	 * each append */
	sa.sa_flags = SA_NODEFER;
	sigemptyset(&sa.sa_mask);
	sigaction(SIGBUS, &sa, NULL);
}

void logdev_bus_catch(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, bus_install);
}

int logdev_bus_guard(void (*access)(void *arg), void *arg)
{
	if (sigsetjmp(bus_out, 0) != 0)
		return -EIO;
	bus_guarded = true;
	access(arg);
	bus_guarded = false;
	return 0;
}
