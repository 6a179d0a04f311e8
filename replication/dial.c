/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting and listening: see dial.h. */
#include "replication/dial.h"

#include "common/clock.h"
#include "replication/resolve.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define DIAL_SLICE_MS 100
#define DIAL_BACKLOG 16

/* Copies src with its NUL or returns -ENAMETOOLONG. */
static int dial_unix_addr(const char *path, struct sockaddr_un *ret_sun)
{
	size_t len = strlen(path);
	struct sockaddr_un sun = { .sun_family = AF_UNIX };

	if (len == 0 || len >= sizeof(sun.sun_path))
		return -ENAMETOOLONG;
	memcpy(sun.sun_path, path, len + 1);
	*ret_sun = sun;
	return 0;
}

const char *dial_error(int err)
{
	return err == -ENXIO ? "its host name can't be resolved (see DNS or /etc/hosts)"
			     : strerror(-err);
}

static int dial_wait_connected(int fd, uint64_t deadline_ns, const atomic_bool *cancel)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLOUT };
		socklen_t len = sizeof(int);
		int err = 0;

		if (cancel && atomic_load_explicit(cancel, memory_order_relaxed))
			return -ECANCELED;
		if (clock_mono_ns() >= deadline_ns)
			return -ETIMEDOUT;
		if (poll(&p, 1, DIAL_SLICE_MS) <= 0)
			continue;
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0)
			return -errno;
		return -err;
	}
}

static int dial_one(const struct sockaddr *sa, socklen_t len, uint64_t deadline_ns,
		    const atomic_bool *cancel, int *ret_fd)
{
	int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err = 0;

	if (fd < 0)
		return -errno;
	if (connect(fd, sa, len) != 0) {
		err = -errno;
		if (err == -EINPROGRESS)
			err = dial_wait_connected(fd, deadline_ns, cancel);
	}
	if (err) {
		close(fd);
		return err;
	}
	*ret_fd = fd;
	return 0;
}

int dial_connect(const struct addr *a, uint64_t deadline_ns, const atomic_bool *cancel, int *ret_fd)
{
	struct addrinfo *list;
	struct sockaddr_un sun;
	uint64_t began_ns;
	int err;

	if (a->kind == ADDR_SHM) {
		err = dial_unix_addr(a->host, &sun);
		if (err)
			return err;
		return dial_one((struct sockaddr *)&sun, sizeof(sun), deadline_ns, cancel, ret_fd);
	}
	began_ns = clock_mono_ns();
	err = resolve_host(a, cancel, &list);
	if (err)
		return err;
	deadline_ns += clock_mono_ns() - began_ns;
	err = -EHOSTUNREACH;
	for (const struct addrinfo *i = list; i && err; i = i->ai_next)
		err = dial_one(i->ai_addr, i->ai_addrlen, deadline_ns, cancel, ret_fd);
	freeaddrinfo(list);
	return err;
}

/* Removes a socket file that nobody listens on. -EADDRINUSE: somebody does, or it is no socket. */
static int dial_unlink_stale(const struct sockaddr_un *sun)
{
	struct stat st;
	int fd, err;

	if (lstat(sun->sun_path, &st) != 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EADDRINUSE;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	err = connect(fd, (const struct sockaddr *)sun, sizeof(*sun)) == 0 ? 0 : -errno;
	close(fd);
	if (err != -ECONNREFUSED)
		return -EADDRINUSE;
	return unlink(sun->sun_path) == 0 ? 0 : -errno;
}

static int dial_bind_listen(const struct sockaddr *sa, socklen_t len, int *ret_fd)
{
	int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1, err;

	if (fd < 0)
		return -errno;
	if (sa->sa_family != AF_UNIX)
		(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, sa, len) != 0 || listen(fd, DIAL_BACKLOG) != 0) {
		err = -errno;
		close(fd);
		return err;
	}
	*ret_fd = fd;
	return 0;
}

