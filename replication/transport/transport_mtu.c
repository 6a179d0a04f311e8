/* SPDX-License-Identifier: Apache-2.0 */
/* What people are told of a way whose ends differ in MTU. Pure; any thread. */
#include "replication/transport/transport.h"

#include <stdio.h>

bool transport_mtu_known(const struct transport_mtu *m)
{
	return m->here && m->peer;
}

void transport_mtu_note(const struct transport_mtu *m, char *out, size_t cap)
{
	out[0] = '\0';
	if (transport_mtu_known(m) && m->here != m->peer)
		snprintf(out, cap, "RDMA packets have up to %u bytes here and %u at the other end: "
			 "values may not get through, or slowly; set the same MTU on both network "
			 "interfaces (ip link set DEV mtu N) and on the switch", m->here, m->peer);
}
