/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which device, port and address: read from /sys/class, without opening a device.
 * rdma_cm goes by IP addresses, so a choice of device, port and GID becomes a choice of address:
 * on Ethernet a RoCE v2 GID is one, on InfiniBand (and iWARP) it is that of the port's network
 * interface, and no GID can be chosen. Any thread.
 */
#include "common/units.h"
#include "replication/transport/transport_verbs_internal.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SYS_CLASS "/sys/class"
#define GIDS_MAX 256
#define PORTS_MAX 16

/* How far the best candidate came: what verbs_available says. */
enum found { FOUND_NOTHING, FOUND_DEVICE, FOUND_PORT, FOUND_ADDRESS };

struct search {
	const struct verbs_choice *choice;
	enum found found;
	bool link_local; /* the address is: one that is not is better */
	char where[VERBS_TEXT_BYTES / 2];
	union verbs_address address;
};

static const char *sys_class = SYS_CLASS;

void verbs_sys_use(const char *class_dir)
{
	sys_class = class_dir ? class_dir : SYS_CLASS;
}

const char *verbs_sys_class(const char *class_dir)
{
	return class_dir ? class_dir : sys_class;
}

int verbs_choice_parse(const char *text, struct verbs_choice *ret_choice)
{
	struct verbs_choice c = { .gid_index = -1 };
	size_t len = strcspn(text, ":");
	const char *rest = text + len;
	char number[16];
	uint64_t value;

	if (len >= sizeof(c.name) || (len == 0 && *rest) || memchr(text, '/', len))
		return -EINVAL;
	memcpy(c.name, text, len);
	for (int i = 0; i < 2 && *rest == ':'; i++) {
		len = strcspn(++rest, ":");
		if (len == 0 || len >= sizeof(number))
			return -EINVAL;
		memcpy(number, rest, len);
		number[len] = '\0';
		if (units_parse_u64(number, i == 0, i == 0 ? PORTS_MAX : GIDS_MAX - 1, &value) < 0)
			return -EINVAL;
		if (i == 0)
			c.port = (unsigned)value;
		else
			c.gid_index = (int)value;
		rest += len;
	}
	if (*rest)
		return -EINVAL;
	*ret_choice = c;
	return 0;
}

bool verbs_choice_any(const struct verbs_choice *c)
{
	return c->name[0] == '\0';
}

/* First line of a file of the port. False: there is none. */
static bool port_read(const char *dev, unsigned port, const char *what, char *out, size_t cap)
{
	char path[512];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/infiniband/%s/ports/%u/%s", sys_class, dev, port, what);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, out, cap - 1);
	close(fd);
	if (n <= 0)
		return false;
	out[n] = '\0';
	out[strcspn(out, "\n")] = '\0';
	return true;
}

static bool is_link_local(const union verbs_address *a)
{
	return a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&a->in6.sin6_addr);
}

static void take(struct search *s, const union verbs_address *a, const char *dev, unsigned port,
		 const char *what)
{
	if (s->found == FOUND_ADDRESS && (is_link_local(a) || !s->link_local))
		return;
	s->found = FOUND_ADDRESS;
	s->link_local = is_link_local(a);
	s->address = *a;
	snprintf(s->where, sizeof(s->where), "RDMA device %.40s port %u (%s)", dev, port, what);
}

/* A RoCE v2 GID is an address: ::ffff:a.b.c.d or IPv6. */
static bool gid_address(const char *text, const char *netdev, union verbs_address *ret_a)
{
	union verbs_address a = { .in6 = { .sin6_family = AF_INET6 } };
	struct in6_addr gid;

	if (inet_pton(AF_INET6, text, &gid) != 1 || IN6_IS_ADDR_UNSPECIFIED(&gid))
		return false;
	if (IN6_IS_ADDR_V4MAPPED(&gid)) {
		a = (union verbs_address){ .in = { .sin_family = AF_INET } };
		memcpy(&a.in.sin_addr, gid.s6_addr + 12, 4);
	} else {
		a.in6.sin6_addr = gid;
		if (IN6_IS_ADDR_LINKLOCAL(&gid))
			a.in6.sin6_scope_id = if_nametoindex(netdev);
	}
	*ret_a = a;
	return true;
}

static void search_gids(struct search *s, const char *dev, unsigned port)
{
	int first = s->choice->gid_index < 0 ? 0 : s->choice->gid_index;
	int end = s->choice->gid_index < 0 ? GIDS_MAX : first + 1;
	char what[64], type[64], gid[64], netdev[64];
	union verbs_address a;

	for (int i = first; i < end; i++) {
		snprintf(what, sizeof(what), "gid_attrs/types/%d", i);
		if (!port_read(dev, port, what, type, sizeof(type)) || strcmp(type, "RoCE v2") != 0)
			continue;
		snprintf(what, sizeof(what), "gids/%d", i);
		if (!port_read(dev, port, what, gid, sizeof(gid)))
			continue;
		snprintf(what, sizeof(what), "gid_attrs/ndevs/%d", i);
		if (!port_read(dev, port, what, netdev, sizeof(netdev)))
			netdev[0] = '\0';
		snprintf(what, sizeof(what), "RoCE v2, GID %d, %.16s", i, netdev);
		if (gid_address(gid, netdev, &a))
			take(s, &a, dev, port, what);
	}
}

/* Whether a network interface belongs to the port. */
static bool netdev_is_of(const char *netdev, const char *dev, unsigned port)
{
	char path[512], text[32] = "";
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/net/%s/device/infiniband/%s", sys_class, netdev, dev);
	if (access(path, F_OK) != 0)
		return false;
	snprintf(path, sizeof(path), "%s/net/%s/dev_port", sys_class, netdev);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	return n <= 0 || strtoul(text, NULL, 10) + 1 == port;
}

