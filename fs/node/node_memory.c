/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's memory: how large the arena is, whether it may be locked, which back-end it lies in, and
 * slab and store on it; and what people are told when an RDMA device does not take it. The main
 * thread, but for node_memory_attend.
 */
#include "fs/node/node_memory.h"

#include "common/clock.h"
#include "common/diag.h"
#include "common/units.h"
#include "fs/node/node_tuner.h"
#include "replication/memory/region_memory.h"
#include "replication/repl_format.h"
#include "replication/transport/transport_verbs.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define NODE_BYTES_PER_INODE 1024
#define NODE_LOAD_SLACK_BYTES (64ULL << 20)
/* So long without a refusal, and the next is worth a line again. */
#define NODE_REFUSED_NS (60 * NSEC_PER_SEC)

uint64_t node_memory_bytes(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

	return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

/* What the kernel thinks can be had without swapping; 0: it does not say. */
static uint64_t memory_available_bytes(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	unsigned long long kib = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f) && sscanf(line, "MemAvailable: %llu", &kib) != 1)
		;
	if (f)
		fclose(f);
	return kib * 1024;
}

/* No reason to refuse: memory is taken as it is needed, and may be free by then. */
static void check_available(const struct node *n)
{
	uint64_t available = memory_available_bytes();
	char want[UNITS_TEXT_BYTES], have[UNITS_TEXT_BYTES];

	if (available == 0 || n->arena_bytes <= available)
		return;
	diag_warn("%s: arena=%s, but only %s of this machine's memory are free now: a full arena "
		  "would leave other programs none; free some, or give a smaller arena=",
		  n->vol->path, units_format_size(n->arena_bytes, want),
		  units_format_size(available, have));
}

static int size_in(struct node *n, const struct region_memory *m, char *why)
{
	uint64_t memory = node_memory_bytes(), there = region_memory_bytes(m);
	char want[UNITS_TEXT_BYTES], have[UNITS_TEXT_BYTES];

	n->inodes_max = n->opt->inodes_max ? n->opt->inodes_max : memory / 4 / NODE_BYTES_PER_INODE;
	n->arena_bytes = n->opt->arena_bytes;
	/* it serves nothing else; a mirror wants a little more */
	if (!n->arena_bytes && m->ops == &region_devdax_ops)
		n->arena_bytes =
		    there > 2 * REGION_BYTES ? (there - 2 * REGION_BYTES) / 65 * 64 : 0;
	else if (!n->arena_bytes)
		n->arena_bytes = there / 2;
	if (m->ops == &region_gpu_ops && !n->arena_bytes) {
		snprintf(why, NODE_WHY_BYTES,
			 "memory=%s: say how much of it with arena=", n->opt->memory);
		return -EINVAL;
	}
	if (there == 0 && m->ops != &region_gpu_ops && m->ops != &region_memfd_ops)
		return 0; /* opening it says why */
	if (there && n->arena_bytes > there) {
		snprintf(why, NODE_WHY_BYTES,
			 "arena=%s is more than %s (%s); give a smaller arena=",
			 units_format_size(n->arena_bytes, want),
			 m->ops == &region_memfd_ops ? "this machine's memory" : n->opt->memory,
			 units_format_size(there, have));
		return -ENOMEM;
	}
	if (m->ops == &region_memfd_ops)
		check_available(n);
	return 0;
}

uint64_t node_memory_locked_bytes(const struct node *n, bool *ret_insists)
{
	bool mirror = n->opt->role == OPTIONS_MIRROR, insists = false;
	const struct options_addrs *addrs = mirror ? &n->opt->listen : &n->opt->mirrors;
	uint64_t bytes = 0;

	for (unsigned i = 0; i < addrs->count; i++) {
		enum addr_kind kind = addrs->list[i].kind;

		if (kind != ADDR_VERBS && kind != ADDR_AUTO)
			continue;
		insists |= kind == ADDR_VERBS;
		if (mirror) /* one session at a time; what it applies is not sent from */
			bytes = verbs_locked_bytes(n->opt->lanes, n->opt->ring_bytes,
						   REPL_PRIMARY_WINDOW_BYTES);
		else
			bytes += verbs_locked_bytes(node_tuner_lanes_open(n),
						    REPL_PRIMARY_WINDOW_BYTES, UINT64_MAX);
	}
	if (bytes && !mirror)
		bytes += node_memory_pool_bytes(n);
	*ret_insists = insists;
	return bytes;
}

/* Before a device refuses it in the middle. With the choice of tcp it would only be slower. */
static int check_locked(const struct node *n, char *why)
{
	char reason[REGION_MEMORY_WHY_BYTES];
	bool insists;
	uint64_t bytes = node_memory_locked_bytes(n, &insists);
	int err;

	if (bytes == 0 || access("/dev/infiniband/rdma_cm", F_OK) != 0)
		return 0;
	err = region_memlock_check(bytes, reason);
	if (err && insists) {
		snprintf(why, NODE_WHY_BYTES, "%s", reason);
		return err;
	}
	if (err)
		diag_warn("%s: %s", n->vol->path, reason);
	return 0;
}

