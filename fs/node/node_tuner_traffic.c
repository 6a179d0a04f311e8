/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes moved, for the tuner: what its own records cost of memory bandwidth, and what their links
 * carry and send again. An estimate is marked as one in the snapshot. kv-tuner.
 */
#include "fs/node/node_tuner_internal.h"

#include <string.h>

/* Reads and writes of memory a byte of a record takes: from the request to the slab, from there to
 * the log; to the socket or the ring of each mirror, or a device's one read. A byte that is read:
 * from the slab to the answer. Checksums find it in the caches. */
#define STORED_MOVES 4
#define COPIED_MOVES 2
#define FETCHED_MOVES 1
#define READ_MOVES 2

static bool over(const struct link_stats *link, const char *transport)
{
	return strcmp(link->transport, transport) == 0;
}

/* Growth since *last, which it moves; 0 the first time and for a counter that began anew. */
static uint64_t grown(uint64_t *last, uint64_t now, bool any)
{
	uint64_t before = *last;

	*last = now;
	return any && now > before ? now - before : 0;
}

static void count_memory(struct node_tuner_traffic *t, const struct node_tuner_machine *m,
			 const struct link_stats *links, unsigned count, uint64_t records,
			 uint64_t reads, struct tuner_snapshot *snap)
{
	t->memory += STORED_MOVES * grown(&t->records_last, records, t->any);
	t->memory += READ_MOVES * grown(&t->reads_last, reads, t->any);
	for (unsigned i = 0; i < count; i++) {
		uint64_t sent = grown(&t->sent_last[i], links[i].sent_bytes, t->any);

		t->memory += sent * (over(&links[i], "verbs") ? FETCHED_MOVES : COPIED_MOVES);
		if (links[i].interface[0])
			t->sent += sent;
	}
	t->any = true;
	snap->counter[TUNER_MEM_BYTES] = t->memory;
	snap->have |= 1U << TUNER_MEM_BYTES;
	snap->estimated |= 1U << TUNER_MEM_BYTES;
	snap->gauge[TUNER_MEM_CAPACITY] = m->memory_bytes;
}

static struct node_tuner_nic *find_nic(struct node_tuner_traffic *t, const char *name,
				       bool *ret_new)
{
	struct node_tuner_nic *nic;

	*ret_new = false;
	for (unsigned i = 0; i < t->nic_count; i++)
		if (strcmp(t->nics[i].name, name) == 0)
			return &t->nics[i];
	if (t->nic_count == OPTIONS_MIRRORS_MAX) /* they were renamed often */
		t->nic_count = 0;
	nic = &t->nics[t->nic_count++];
	memcpy(nic->name, name, sizeof(nic->name));
	*ret_new = true;
	return nic;
}

/* Whether an earlier link goes by the same interface. */
static bool seen(const struct link_stats *links, unsigned i)
{
	for (unsigned k = 0; k < i; k++)
		if (links[k].state == LINK_LIVE &&
		    strcmp(links[k].interface, links[i].interface) == 0)
			return true;
	return false;
}

/* The interfaces of all live links together. Without an interface (shm) there is no link to load;
 * one without a speed (loopback) leaves the capacity unknown. */
static void count_links(struct node_tuner_traffic *t, const struct node_tuner_machine *m,
			const struct link_stats *links, unsigned count, struct tuner_snapshot *snap)
{
	bool any = false, counted = true, known = true, is_new;
	double capacity = 0, speed;
	uint64_t sent;

	snap->have &= ~(1U << TUNER_LINK_BYTES);
	snap->gauge[TUNER_LINK_CAPACITY] = snap->gauge[TUNER_PCIE_CAPACITY] = 0;
	for (unsigned i = 0; i < count; i++) {
		struct node_tuner_nic *nic;

		if (links[i].state != LINK_LIVE || !links[i].interface[0] || seen(links, i))
			continue;
		any = true;
		if (node_tuner_machine_nic(m, links[i].interface, &sent, &speed)) {
			nic = find_nic(t, links[i].interface, &is_new);
			t->nic_sent += grown(&nic->last, sent, !is_new);
		} else {
			counted = false;
		}
		known &= speed > 0;
		capacity += speed;
	}
	if (!any)
		return;
	snap->counter[TUNER_LINK_BYTES] = counted ? t->nic_sent : t->sent;
	snap->have |= 1U << TUNER_LINK_BYTES;
	if (!counted)
		snap->estimated |= 1U << TUNER_LINK_BYTES;
	snap->gauge[TUNER_LINK_CAPACITY] = known ? capacity : 0;
}

static bool any_over_rdma(const struct link_stats *links, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (links[i].state == LINK_LIVE && over(&links[i], "verbs"))
			return true;
	return false;
}

void node_tuner_retries_read(struct node_tuner_traffic *t, const struct node_tuner_machine *m,
			     const struct link_stats *links, unsigned count, uint64_t of_links,
			     struct tuner_snapshot *snap)
{
	uint64_t now;

	if (any_over_rdma(links, count)) {
		if (!node_tuner_machine_retries(m, &now)) {
			t->any_retries = false;
			return;
		}
		t->retries += grown(&t->retries_last, now, t->any_retries);
		t->any_retries = true;
	} else {
		t->any_retries = false;
	}
	snap->counter[TUNER_RETRIES] = of_links + t->retries;
	snap->have |= 1U << TUNER_RETRIES;
}

void node_tuner_traffic_read(struct node_tuner_traffic *t, const struct node_tuner_machine *m,
			     const struct link_stats *links, unsigned count, uint64_t records,
			     uint64_t reads, struct tuner_snapshot *snap)
{
	count_memory(t, m, links, count, records, reads, snap);
	if (!any_over_rdma(links, count))
		count_links(t, m, links, count, snap);
}
