/* SPDX-License-Identifier: Apache-2.0 */
/* Named threads and waits on the monotonic clock: see thread.h. */
#include "common/thread.h"

#include "common/clock.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

/* A third of the weight of the others: with 10 the checkpoint fell behind sequential writes, which
 * then waited for log room. */
#define THREAD_NICE 5

int thread_start(pthread_t *ret_thread, const char *name, void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	pthread_t thread;
	int err;

	sigfillset(&all);
	sigdelset(&all, SIGBUS); /* of the thread's own doing: blocked, it kills all the same */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return -err;
	pthread_setname_np(thread, name);
	*ret_thread = thread;
	return 0;
}

void thread_be_nice(void)
{
	/* on Linux 0 is the calling thread; getpriority has no error to tell here */
	(void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + THREAD_NICE);
}

int thread_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;
	int err;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	err = pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
	return -err;
}

int thread_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t deadline_ns)
{
	struct timespec ts = {
		.tv_sec = (time_t)(deadline_ns / NSEC_PER_SEC),
		.tv_nsec = (long)(deadline_ns % NSEC_PER_SEC),
	};

	return -pthread_cond_timedwait(cond, mutex, &ts);
}

int thread_mutex_init_adaptive(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attr;
	int err;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	err = pthread_mutex_init(mutex, &attr);
	pthread_mutexattr_destroy(&attr);
	return -err;
}
