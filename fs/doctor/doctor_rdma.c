/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA devices as sysfs shows them: nodes in /dev, ports, GIDs, MTU, retries. See doctor.h. */
#include "fs/doctor/doctor_internal.h"
#include "replication/transport/transport_verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define IB "/sys/class/infiniband"
#define GIDS_MAX 64
#define MTU_FULL 4200   /* carries RoCE's largest payload, 4096 bytes, with its headers */

struct rdma_port {
	const char *device;
	const char *port;
	bool ethernet;
};

static void check_nodes(struct doctor *d, const struct doctor_names *devices)
{
	struct doctor_names verbs;
	char text[256] = "", firmware[64];
	size_t used = 0;

	for (size_t i = 0; i < devices->count && used < sizeof(text); i++) {
		if (doctor_read(d, firmware, sizeof(firmware), IB "/%s/fw_ver",
		    devices->name[i]) != 0)
			firmware[0] = '\0';
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s%s%s", i ? ", "
		: "",
					 devices->name[i], firmware[0] ? " firmware " : "",
					 firmware);
	}
	doctor_say(d, "rdma.devices", DOCTOR_OK, "", "%s", text);
	doctor_list(d, &verbs, "uverbs", "/dev/infiniband");
	if (verbs.count == 0)
		doctor_say(d, "rdma.nodes", DOCTOR_FAIL, "modprobe ib_uverbs; in a container: "
			   "pass /dev/infiniband into it",
			   "no /dev/infiniband/uverbs*: programs can't use the devices");
	else if (!doctor_has(d, "/dev/infiniband/rdma_cm"))
		doctor_say(d, "rdma.nodes", DOCTOR_FAIL, "modprobe rdma_ucm",
			   "no /dev/infiniband/rdma_cm: no connection can be made");
	else
		doctor_say(d, "rdma.nodes", DOCTOR_OK, "", "/dev/infiniband has rdma_cm and %zu "
			   "device%s",
			   verbs.count, verbs.count == 1 ? "" : "s");
}

static void check_state(struct doctor *d, const struct rdma_port *p)
{
	char state[64] = "", rate[64] = "";
	const char *remedy;

	doctor_read(d, state, sizeof(state), IB "/%s/ports/%s/state", p->device, p->port);
	doctor_read(d, rate, sizeof(rate), IB "/%s/ports/%s/rate", p->device, p->port);
	if (strstr(state, "ACTIVE") && !strstr(state, "DEFER")) {
		doctor_say(d, "rdma.port", DOCTOR_OK, "", "%s port %s is active, %s, %s",
			   p->device, p->port,
			   p->ethernet ? "RoCE" : "InfiniBand", rate[0] ? rate : "rate unknown");
		return;
	}
	remedy = p->ethernet ? "ip link set up the port's network interface; look at cable and "
		"switch port" :
		 strstr(state, "INIT") || strstr(state, "ARMED") ?
		 "start a subnet manager (opensm) on the fabric" : "look at cable and switch port";
	doctor_say(d, "rdma.port", DOCTOR_FAIL, remedy, "%s port %s is not active (state %s)",
		   p->device,
		   p->port, state[0] ? state : "unknown");
}

static bool gid_is_empty(const char *gid)
{
	return gid[0] == '\0' || strspn(gid, "0:") == strlen(gid);
}

/* Link-local ones are made of the MAC address and exist also without any IP address. */
static bool gid_is_local(const char *gid)
{
	return strncmp(gid, "fe80:", 5) == 0;
}

struct gid_count {
	unsigned all, v2, v2_routable;
	char netdev[DOCTOR_NAME_BYTES]; /* of the first that is not empty */
};

static void count_gids(const struct doctor *d, const struct rdma_port *p, struct gid_count *ret_n)
{
	*ret_n = (struct gid_count){ 0 };
	for (unsigned i = 0; i < GIDS_MAX; i++) {
		char gid[64], type[64] = "", base[256];

		snprintf(base, sizeof(base), IB "/%s/ports/%s", p->device, p->port);
		if (doctor_read(d, gid, sizeof(gid), "%s/gids/%u", base, i) != 0)
			return;
		if (gid_is_empty(gid))
			continue;
		doctor_read(d, type, sizeof(type), "%s/gid_attrs/types/%u", base, i);
		if (!ret_n->netdev[0])
			doctor_read(d, ret_n->netdev, sizeof(ret_n->netdev),
			"%s/gid_attrs/ndevs/%u", base, i);
		ret_n->all++;
		ret_n->v2 += strstr(type, "RoCE v2") != NULL;
		ret_n->v2_routable += strstr(type, "RoCE v2") && !gid_is_local(gid);
	}
}

