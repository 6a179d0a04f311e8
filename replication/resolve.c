/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host's addresses by its name, in a thread of their own: the resolver waits for its servers
 * (resolv.conf: 10 to 30 s) and can't be interrupted, while who asks may have to end. A look-up
 * that nobody waits for any more ends by itself.
 */
#include "replication/resolve.h"

#include "common/clock.h"
#include "common/thread.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define RESOLVE_SLICE_NS (100 * NSEC_PER_MSEC)

struct lookup {
	struct addr addr;
	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t ended;
	bool done, left;      /* left: nobody waits */
	int err;
	struct addrinfo *list;
};

static int lookup_now(const struct addr *a, int flags, struct addrinfo **ret_list)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV };
	char port[8];

	snprintf(port, sizeof(port), "%u", a->port);
	if (getaddrinfo(a->host[0] ? a->host : NULL, port, &hints, ret_list) != 0)
		return -ENXIO;
	return 0;
}

static void lookup_free(struct lookup *l)
{
	pthread_cond_destroy(&l->ended);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

static void *lookup_main(void *arg)
{
	struct lookup *l = arg;
	struct addrinfo *list = NULL;
	int err = lookup_now(&l->addr, 0, &list);
	bool left;

	pthread_mutex_lock(&l->lock);
	left = l->left;
	l->err = err;
	l->list = list;
	l->done = true;
	pthread_cond_signal(&l->ended);
	pthread_mutex_unlock(&l->lock);
	if (left) {
		if (!err)
			freeaddrinfo(list);
		lookup_free(l);
	}
	return NULL;
}

/* Takes l. */
static int lookup_wait(struct lookup *l, const atomic_bool *cancel, struct addrinfo **ret_list)
{
	bool done;
	int err;

	pthread_mutex_lock(&l->lock);
	while (!l->done && !(cancel && atomic_load_explicit(cancel, memory_order_relaxed)))
		thread_cond_wait_until(&l->ended, &l->lock, clock_mono_ns() + RESOLVE_SLICE_NS);
	done = l->done;
	l->left = !done;
	err = done ? l->err : -ECANCELED;
	if (!err)
		*ret_list = l->list;
	pthread_mutex_unlock(&l->lock);
	if (done)
		lookup_free(l);
	return err;
}

int resolve_host(const struct addr *a, const atomic_bool *cancel, struct addrinfo **ret_list)
{
	struct lookup *l;
	pthread_t thread;

	if (lookup_now(a, AI_NUMERICHOST, ret_list) == 0)
		return 0;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->addr = *a;
	pthread_mutex_init(&l->lock, NULL);
	thread_cond_init(&l->ended);
	if (thread_start(&thread, "kv-resolve", lookup_main, l) != 0) {
		lookup_free(l);
		return lookup_now(a, 0, ret_list);
	}
	pthread_detach(thread);
	return lookup_wait(l, cancel, ret_list);
}

int resolve_listen(const struct addr *a, struct addrinfo **ret_list)
{
	return lookup_now(a, AI_PASSIVE, ret_list);
}