int node_memory_size(struct node *n, char *why)
{
	char reason[REGION_MEMORY_WHY_BYTES];
	struct region_memory m;
	int err = region_memory_parse(n->opt->memory, &m, reason);

	if (!err) {
		err = size_in(n, &m, why);
		return err ? err : check_locked(n, why);
	}
	snprintf(why, NODE_WHY_BYTES, "%s", reason);
	return err;
}

/* A mirror packs its slots a little differently: what fits the primary's arena must fit here. */
uint64_t node_memory_pool_bytes(const struct node *n)
{
	return n->arena_bytes +
	       (n->opt->role == OPTIONS_MIRROR ? n->arena_bytes / 64 + 2 * REGION_BYTES : 0);
}

/* What RDMA device would take nothing of it for good; NULL: none, or nothing is sent from it. */
static const char *gpu_refused(const struct node *n)
{
	bool insists;

	if (n->opt->role == OPTIONS_MIRROR || node_memory_locked_bytes(n, &insists) == 0 ||
	    verbs_dmabuf_check(n->opt->rdma_device) != -EOPNOTSUPP)
		return NULL;
	return "the RDMA device can't register a GPU's memory (dmabuf)";
}

/* GPU memory that can't be had, or that each value would have to be copied out of to be sent, is
 * said, and host memory taken: kvfs works the same with it. */
static int create_pool(struct node *n, struct region_memory *m, uint64_t pool_bytes,
		       uint64_t spare_bytes)
{
	const char *why = NULL;
	int err = region_pool_create_in(m->ops, m->where, pool_bytes, spare_bytes,
					n->opt->mr_cache_bytes, &n->regions);

	if (m->ops != &region_gpu_ops)
		return err;
	if (err)
		why = region_memory_why(m, err);
	else
		why = gpu_refused(n);
	if (!why)
		return 0;
	diag_warn("%s: memory=%s: %s; host memory is used", n->vol->path, n->opt->memory, why);
	region_pool_destroy(n->regions);
	n->regions = NULL;
	*m = (struct region_memory){ .ops = &region_memfd_ops };
	return region_pool_create_in(m->ops, NULL, pool_bytes, spare_bytes, n->opt->mr_cache_bytes,
				     &n->regions);
}

/* Addresses for what loading needs beyond its end, and a mirror to follow: memory is taken as it is
 * needed, a GPU's, too. A device has no more than it has. */
static uint64_t spare_bytes_of(const struct node *n, const struct region_memory *m)
{
	uint64_t spare = 2 * n->arena_bytes + NODE_LOAD_SLACK_BYTES, left;

	if (m->ops != &region_devdax_ops)
		return spare;
	left = region_memory_bytes(m);
	left = left > node_memory_pool_bytes(n) ? left - node_memory_pool_bytes(n) : 0;
	return left < spare ? left : spare;
}

void node_memory_limit(struct node *n, bool on)
{
	slab_set_limit(n->slab, on ? node_memory_pool_bytes(n) : UINT64_MAX);
}

struct store *node_memory_store(struct node *n)
{
	struct store_config cfg = { .inodes_max = UINT64_MAX };

	return store_create(n->slab, &cfg);
}

int node_memory_open(struct node *n, bool spare, char *why)
{
	uint64_t pool_bytes = node_memory_pool_bytes(n);
	char want[UNITS_TEXT_BYTES], reason[REGION_MEMORY_WHY_BYTES];
	struct region_memory m;
	int err = region_memory_parse(n->opt->memory, &m, reason);

	if (err) {
		snprintf(why, NODE_WHY_BYTES, "%s", reason);
		return err;
	}
	if (n->media && n->media->memory)
		m.ops = n->media->memory;
	err = create_pool(n, &m, pool_bytes ? pool_bytes : REGION_BYTES,
			  spare ? spare_bytes_of(n, &m) : 0);
	if (err) {
		snprintf(why, NODE_WHY_BYTES, "cannot get memory for arena=%s%s%s: %s; %s",
			 units_format_size(n->arena_bytes, want), n->opt->memory[0] ? " in " : "",
			 n->opt->memory, strerror(-err), region_memory_why(&m, err));
		return err;
	}
	n->slab = slab_create(n->regions);
	n->store = n->slab ? node_memory_store(n) : NULL;
	if (n->store)
		return 0;
	snprintf(why, NODE_WHY_BYTES, "cannot make the store: %s", strerror(ENOMEM));
	return -ENOMEM;
}

void node_memory_close(struct node *n)
{
	store_destroy(n->store);
	slab_destroy(n->slab);
	region_pool_destroy(n->regions);
	n->store = NULL;
	n->slab = NULL;
	n->regions = NULL;
}

void node_memory_attend(struct node *n)
{
	struct region_look look;
	const char *remedy;

	region_pool_look(n->regions, &look);
	if (!look.register_err && clock_mono_ns() - look.refused_ns >= NODE_REFUSED_NS)
		n->register_told = 0;
	if (!look.register_err || look.register_err == n->register_told)
		return;
	n->register_told = look.register_err;
	remedy = verbs_remedy(look.register_err);
	diag_warn("%s: the RDMA device can't register memory of the arena (%s): values there are "
		  "copied before they are sent%s%s", n->vol->path, strerror(-look.register_err),
		  remedy ? "; " : "", remedy ? remedy : "");
}
