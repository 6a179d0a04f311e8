/* SPDX-License-Identifier: Apache-2.0 */
/* Parses and prints addresses. Pure, any thread. A refused text leaves the result untouched. */
#include "replication/transport/addr.h"

#include "common/units.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#define HOST_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

static const struct {
	const char *text;
	enum addr_kind kind;
} prefixes[] = {
	{ "verbs:", ADDR_VERBS },
	{ "tcp:", ADDR_TCP },
	{ "shm:", ADDR_SHM },
};

static int fail(const char *why, const char **ret_why)
{
	*ret_why = why;
	return -EINVAL;
}

static enum addr_kind take_prefix(const char **text)
{
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		size_t len = strlen(prefixes[i].text);

		if (strncmp(*text, prefixes[i].text, len) == 0) {
			*text += len;
			return prefixes[i].kind;
		}
	}
	return ADDR_AUTO;
}

static int parse_shm(const char *path, struct addr *out, const char **ret_why)
{
	size_t len = strlen(path);

	if (len == 0)
		return fail("the socket's path is missing after shm:", ret_why);
	if (len >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return fail("the socket's path is too long (at most 107 bytes)", ret_why);
	memcpy(out->host, path, len + 1);
	return 0;
}

/* An IPv6 address, perhaps with %interface. */
static bool is_v6(const char *host)
{
	char text[INET6_ADDRSTRLEN];
	size_t len = strcspn(host, "%");
	struct in6_addr a;

	if (len >= sizeof(text))
		return false;
	if (host[len] == '%' && (host[len + 1] == '\0' || strlen(host + len + 1) >= IF_NAMESIZE))
		return false;
	memcpy(text, host, len);
	text[len] = '\0';
	return inet_pton(AF_INET6, text, &a) == 1;
}

static int parse_port(const char *text, uint16_t *ret_port, const char **ret_why)
{
	uint64_t port;

	if (units_parse_u64(text, 0, UINT16_MAX, &port) < 0)
		return fail("the port is not a number from 0 to 65535", ret_why);
	*ret_port = (uint16_t)port;
	return 0;
}

static int parse_host_port(const char *text, struct addr *out, const char **ret_why)
{
	bool brackets = text[0] == '[';
	const char *host = text + brackets;
	const char *end = brackets ? strchr(host, ']') : strrchr(host, ':');
	size_t len;

	if (end == NULL)
		return fail(brackets ? "the closing ] is missing" :
				       "the port is missing (HOST:PORT)",
			    ret_why);
	len = (size_t)(end - host);
	if (len == 0)
		return fail("the host is missing (HOST:PORT)", ret_why);
	if (len >= sizeof(out->host))
		return fail("the host name is too long (at most 255 bytes)", ret_why);
	memcpy(out->host, host, len);
	out->host[len] = '\0';
	if (brackets) {
		if (!is_v6(out->host))
			return fail("what is in [ ] is not an IPv6 address", ret_why);
		end++;
		if (*end != ':')
			return fail("the port is missing ([ADDRESS]:PORT)", ret_why);
	} else if (strchr(out->host, ':') != NULL) {
		return fail("an IPv6 address is written [ADDRESS]:PORT", ret_why);
	} else if (strspn(out->host, HOST_CHARS) != len) {
		return fail("the host name has a character that no host name has", ret_why);
	}
	return parse_port(end + 1, &out->port, ret_why);
}

int addr_parse(const char *text, struct addr *ret_addr, const char **ret_why)
{
	struct addr a = { 0 };
	int r;

	a.kind = take_prefix(&text);
	if (a.kind == ADDR_SHM)
		r = parse_shm(text, &a, ret_why);
	else
		r = parse_host_port(text, &a, ret_why);
	if (r == 0)
		*ret_addr = a;
	return r;
}

void addr_format(const struct addr *a, char *out, size_t cap)
{
	const char *prefix = "";
	bool v6 = strchr(a->host, ':') != NULL;

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (prefixes[i].kind == a->kind)
			prefix = prefixes[i].text;
	if (a->kind == ADDR_SHM)
		snprintf(out, cap, "%s%s", prefix, a->host);
	else
		snprintf(out, cap, v6 ? "%s[%s]:%u" : "%s%s:%u", prefix, a->host,
			 (unsigned)a->port);
}
