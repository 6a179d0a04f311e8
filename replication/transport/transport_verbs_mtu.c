/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MTU of an endpoint's way: of the path, as lane 0's queue pair has it, and of the ports at
 * both ends. rdma_cm takes the path's from the dialling port alone, so on Ethernet a peer whose
 * port takes less never gets a full packet: each end tells the other its own (struct verbs_target).
 * On InfiniBand ports may differ, and the subnet manager knows. Set-up's thread, then the poll
 * thread.
 */
#include "replication/transport/transport_verbs_internal.h"

/* Of enum ibv_mtu, 0 for what is none. */
static unsigned mtu_bytes(unsigned mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128U << mtu : 0;
}

unsigned verbs_port_mtu(struct rdma_cm_id *id)
{
	struct ibv_port_attr attr;

	if (ibv_query_port(id->verbs, id->port_num, &attr) != 0 ||
	    attr.link_layer != IBV_LINK_LAYER_ETHERNET)
		return 0;
	return mtu_bytes(attr.active_mtu);
}

void verbs_mtu_note(struct verbs_ep *ep)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (ibv_query_qp(ep->lane[0].id->qp, &attr, IBV_QP_PATH_MTU, &init) == 0)
		ep->mtu.path = mtu_bytes(attr.path_mtu);
}

void verbs_mtu(struct transport_ep *base, struct transport_mtu *ret_mtu)
{
	*ret_mtu = ((struct verbs_ep *)base)->mtu;
}