static uint16_t dial_local_port(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	char port[8];
	unsigned value = 0;

	if (getsockname(fd, (struct sockaddr *)&ss, &len) != 0 ||
	    getnameinfo((struct sockaddr *)&ss, len, NULL, 0, port, sizeof(port), NI_NUMERICSERV) !=
		    0)
		return 0;
	for (const char *p = port; *p >= '0' && *p <= '9'; p++)
		value = value * 10 + (unsigned)(*p - '0');
	return (uint16_t)value;
}

int dial_listen(const struct addr *a, int *ret_fd, uint16_t *ret_port)
{
	struct addrinfo *list;
	struct sockaddr_un sun;
	int err;

	if (a->kind == ADDR_SHM) {
		err = dial_unix_addr(a->host, &sun);
		if (!err)
			err = dial_unlink_stale(&sun);
		if (!err)
			err = dial_bind_listen((struct sockaddr *)&sun, sizeof(sun), ret_fd);
		if (!err)
			*ret_port = 0;
		return err;
	}
	err = resolve_listen(a, &list);
	if (err)
		return -EADDRNOTAVAIL;
	err = -EADDRNOTAVAIL;
	for (const struct addrinfo *i = list; i && err; i = i->ai_next)
		err = dial_bind_listen(i->ai_addr, i->ai_addrlen, ret_fd);
	freeaddrinfo(list);
	if (!err)
		*ret_port = dial_local_port(*ret_fd);
	return err;
}

enum repl_transport dial_transport(const struct addr *a)
{
	switch (a->kind) {
	case ADDR_SHM:
		return REPL_TRANSPORT_SHM;
	case ADDR_VERBS:
		return REPL_TRANSPORT_VERBS;
	case ADDR_TCP:
	case ADDR_AUTO:
		break;
	}
	return REPL_TRANSPORT_TCP;
}

/* Of an IPv4 address in IPv6's clothes the four bytes that count. */
static size_t dial_ip(const struct sockaddr *sa, const uint8_t **ret_bytes)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)sa;
	const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)sa;

	if (sa->sa_family == AF_INET) {
		*ret_bytes = (const uint8_t *)&four->sin_addr;
		return sizeof(four->sin_addr);
	}
	if (sa->sa_family != AF_INET6)
		return 0;
	*ret_bytes = six->sin6_addr.s6_addr;
	if (!IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
		return sizeof(six->sin6_addr);
	*ret_bytes += 12;
	return 4;
}

void dial_interface(int fd, char *out)
{
	const uint8_t *own = NULL, *its = NULL;
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);
	struct ifaddrs *list;
	size_t bytes;

	out[0] = '\0';
	if (getsockname(fd, (struct sockaddr *)&ss, &len) != 0)
		return;
	bytes = dial_ip((struct sockaddr *)&ss, &own);
	if (!bytes || getifaddrs(&list) != 0)
		return;
	for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
		if (!i->ifa_addr || dial_ip(i->ifa_addr, &its) != bytes ||
		    memcmp(its, own, bytes) != 0)
			continue;
		snprintf(out, IF_NAMESIZE, "%s", i->ifa_name);
		break;
	}
	freeifaddrs(list);
}

void dial_peer_text(int fd, char *out, size_t cap)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	char host[NI_MAXHOST], port[NI_MAXSERV];

	if (getpeername(fd, (struct sockaddr *)&ss, &len) != 0)
		snprintf(out, cap, "unknown");
	else if (ss.ss_family == AF_UNIX)
		snprintf(out, cap, "this host");
	else if (getnameinfo((struct sockaddr *)&ss, len, host, sizeof(host), port, sizeof(port),
			     NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		snprintf(out, cap, "unknown");
	else
		snprintf(out, cap, "%s%s%s:%s", ss.ss_family == AF_INET6 ? "[" : "", host,
			 ss.ss_family == AF_INET6 ? "]" : "", port);
}
