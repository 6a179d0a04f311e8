/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_NODE_RDMA_H
#define KVFS_FS_NODE_RDMA_H
/*
 * What the ports of RDMA devices count of packets sent again, as kvfs_rdma_port_retries_total. A
 * port's counter is of all that use it, so it is no mirror's figure, and there is none where the
 * port counts nothing or no address of this node may be reached by RDMA.
 */
#include "replication/transport/transport_verbs.h"

#include <stdatomic.h>

struct metric;
struct node;

#define NODE_RDMA_PORTS 16

struct node_rdma {
	struct verbs_port port[NODE_RDMA_PORTS];
	struct metric *retries[NODE_RDMA_PORTS];
	/* of them known: they never change; released by attend, acquired by collect */
	_Atomic unsigned count;
};

/* Looks for ports that are new: devices come while kvfs runs. One thread at a time: the main
 * thread, then kv-ckpt; no lock held. */
void node_rdma_attend(struct node *n);
/* From the registry's collector. */
void node_rdma_collect(struct node *n);

#endif
