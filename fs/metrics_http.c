/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics endpoint: see metrics_http.h. libmicrohttpd does the protocol; we own socket and
 * thread. */
#include "fs/metrics_http.h"

#include "common/io.h"
#include "common/metrics_text.h"
#include "common/thread.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define HTTP_IDLE_SECONDS 10
#define HTTP_CONNECTION_BYTES (32U << 10)

struct metrics_http {
	int fd, stop_fd;
	char address[NI_MAXHOST + NI_MAXSERV + 4];
	struct metrics *metrics;
	struct MHD_Daemon *daemon;
	pthread_t thread;
};

static enum MHD_Result http_send(struct MHD_Connection *c, unsigned code, const char *type,
				 char *text, size_t len, enum MHD_ResponseMemoryMode mode)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(len, text, mode);
	enum MHD_Result res;

	if (!r) {
		if (mode == MHD_RESPMEM_MUST_FREE)
			free(text);
		return MHD_NO;
	}
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	res = MHD_queue_response(c, code, r);
	MHD_destroy_response(r);
	return res;
}

static enum MHD_Result http_say(struct MHD_Connection *c, unsigned code, const char *text)
{
	return http_send(c, code, "text/plain; charset=utf-8", (char *)(uintptr_t)text,
			 strlen(text), MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result http_metrics(struct metrics_http *h, struct MHD_Connection *c)
{
	struct metrics_snapshot snap;
	char *text = NULL;
	size_t len = 0;
	int err = metrics_snapshot(h->metrics, &snap);

	if (!err) {
		err = metrics_text(&snap, &text, &len);
		metrics_snapshot_free(&snap);
	}
	if (err)
		return http_say(c, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory\n");
	return http_send(c, MHD_HTTP_OK, METRICS_TEXT_TYPE, text, len, MHD_RESPMEM_MUST_FREE);
}

static enum MHD_Result http_request(void *cls, struct MHD_Connection *c, const char *url,
				    const char *method, const char *version, const char *data,
				    size_t *data_len, void **ctx)
{
	static int seen;

	/* first call: the headers only; a body is read and dropped before the answer */
	if (!*ctx) {
		*ctx = &seen;
		return MHD_YES;
	}
	if (*data_len) {
		*data_len = 0;
		return MHD_YES;
	}
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return http_say(c, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET\n");
	if (strcmp(url, "/metrics") == 0)
		return http_metrics(cls, c);
	if (strcmp(url, "/") == 0)
		return http_say(c, MHD_HTTP_OK, "kvfs: the figures are at /metrics\n");
	return http_say(c, MHD_HTTP_NOT_FOUND, "the figures are at /metrics\n");
}

static void *http_main(void *arg)
{
	struct metrics_http *h = arg;
	int epoll_fd = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
	struct pollfd fds[2] = { { .fd = epoll_fd, .events = POLLIN },
				 { .fd = h->stop_fd, .events = POLLIN } };

	while (!fds[1].revents) {
		MHD_UNSIGNED_LONG_LONG ms;
		int timeout = -1;

		if (MHD_get_timeout(h->daemon, &ms) == MHD_YES)
			timeout =
				ms > HTTP_IDLE_SECONDS * 1000 ? HTTP_IDLE_SECONDS * 1000 : (int)ms;
		if (poll(fds, 2, timeout) < 0)
			fds[1].revents = 0;
		else
			MHD_run(h->daemon);
	}
	return NULL;
}

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

static int http_listen(const char *host, unsigned port, int *ret_fd, char why[OPTIONS_WHY_BYTES])
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

static void http_name(struct metrics_http *h)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";

	if (getsockname(h->fd, (struct sockaddr *)&sa, &len) == 0)
		getnameinfo((struct sockaddr *)&sa, len, host, sizeof(host), port, sizeof(port),
			    NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(h->address, sizeof(h->address), strchr(host, ':') ? "[%s]:%s" : "%s:%s", host,
		 port);
}

int metrics_http_open(const struct options_metrics *o, struct metrics_http **ret_h,
		      char why[OPTIONS_WHY_BYTES])
{
	struct metrics_http *h;
	unsigned port = o->at.port, last = o->given ? port : port + METRICS_HTTP_PORTS - 1;
	int err = -EADDRINUSE;

	*ret_h = NULL;
	if (o->off)
		return 0;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->stop_fd = h->fd = -1;
	for (; port <= last && err == -EADDRINUSE; port++)
		err = http_listen(o->at.host, port, &h->fd, why);
	if (err == -EADDRINUSE && !o->given)
		err = http_listen(o->at.host, 0, &h->fd, why);
	if (!err && (h->stop_fd = eventfd(0, EFD_CLOEXEC)) < 0) {
		err = -errno;
		snprintf(why, OPTIONS_WHY_BYTES, "cannot serve metrics: %s", strerror(-err));
	}
	if (err) {
		metrics_http_stop(h);
		return o->given ? err : 0;
	}
	http_name(h);
	*ret_h = h;
	return 0;
}

int metrics_http_start(struct metrics_http *h, struct metrics *m)
{
	int err;

	h->metrics = m;
	h->daemon = MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, http_request, h,
				     MHD_OPTION_LISTEN_SOCKET, h->fd, MHD_OPTION_CONNECTION_LIMIT,
				     METRICS_HTTP_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
				     HTTP_IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
				     (size_t)HTTP_CONNECTION_BYTES, MHD_OPTION_END);
	if (!h->daemon)
		return -ENOMEM;
	err = thread_start(&h->thread, "kv-metrics", http_main, h);
	if (err) {
		MHD_stop_daemon(h->daemon);
		h->daemon = NULL;
		h->fd = -1; /* the daemon closed it */
	}
	return err;
}

const char *metrics_http_address(const struct metrics_http *h)
{
	return h->address;
}

void metrics_http_stop(struct metrics_http *h)
{
	uint64_t one = 1;

	if (!h)
		return;
	if (h->daemon) {
		io_write_full(h->stop_fd, &one, sizeof(one));
		pthread_join(h->thread, NULL);
		MHD_stop_daemon(h->daemon); /* closes the socket */
	} else if (h->fd >= 0) {
		close(h->fd);
	}
	if (h->stop_fd >= 0)
		close(h->stop_fd);
	free(h);
}
