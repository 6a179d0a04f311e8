/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics endpoint's manners with clients that have none. What it says: tests/shell/
 * metrics_endpoint.sh. */
#include "fs/admin/metrics_http.h"

#include "common/clock.h"
#include "tests/unit/unit_main.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_MS 20000 /* however busy the machine is */

static const struct metrics_http_limits limits = { .idle_s = 3, .request_s = 1 };
static struct metrics_http *http;
static struct metrics *metrics;

static void setup(void)
{
	struct options_metrics o = { .given = true };
	char why[OPTIONS_WHY_BYTES] = "";

	snprintf(o.at.host, sizeof(o.at.host), "127.0.0.1");
	metrics = metrics_create();
	ck_assert_ptr_nonnull(metrics);
	ck_assert_msg(metrics_http_open(&o, &http, why) == 0, "%s", why);
	ck_assert_int_eq(metrics_http_start(http, metrics, &limits), 0);
}

static void teardown(void)
{
	metrics_http_stop(http);
	metrics_destroy(metrics);
}

static int dial(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	const char *port = strrchr(metrics_http_address(http), ':');
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sa.sin_port = htons((uint16_t)strtoul(port + 1, NULL, 10));
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

static void say(int fd, const char *text)
{
	ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* All that comes until the other side ends; its length. */
static size_t listen_to(int fd, char *out, size_t cap)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t len = 0;
	ssize_t n = 1;

	while (n > 0 && len < cap - 1) {
		ck_assert_int_eq(poll(&p, 1, ANSWER_MS), 1);
		n = recv(fd, out + len, cap - 1 - len, 0);
		len += n > 0 ? (size_t)n : 0;
	}
	out[len] = '\0';
	return len;
}

static void ask(const char *request, const char *status)
{
	static char text[1 << 16];
	int fd = dial();

	say(fd, request);
	listen_to(fd, text, sizeof(text));
	ck_assert_msg(strstr(text, status) != NULL, "'%s': '%.80s'", request, text);
	close(fd);
}

#define END " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

START_TEST(what_is_answered)
{
	static char text[1 << 16];
	int fd = dial();

	ask("GET /metrics" END, " 200 ");
	ask("GET /other" END, " 404 ");
	ask("DELETE /metrics" END, " 405 ");
	ask("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"
	    "hello", " 405 ");
	ask("\001\002 garbage\r\n\r\n", ""); /* an error or nothing, and the end */
	say(fd, "HEAD /metrics" END);
	listen_to(fd, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, " 200 "));
	ck_assert_str_eq(strstr(text, "\r\n\r\n"), "\r\n\r\n"); /* no body */
	close(fd);
}
END_TEST

/* All places are taken by clients that send a byte now and then: the next one gets its answer, when
 * their time is over. */
START_TEST(drips_keep_no_place)
{
	int fd[METRICS_HTTP_CONNECTIONS], next;
	uint64_t deadline_ns = clock_mono_ns() + ANSWER_MS * NSEC_PER_MSEC;
	struct pollfd p = { .events = POLLIN };
	char text[64];

	for (unsigned i = 0; i < METRICS_HTTP_CONNECTIONS; i++) {
		fd[i] = dial();
		say(fd[i], "GET /metrics HTTP/1.1\r\nX: ");
	}
	next = p.fd = dial();
	say(next, "GET /metrics" END);
	while (poll(&p, 1, 300) == 0) {
		ck_assert_uint_lt(clock_mono_ns(), deadline_ns);
		for (unsigned i = 0; i < METRICS_HTTP_CONNECTIONS; i++)
			(void)send(fd[i], "x", 1, MSG_NOSIGNAL);
	}
	ck_assert_int_gt(recv(next, text, sizeof(text) - 1, 0), 12);
	ck_assert_mem_eq(text + 8, " 200 ", 5);
	for (unsigned i = 0; i < METRICS_HTTP_CONNECTIONS; i++)
		close(fd[i]);
	close(next);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("metrics http");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, what_is_answered);
	tcase_add_test(t, drips_keep_no_place);
	suite_add_tcase(s, t);
	return unit_run(s);
}
