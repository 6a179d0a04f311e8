/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics endpoint: see metrics_http.h. libmicrohttpd does the protocol; we own socket and
 * thread. */
#include "fs/admin/metrics_http.h"
#include "fs/admin/metrics_http_internal.h"

#include "common/clock.h"
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

#define HTTP_CONNECTION_BYTES (32U << 10)

/* The second is longer than the first: a request may come at the end of an idle time. */
const struct metrics_http_limits metrics_http_usual = { .idle_s = 10, .request_s = 20 };

/* Who has a place. kv-metrics. */
struct http_place {
	struct MHD_Connection *connection; /* NULL: nobody */
	int fd;
	uint64_t until_ns;
};

struct metrics_http {
	int fd, stop_fd;
	struct metrics_http_limits limits;
	struct http_place places[METRICS_HTTP_CONNECTIONS];
	bool closed; /* kv-metrics: a place became free in the last run */
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

static struct http_place *http_place_of(struct metrics_http *h, struct MHD_Connection *c)
{
	for (unsigned i = 0; i < METRICS_HTTP_CONNECTIONS; i++)
		if (h->places[i].connection == c)
			return &h->places[i];
	return NULL;
}

static void http_give_time(const struct metrics_http *h, struct http_place *p)
{
	p->until_ns = clock_mono_ns() + h->limits.request_s * NSEC_PER_SEC;
}

static void http_connection(void *cls, struct MHD_Connection *c, void **ctx,
			    enum MHD_ConnectionNotificationCode what)
{
	bool begins = what == MHD_CONNECTION_NOTIFY_STARTED;
	struct metrics_http *h = cls;
	struct http_place *p = http_place_of(h, begins ? NULL : c);

	(void)ctx;
	if (!p)
		return;
	p->connection = NULL;
	h->closed |= !begins;
	if (!begins)
		return;
	p->connection = c;
	p->fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
	http_give_time(h, p);
}

static void http_answered(void *cls, struct MHD_Connection *c, void **ctx,
			  enum MHD_RequestTerminationCode how)
{
	struct http_place *p = http_place_of(cls, c);

	(void)ctx;
	(void)how;
	if (p)
		http_give_time(cls, p);
}

/* Ends those whose time is over; returns until when the others have theirs, in ms, -1: nobody is
 * there. */
static int http_end_slow(struct metrics_http *h)
{
	uint64_t now = clock_mono_ns(), first = UINT64_MAX;

	for (unsigned i = 0; i < METRICS_HTTP_CONNECTIONS; i++) {
		struct http_place *p = &h->places[i];

		if (!p->connection)
			continue;
		if (p->until_ns <= now) {
			shutdown(p->fd, SHUT_RDWR); /* the daemon sees it and closes */
			http_give_time(h, p);
		}
		if (p->until_ns < first)
			first = p->until_ns;
	}
	return first == UINT64_MAX ? -1 : (int)((first - now) / NSEC_PER_MSEC) + 1;
}

static void *http_main(void *arg)
{
	struct metrics_http *h = arg;
	int epoll_fd = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
	struct pollfd fds[2] = { { .fd = epoll_fd, .events = POLLIN },
				 { .fd = h->stop_fd, .events = POLLIN } };

	while (!fds[1].revents) {
		int timeout = http_end_slow(h), most_ms = (int)h->limits.idle_s * 1000;
		MHD_UNSIGNED_LONG_LONG ms;

		if (timeout > most_ms)
			timeout = most_ms;
		if (h->closed) /* it takes up accepting again only at a run's begin */
			timeout = 0;
		h->closed = false;
		if (MHD_get_timeout(h->daemon, &ms) == MHD_YES &&
		    (timeout < 0 || ms < (MHD_UNSIGNED_LONG_LONG)timeout))
			timeout = ms > (MHD_UNSIGNED_LONG_LONG)most_ms ? most_ms : (int)ms;
		if (poll(fds, 2, timeout) < 0)
			fds[1].revents = 0;
		else
			MHD_run(h->daemon);
	}
	return NULL;
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
		err = metrics_http_listen(o->at.host, port, &h->fd, why);
	if (err == -EADDRINUSE && !o->given)
		err = metrics_http_listen(o->at.host, 0, &h->fd, why);
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

int metrics_http_start(struct metrics_http *h, struct metrics *m,
		       const struct metrics_http_limits *limits)
{
	int err;

	h->metrics = m;
	h->limits = *limits;
	h->daemon = MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, http_request, h,
				     MHD_OPTION_LISTEN_SOCKET, h->fd, MHD_OPTION_CONNECTION_LIMIT,
				     METRICS_HTTP_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
				     h->limits.idle_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
				     (size_t)HTTP_CONNECTION_BYTES, MHD_OPTION_NOTIFY_CONNECTION,
				     http_connection, h, MHD_OPTION_NOTIFY_COMPLETED,
				     http_answered, h, MHD_OPTION_END);
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
