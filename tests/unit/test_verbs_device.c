/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which device, port and address verbs takes, and what it says of those it can't: from a tree as
 * the kernel's /sys/class. Interfaces are this machine's: lo is that of the InfiniBand device.
 */
#include "replication/transport/transport_verbs_internal.h"
#include "tests/unit/unit_main.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GID_V4 "0000:0000:0000:0000:0000:ffff:0a4d:0001" /* 10.77.0.1 */
#define GID_V6 "fd00:0000:0000:0000:0000:0000:0000:0007"
#define GID_LOCAL "fe80:0000:0000:0000:0202:03ff:fe04:0506"

static char root[] = "/tmp/kvfs-sys-XXXXXX";

__attribute__((format(printf, 2, 3))) static void put(const char *text, const char *fmt, ...)
{
	char path[400];
	va_list ap;
	FILE *f;
	int len = snprintf(path, sizeof(path), "%s/", root);

	va_start(ap, fmt);
	vsnprintf(path + len, sizeof(path) - (size_t)len, fmt, ap);
	va_end(ap);
	for (char *p = path + len; (p = strchr(p, '/')); *p++ = '/') {
		*p = '\0';
		ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
	}
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	fprintf(f, "%s\n", text);
	fclose(f);
}

static void put_gid(const char *dev, unsigned port, unsigned gid, const char *type, const char *is)
{
	put(type, "infiniband/%s/ports/%u/gid_attrs/types/%u", dev, port, gid);
	put("eth7", "infiniband/%s/ports/%u/gid_attrs/ndevs/%u", dev, port, gid);
	put(is, "infiniband/%s/ports/%u/gids/%u", dev, port, gid);
}

static void put_port(const char *dev, unsigned port, const char *state, const char *layer)
{
	put(state, "infiniband/%s/ports/%u/state", dev, port);
	put(layer, "infiniband/%s/ports/%u/link_layer", dev, port);
	put(dev, "infiniband_verbs/uverbs_%s/ibdev", dev);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static void tree_begin(void)
{
	memcpy(root + sizeof(root) - 7, "XXXXXX", 6);
	ck_assert_ptr_nonnull(mkdtemp(root));
	verbs_sys_use(root);
}

static void tree_end(void)
{
	verbs_sys_use(NULL);
	nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* What is picked for a choice: its address as text, else what is said is in text. */
static int pick(const char *choice, char address[INET6_ADDRSTRLEN], char text[VERBS_TEXT_BYTES])
{
	union verbs_address a;
	struct verbs_choice c;
	int err;

	ck_assert_int_eq(verbs_choice_parse(choice, &c), 0);
	err = verbs_address_pick(&c, &a, text, VERBS_TEXT_BYTES);
	ck_assert_int_eq(verbs_available(choice, text, VERBS_TEXT_BYTES), err);
	if (!err)
		inet_ntop(a.sa.sa_family, a.sa.sa_family == AF_INET ? (void *)&a.in.sin_addr
								    : (void *)&a.in6.sin6_addr,
			  address, INET6_ADDRSTRLEN);
	return err;
}

static void picks(const char *choice, const char *address, const char *says)
{
	char got[INET6_ADDRSTRLEN] = "", text[VERBS_TEXT_BYTES];
	int err = pick(choice, got, text);

	ck_assert_msg(err == 0, "%s: %s", choice, text);
	ck_assert_str_eq(got, address);
	ck_assert_msg(strstr(text, says), "%s: %s", choice, text);
}

static void refuses(const char *choice, int err, const char *says)
{
	char got[INET6_ADDRSTRLEN] = "", text[VERBS_TEXT_BYTES];

	ck_assert_int_eq(pick(choice, got, text), err);
	ck_assert_msg(strstr(text, says), "%s: %s", choice, text);
}

START_TEST(says_what_is_missing)
{
	tree_begin();
	refuses("", -ENODEV, "no RDMA device");
	refuses("mlx5_0", -ENODEV, "no RDMA device mlx5_0");
	put_port("mlx5_0", 1, "1: DOWN", "Ethernet");
	refuses("", -ENETDOWN, "port 1 is not active (1: DOWN)");
	put_port("mlx5_0", 1, "4: ACTIVE", "Ethernet");
	refuses("", -EADDRNOTAVAIL, "port 1 has no IP address");
	refuses("mlx5_0:2", -ENETDOWN, "without a port");
	put_gid("mlx5_0", 1, 0, "IB/RoCE v1", GID_V4); /* kvfs goes by IP addresses */
	refuses("", -EADDRNOTAVAIL, "port 1 has no IP address");
	put_gid("mlx5_0", 1, 1, "RoCE v2", GID_V4);
	picks("", "10.77.0.1", "RDMA device mlx5_0 port 1 (RoCE v2, GID 1, eth7)");
	put("other", "infiniband_verbs/uverbs_mlx5_0/ibdev"); /* it is being taken away */
	refuses("", -ENODEV, "no RDMA device");
	tree_end();
}
END_TEST

START_TEST(takes_what_is_chosen)
{
	tree_begin();
	put_port("mlx5_0", 1, "4: ACTIVE", "Ethernet");
	put_gid("mlx5_0", 1, 0, "RoCE v2", GID_LOCAL);
	put_gid("mlx5_0", 1, 3, "RoCE v2", GID_V4);
	put_gid("mlx5_0", 1, 4, "RoCE v2", GID_V6);
	put_port("mlx5_1", 1, "1: DOWN", "Ethernet");
	put_port("mlx5_1", 2, "4: ACTIVE", "Ethernet");
	put_gid("mlx5_1", 2, 0, "RoCE v2", GID_V6);
	picks("mlx5_0", "10.77.0.1", "GID 3"); /* not the link-local one */
	picks("mlx5_0:1:0", "fe80::202:3ff:fe04:506", "GID 0");
	picks("mlx5_0:1:4", "fd00::7", "GID 4");
	refuses("mlx5_0:1:5", -EADDRNOTAVAIL, "whose GID 5 is no RoCE v2 address");
	picks("mlx5_1", "fd00::7", "mlx5_1 port 2");
	refuses("mlx5_1:1", -ENETDOWN, "port 1 is not active");
	refuses("mlx5_2", -ENODEV, "no RDMA device mlx5_2");
	tree_end();
}
END_TEST

/* The address is the interface's; a GID would be of no effect, so it is refused. */
START_TEST(no_gid_on_infiniband)
{
	tree_begin();
	put_port("mlx4_0", 1, "4: ACTIVE", "InfiniBand");
	put_gid("mlx4_0", 1, 0, "IB/RoCE v1", GID_LOCAL);
	refuses("mlx4_0", -EADDRNOTAVAIL, "no IP address");
	put("", "net/lo/device/infiniband/mlx4_0");
	picks("mlx4_0", "127.0.0.1", "InfiniBand, lo");
	picks("mlx4_0:1", "127.0.0.1", "port 1");
	refuses("mlx4_0:1:0", -EADDRNOTAVAIL, "whose GID 0 can't be chosen");
	put("1", "net/lo/dev_port"); /* of the second port */
	refuses("mlx4_0", -EADDRNOTAVAIL, "no IP address");
	tree_end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verbs_device");
	TCase *t = tcase_create("all");

	tcase_add_test(t, says_what_is_missing);
	tcase_add_test(t, takes_what_is_chosen);
	tcase_add_test(t, no_gid_on_infiniband);
	suite_add_tcase(s, t);
	return unit_run(s);
}
