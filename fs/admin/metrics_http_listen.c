/* SPDX-License-Identifier: Apache-2.0 */
/* Where the metrics endpoint listens: see metrics_http_internal.h. */
#include "fs/admin/metrics_http_internal.h"

#include "fs/admin/metrics_http.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A listening socket for one address. */
static int http_bind(const struct addrinfo *ai, int *ret_fd)
{
	int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1,
	    err = 0;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) != 0 || listen(fd, METRICS_HTTP_CONNECTIONS) != 0)
		err = -errno;
	if (err) {
		close(fd);
		return err;
	}
	*ret_fd = fd;
	return 0;
}

int metrics_http_listen(const char *host, unsigned port, int *ret_fd, char why[OPTIONS_WHY_BYTES])
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
				  .ai_flags = AI_PASSIVE | AI_NUMERICSERV },
			*list, *ai;
	char service[8];
	int err;

	snprintf(service, sizeof(service), "%u", port);
	err = getaddrinfo(host, service, &hints, &list);
	if (err) {
		snprintf(why, OPTIONS_WHY_BYTES, "metrics=%.200s:%u: %s", host, port,
			 err == EAI_SYSTEM ? strerror(errno) : gai_strerror(err));
		return -EADDRNOTAVAIL;
	}
	err = -EADDRNOTAVAIL;
	for (ai = list; ai && err; ai = ai->ai_next)
		err = http_bind(ai, ret_fd);
	freeaddrinfo(list);
	if (err)
		snprintf(why, OPTIONS_WHY_BYTES,
			 "cannot listen for metrics at %.200s:%u: %s; give another "
			 "metrics=HOST:PORT, "
			 "or metrics=off",
			 host, port, strerror(-err));
	return err;
}
