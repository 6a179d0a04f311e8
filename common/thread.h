/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_COMMON_THREAD_H
#define KVFS_COMMON_THREAD_H
/* Named threads and timed waits on CLOCK_MONOTONIC. */
#include <pthread.h>
#include <stdint.h>

/* Starts a thread named name (at most 15 bytes, "kv-…") with all signals blocked. -EAGAIN,
 * -EINVAL. */
int thread_start(pthread_t *ret_thread, const char *name, void *(*fn)(void *), void *arg);

/* The calling thread gives way to others from now on: for work that nobody waits for yet. Without
 * CAP_SYS_NICE it could not be taken back. */
void thread_be_nice(void);

/* A condition variable that thread_cond_wait_until can use. */
int thread_cond_init(pthread_cond_t *cond);

/* Waits until signalled or clock_mono_ns() reaches deadline_ns: 0 or -ETIMEDOUT. mutex is held. */
int thread_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t deadline_ns);

/* A mutex that spins a little before it sleeps: for sections of a few hundred instructions. */
int thread_mutex_init_adaptive(pthread_mutex_t *mutex);

#endif
