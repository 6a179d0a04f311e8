/* SPDX-License-Identifier: Apache-2.0 */
/* Retries by port: see node_rdma.h. */
#include "fs/node/node_rdma.h"

#include "fs/node/node.h"

#include <stdio.h>
#include <string.h>

static const struct metrics_def retries_def = {
	.name = "kvfs_rdma_port_retries_total",
	.help = "Packets that the RDMA device's port had to send again, lost or refused on the "
		"way, by all that use it.",
	.kind = METRICS_COUNTER,
};

static bool may_use_rdma(const struct options *o)
{
	const struct options_addrs *addrs = o->role == OPTIONS_MIRROR ? &o->listen : &o->mirrors;

	for (unsigned i = 0; i < addrs->count; i++)
		if (addrs->list[i].kind == ADDR_VERBS || addrs->list[i].kind == ADDR_AUTO)
			return true;
	return false;
}

static bool is_known(const struct node_rdma *r, unsigned count, const struct verbs_port *p)
{
	for (unsigned i = 0; i < count; i++)
		if (r->port[i].port == p->port && strcmp(r->port[i].device, p->device) == 0)
			return true;
	return false;
}

void node_rdma_attend(struct node *n)
{
	struct node_rdma *r = &n->rdma;
	unsigned count = atomic_load_explicit(&r->count, memory_order_relaxed), found;
	struct verbs_port ports[NODE_RDMA_PORTS];
	char number[16];

	if (!may_use_rdma(n->opt))
		return;
	found = verbs_counting_ports(n->opt->rdma_device, ports, NODE_RDMA_PORTS);
	for (unsigned i = 0; i < found && count < NODE_RDMA_PORTS; i++) {
		if (is_known(r, count, &ports[i]))
			continue;
		snprintf(number, sizeof(number), "%u", ports[i].port);
		r->port[count] = ports[i];
		r->retries[count] = metrics_series(n->metrics, &retries_def, "device",
						   ports[i].device, "port", number, NULL);
		count++;
	}
	atomic_store_explicit(&r->count, count, memory_order_release);
}

void node_rdma_collect(struct node *n)
{
	struct node_rdma *r = &n->rdma;
	unsigned count = atomic_load_explicit(&r->count, memory_order_acquire);
	uint64_t retries;

	for (unsigned i = 0; i < count; i++)
		if (verbs_port_retries(NULL, &r->port[i], &retries)) /* else it is gone */
			metric_set(r->retries[i], retries);
}
