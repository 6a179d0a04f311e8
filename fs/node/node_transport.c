/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node says of its transports when it starts: an address that asks for RDMA where there
 * is none is an error at once; an address that leaves the choice gets one line with what was
 * found and what is used.
 */
#include "common/diag.h"
#include "fs/node/node.h"
#include "replication/transport/transport_verbs.h"

#include <errno.h>
#include <stdio.h>

int node_check_verbs(struct node *n, const struct options_addrs *addrs, char why[NODE_WHY_BYTES])
{
	char addr[300], text[VERBS_TEXT_BYTES];
	int err;

	for (unsigned i = 0; i < addrs->count; i++) {
		if (addrs->list[i].kind != ADDR_VERBS)
			continue;
		err = verbs_available(n->opt->rdma_device, text, sizeof(text));
		if (!err)
			return 0;
		addr_format(&addrs->list[i], addr, sizeof(addr));
		snprintf(why, NODE_WHY_BYTES, "%.200s: found %.120s; %s", addr, text,
			 verbs_remedy(-ENODEV));
		return err;
	}
	return 0;
}

static void node_note(struct node *n, char *out, size_t cap)
{
	char text[VERBS_TEXT_BYTES];
	int err = verbs_available(n->opt->rdma_device, text, sizeof(text));

	snprintf(out, cap, "found %.200s: uses %s", text, err ? "tcp" : "verbs");
}

void node_say_transports(struct node *n)
{
	struct link_stats stats[OPTIONS_MIRRORS_MAX];
	unsigned count = primary_stats(n->primary, stats, OPTIONS_MIRRORS_MAX);

	for (unsigned i = 0; i < count; i++) {
		char *note = stats[i].transport_note;

		if (n->opt->mirrors.list[i].kind != ADDR_AUTO)
			continue;
		if (!note[0]) /* the link has not come to it yet */
			node_note(n, note, sizeof(stats[i].transport_note));
		diag_info("mirror %s: transport auto: %s", stats[i].addr, note);
	}
}

void node_say_listening(struct node *n)
{
	char addr[300], text[VERBS_TEXT_BYTES];

	for (unsigned i = 0; i < n->opt->listen.count; i++) {
		const struct addr *a = &n->opt->listen.list[i];
		int err;

		if (a->kind != ADDR_AUTO)
			continue;
		err = verbs_available(n->opt->rdma_device, text, sizeof(text));
		addr_format(a, addr, sizeof(addr));
		diag_info("listening on %s: transport auto: found %s: takes %s", addr, text,
			  err ? "tcp" : "verbs and tcp");
	}
}