static void search_netdevs(struct search *s, const char *dev, unsigned port, const char *layer)
{
	struct ifaddrs *list;
	char what[64];

	if (getifaddrs(&list) != 0)
		return;
	for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
		union verbs_address a = { 0 };
		int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;

		if ((family != AF_INET && family != AF_INET6) ||
		    !netdev_is_of(i->ifa_name, dev, port))
			continue;
		memcpy(&a, i->ifa_addr, family == AF_INET ? sizeof(a.in) : sizeof(a.in6));
		snprintf(what, sizeof(what), "%.20s, %.16s", layer, i->ifa_name);
		take(s, &a, dev, port, what);
	}
	freeifaddrs(list);
}

static void search_port(struct search *s, const char *dev, unsigned port)
{
	const char *why = "can't be chosen here";
	char state[64], layer[64] = "";

	if (!port_read(dev, port, "state", state, sizeof(state)))
		return;
	if (strncmp(state, "4:", 2) != 0) {
		if (s->found < FOUND_PORT)
			snprintf(s->where, sizeof(s->where),
				 "RDMA device %.40s, whose port %u is not active (%.20s)", dev,
				 port, state);
		return;
	}
	if (s->found < FOUND_PORT) {
		s->found = FOUND_PORT;
		snprintf(s->where, sizeof(s->where),
			 "RDMA device %.40s, whose port %u has no IP address", dev, port);
	}
	if (!port_read(dev, port, "link_layer", layer, sizeof(layer)) ||
	    strcmp(layer, "Ethernet") == 0) {
		search_gids(s, dev, port);
		why = "is no RoCE v2 address";
	}
	if (s->found == FOUND_ADDRESS)
		return;
	if (s->choice->gid_index < 0) /* else it is the address, or there is none */
		search_netdevs(s, dev, port, layer);
	else
		snprintf(s->where, sizeof(s->where),
			 "RDMA device %.40s port %u (%.10s), whose GID %d %s", dev, port, layer,
			 s->choice->gid_index, why);
}

/* Whether processes can open it: one that is being taken away is still among the devices. */
static bool device_opens(const char *dev)
{
	char path[512], name[VERBS_DEVICE_NAME_BYTES];
	bool opens = false;
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "%s/infiniband_verbs", sys_class);
	d = opendir(path);
	while (d && !opens && (e = readdir(d))) {
		FILE *f;

		snprintf(path, sizeof(path), "%s/infiniband_verbs/%.255s/ibdev", sys_class,
			 e->d_name);
		f = e->d_name[0] == '.' ? NULL : fopen(path, "re");
		if (!f)
			continue;
		if (fgets(name, sizeof(name), f)) {
			name[strcspn(name, "\n")] = '\0';
			opens = strcmp(name, dev) == 0;
		}
		fclose(f);
	}
	if (d)
		closedir(d);
	return opens;
}

static void search(struct search *s)
{
	char path[512];
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "%s/infiniband", sys_class);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.' || strlen(e->d_name) >= VERBS_DEVICE_NAME_BYTES ||
		    (!verbs_choice_any(s->choice) && strcmp(e->d_name, s->choice->name) != 0) ||
		    !device_opens(e->d_name))
			continue;
		if (s->found < FOUND_DEVICE) {
			s->found = FOUND_DEVICE;
			snprintf(s->where, sizeof(s->where), "RDMA device %.40s without a port",
				 e->d_name);
		}
		for (unsigned port = 1; port <= PORTS_MAX; port++)
			if (s->choice->port == 0 || s->choice->port == port)
				search_port(s, e->d_name, port);
	}
	if (d)
		closedir(d);
}

int verbs_address_pick(const struct verbs_choice *c, union verbs_address *ret_a, char *text,
		       size_t cap)
{
	struct search s = { .choice = c };

	search(&s);
	if (s.found == FOUND_NOTHING && verbs_choice_any(c))
		snprintf(text, cap, "no RDMA device");
	else if (s.found == FOUND_NOTHING)
		snprintf(text, cap, "no RDMA device %s", c->name);
	else
		snprintf(text, cap, "%s", s.where);
	if (s.found == FOUND_ADDRESS) {
		*ret_a = s.address;
		return 0;
	}
	return s.found == FOUND_NOTHING  ? -ENODEV
	       : s.found == FOUND_DEVICE ? -ENETDOWN
					 : -EADDRNOTAVAIL;
}

int verbs_available(const char *device, char *text, size_t cap)
{
	union verbs_address a;
	struct verbs_choice c;

	if (verbs_choice_parse(device ? device : "", &c) < 0) {
		snprintf(text, cap, "no RDMA device by that name");
		return -ENODEV;
	}
	return verbs_address_pick(&c, &a, text, cap);
}

socklen_t verbs_address_len(const union verbs_address *a)
{
	return a->sa.sa_family == AF_INET ? sizeof(a->in) : sizeof(a->in6);
}

int verbs_address_of(int control_fd, bool peer, union verbs_address *ret_a)
{
	union verbs_address a = { 0 };
	socklen_t len = sizeof(a);
	int r = peer ? getpeername(control_fd, &a.sa, &len) : getsockname(control_fd, &a.sa, &len);

	if (r < 0)
		return -errno;
	if (a.sa.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a.in6.sin6_addr)) {
		struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = a.in6.sin6_port };

		memcpy(&in.sin_addr, a.in6.sin6_addr.s6_addr + 12, 4);
		a = (union verbs_address){ .in = in };
	}
	if (a.sa.sa_family != AF_INET && a.sa.sa_family != AF_INET6)
		return -ENOTSUP;
	*ret_a = a;
	return 0;
}