static void check_gids(struct doctor *d, const struct rdma_port *p, const struct gid_count *n)
{
	if (n->all == 0)
		doctor_say(d, "rdma.gid", DOCTOR_FAIL, p->ethernet ? "give the port's network "
			   "interface an IP address "
			   "and set it up" : "start a subnet manager (opensm) on the fabric",
			   "%s port %s has no GID", p->device, p->port);
	else if (!p->ethernet)
		doctor_say(d, "rdma.gid", DOCTOR_OK, "", "%s port %s has %u GIDs", p->device,
			   p->port, n->all);
	else if (n->v2 == 0)
		doctor_say(d, "rdma.gid", DOCTOR_WARN, "enable RoCE v2 on the adapter "
			   "(cma_roce_mode -m 2)",
			   "%s port %s has RoCE v1 GIDs only, which no router passes on",
			   p->device, p->port);
	else if (n->v2_routable == 0)
		doctor_say(d, "rdma.gid", DOCTOR_WARN, "give the port's network interface an IP "
			   "address",
			   "%s port %s has link-local GIDs only: nodes can't be named by IP "
			   "address", p->device,
			   p->port);
	else
		doctor_say(d, "rdma.gid", DOCTOR_OK, "", "%s port %s has a RoCE v2 GID with an "
			   "IP address",
			   p->device, p->port);
}

static void check_mtu(struct doctor *d, const struct rdma_port *p, const char *netdev)
{
	char remedy[192];
	int64_t mtu;

	if (!p->ethernet) {
		doctor_say(d, "rdma.mtu", DOCTOR_NA, "", "%s port %s: the subnet manager sets "
			   "InfiniBand's MTU",
			   p->device, p->port);
		return;
	}
	if (!netdev[0] || doctor_read_i64(d, &mtu, "/sys/class/net/%s/mtu", netdev) != 0) {
		doctor_say(d, "rdma.mtu", DOCTOR_NA, "", "%s port %s: its network interface is "
			   "not known", p->device,
			   p->port);
		return;
	}
	snprintf(remedy, sizeof(remedy), "jumbo frames: ip link set %.15s mtu 9000 on every "
		 "node, after the switch "
		 "(scripts/tune-host --mtu 9000)", netdev);
	if (mtu >= MTU_FULL)
		doctor_say(d, "rdma.mtu", DOCTOR_OK, "", "%s has MTU %lld: packets of 4096 "
			   "bytes", netdev,
			   (long long)mtu);
	else
		doctor_say(d, "rdma.mtu", DOCTOR_WARN, remedy, "%s has MTU %lld: packets of %d "
			   "bytes instead of 4096",
			   netdev, (long long)mtu, mtu >= 2200 ? 2048 : mtu >= 1100 ? 1024 : mtu
			   >= 580 ? 512 : 256);
}

/* Adds up those of the port's counters that there are; false: none. */
static bool add_counters(struct doctor *d, const struct rdma_port *p, const char *const *names,
			 int64_t *sum)
{
	bool known = false;
	int64_t value;

	for (; *names; names++) {
		if (doctor_read_i64(d, &value, IB "/%s/ports/%s/hw_counters/%s", p->device, p->port,
				    *names) != 0)
			continue;
		known = true;
		*sum += value;
	}
	return known;
}

static void check_retries(struct doctor *d, const struct rdma_port *p)
{
	/* beside what was sent again: what others had to, and queue pairs that gave up */
	static const char *const lost[] = { "out_of_sequence", "retry_exceeded_err", NULL };
	int64_t sum = 0;
	bool known = add_counters(d, p, verbs_retry_counters, &sum);

	known |= add_counters(d, p, lost, &sum);
	if (!known)
		doctor_say(d, "rdma.retries", DOCTOR_NA, "", "%s port %s counts no retries",
			   p->device, p->port);
	else if (sum > 0)
		doctor_say(d, "rdma.retries", DOCTOR_WARN, "look for loss on the way (ethtool "
			   "-S); flow control (PFC or "
			   "ECN) on the switch; a larger ack_timeout= where the peer is slow",
			   "%s port %s has counted %lld retries and lost packets since it came "
			   "up", p->device,
			   p->port, (long long)sum);
	else
		doctor_say(d, "rdma.retries", DOCTOR_OK, "", "%s port %s: no packet was lost or "
			   "sent again",
			   p->device, p->port);
}

static void check_port(struct doctor *d, const struct rdma_port *p)
{
	struct gid_count gids;

	check_state(d, p);
	count_gids(d, p, &gids);
	check_gids(d, p, &gids);
	check_mtu(d, p, gids.netdev);
	check_retries(d, p);
}

static void check_ports(struct doctor *d, const char *device)
{
	struct doctor_names ports;
	char layer[32];

	doctor_list(d, &ports, "", IB "/%s/ports", device);
	if (ports.count == 0)
		doctor_say(d, "rdma.port", DOCTOR_FAIL, "look at the driver's messages (dmesg)",
			   "%s has no port",
			   device);
	for (size_t i = 0; i < ports.count; i++) {
		struct rdma_port p = { .device = device, .port = ports.name[i] };

		p.ethernet = doctor_read(d, layer, sizeof(layer), IB "/%s/ports/%s/link_layer",
		device,
					 p.port) != 0 || strcmp(layer, "InfiniBand") != 0;
		check_port(d, &p);
	}
}

void doctor_check_rdma(struct doctor *d)
{
	struct doctor_names devices;

	doctor_list(d, &devices, "", IB);
	if (devices.count == 0) {
		doctor_say(d, "rdma.devices", DOCTOR_NA, "load the adapter's driver (mlx5_ib, "
			   "irdma, bnxt_re); without "
			   "an adapter: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev DEV",
			   "no RDMA device: replication goes over TCP");
		return;
	}
	check_nodes(d, &devices);
	for (size_t i = 0; i < devices.count; i++)
		check_ports(d, devices.name[i]);
}
