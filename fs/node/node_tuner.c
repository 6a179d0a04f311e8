/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tuner's life in a node, and settings between ladders and knobs. See node_tuner.h. A knob's
 * level at the static settings stands for the option's own value, which need not be on the ladder.
 */
#include "fs/node/node_tuner_internal.h"

#include "common/byteorder.h"
#include "common/clock.h"
#include "common/crc32c.h"
#include "replication/memory/region.h"
#include "replication/transport/transport.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A reserve takes no more than this share of the arena, unless the options say so. */
#define NODE_TUNER_RESERVE_SHARE 4
/* A reserve that was refused is not raised for so long. What we give back then makes room for
 * nothing: it would be taken and given back again every few windows, and others go without it. */
#define NODE_TUNER_REFUSED_NS (60 * NSEC_PER_SEC)

/* In the order of enum options_policy. */
static const struct tuner_policy_ops *const policies[] = {
	&tuner_policy_xgboost, &tuner_policy_bandit, &tuner_policy_qlearning, &tuner_policy_static,
};

void node_tuner_lanes(const struct node *n, struct primary_config *cfg)
{
	cfg->lanes = n->opt->lanes;
	cfg->lanes_open = n->opt->lanes_open;
	cfg->lanes_default = n->opt->lanes_default;
	cfg->lanes_ahead = n->opt->tuner == OPTIONS_ON;
}

unsigned node_tuner_lanes_open(const struct node *n)
{
	struct primary_config cfg = { .lanes_open = 0 };
	unsigned most = n->opt->lanes, lanes;

	node_tuner_lanes(n, &cfg);
	for (unsigned i = 0; i < n->opt->mirrors.count; i++) {
		enum addr_kind kind = n->opt->mirrors.list[i].kind;

		/* without a prefix it may come to that, once there is a device */
		lanes = primary_lanes_open(&cfg, transport_for(kind == ADDR_AUTO ? ADDR_VERBS
										 : kind));
		if (lanes > most)
			most = lanes;
	}
	return most;
}

static uint32_t reserve_mib(uint64_t bytes)
{
	return bytes >> 20 < UINT32_MAX ? (uint32_t)(bytes >> 20) : UINT32_MAX;
}

struct tuner_settings node_tuner_static(const struct node *n)
{
	struct tuner_settings s;

	s.level[TUNER_KNOB_LANES] = tuner_knob_level(TUNER_KNOB_LANES, n->opt->lanes);
	s.level[TUNER_KNOB_POLL] = tuner_knob_level(TUNER_KNOB_POLL, n->opt->poll_us);
	s.level[TUNER_KNOB_BATCH] = tuner_knob_level(TUNER_KNOB_BATCH, PRIMARY_BATCH_MAX);
	s.level[TUNER_KNOB_RESERVE] =
		tuner_knob_level(TUNER_KNOB_RESERVE, reserve_mib(n->opt->mr_cache_bytes));
	return s;
}

struct node_knobs node_tuner_values(const struct node *n, struct tuner_settings s)
{
	struct tuner_settings own = node_tuner_static(n);
	uint32_t v[TUNER_KNOBS];
	struct node_knobs k;

	for (int i = 0; i < TUNER_KNOBS; i++)
		v[i] = tuner_knob_value((enum tuner_knob)i, s.level[i]);
	k.links = (struct primary_knobs){ .lanes = v[TUNER_KNOB_LANES],
					  .batch = v[TUNER_KNOB_BATCH],
					  .poll_us = v[TUNER_KNOB_POLL] };
	k.reserve_bytes = (uint64_t)v[TUNER_KNOB_RESERVE] << 20;
	if (s.level[TUNER_KNOB_LANES] == own.level[TUNER_KNOB_LANES])
		k.links.lanes = n->opt->lanes;
	if (s.level[TUNER_KNOB_POLL] == own.level[TUNER_KNOB_POLL])
		k.links.poll_us = n->opt->poll_us;
	if (s.level[TUNER_KNOB_RESERVE] == own.level[TUNER_KNOB_RESERVE])
		k.reserve_bytes = n->opt->mr_cache_bytes;
	return k;
}

static void bound(struct tuner_bounds *b, enum tuner_knob knob, unsigned hi)
{
	if (b->hi[knob] > hi)
		b->hi[knob] = (uint8_t)hi;
}

static void bound_links(struct node *n, struct tuner_bounds *b)
{
	struct tuner_settings own = node_tuner_static(n);
	struct link_stats stats[OPTIONS_MIRRORS_MAX];
	unsigned count = primary_stats(n->primary, stats, OPTIONS_MIRRORS_MAX);
	unsigned opened = node_tuner_lanes_open(n), knobs = ~0U;

	for (unsigned i = 0; i < count; i++) {
		if (!stats[i].lanes)
			continue;
		knobs &= stats[i].knobs;
		if (stats[i].lanes < opened)
			opened = stats[i].lanes;
	}
	bound(b, TUNER_KNOB_LANES, tuner_knob_level(TUNER_KNOB_LANES, opened));
	for (int k = 0; k < TUNER_KNOBS; k++) {
		static const unsigned has[TUNER_KNOBS] = {
			[TUNER_KNOB_LANES] = TRANSPORT_KNOB_LANES,
			[TUNER_KNOB_POLL] = TRANSPORT_KNOB_POLL,
			[TUNER_KNOB_BATCH] = TRANSPORT_KNOB_BATCH,
		};

		if (has[k] && !(knobs & has[k]))
			b->lo[k] = b->hi[k] = own.level[k];
	}
}

/* The machine, the device or the memlock limit has no room for what is wanted already. */
static bool memory_refused(struct node *n)
{
	struct region_look look;

	region_pool_look(n->regions, &look);
	return look.commit_err || look.register_err ||
	       (look.refused_ns && clock_mono_ns() - look.refused_ns < NODE_TUNER_REFUSED_NS);
}

void node_tuner_bounds(struct node *n, struct tuner_bounds *ret_bounds)
{
	struct tuner_settings own = node_tuner_static(n);
	unsigned most = tuner_knob_level(TUNER_KNOB_RESERVE,
					 reserve_mib(n->arena_bytes / NODE_TUNER_RESERVE_SHARE));

	tuner_bounds_all(ret_bounds);
	if (n->primary)
		bound_links(n, ret_bounds);
	if (memory_refused(n) || most < own.level[TUNER_KNOB_RESERVE])
		most = own.level[TUNER_KNOB_RESERVE];
	bound(ret_bounds, TUNER_KNOB_RESERVE, most);
	tuner_bounds_sane(ret_bounds);
}

struct tuner_settings node_tuner_apply(struct node *n, struct tuner_settings wanted)
{
	struct tuner_bounds bounds;
	struct node_knobs k;

	node_tuner_bounds(n, &bounds);
	wanted = tuner_settings_clamp(wanted, &bounds);
	k = node_tuner_values(n, wanted);
	if (n->primary)
		primary_set_knobs(n->primary, &k.links);
	region_pool_set_reserve(n->regions, k.reserve_bytes);
	tuner_metrics_setting(&n->tuner, TUNER_METRICS_LANES, k.links.lanes);
	tuner_metrics_setting(&n->tuner, TUNER_METRICS_POLL_US, k.links.poll_us);
	tuner_metrics_setting(&n->tuner, TUNER_METRICS_BATCH, k.links.batch);
	tuner_metrics_setting(&n->tuner, TUNER_METRICS_RESERVE_BYTES, k.reserve_bytes);
	if (n->tuning)
		atomic_store_explicit(&n->tuning->in_force, tuner_settings_pack(wanted),
				      memory_order_relaxed);
	return wanted;
}

void node_tuner_config_init(const struct node *n, struct node_tuner_config *ret_config)
{
	struct tuner_config c;

	tuner_config_init(&c);
	*ret_config = (struct node_tuner_config){
		.policy = policies[n->opt->tuner_policy],
		.window_ns = NSEC_PER_SEC,
		.seed = c.seed,
		.min_ops_per_s = c.min_ops_per_s,
		.keep_model = true,
	};
}

uint32_t node_tuner_conditions(const struct node *n, unsigned cpus)
{
	struct node_knobs own = node_tuner_values(n, node_tuner_static(n));
	uint8_t bytes[4 * 4 + 8];

	put_be32(bytes, own.links.lanes);
	put_be32(bytes + 4, own.links.poll_us);
	put_be32(bytes + 8, own.links.batch);
	put_be32(bytes + 12, cpus);
	put_be64(bytes + 16, own.reserve_bytes);
	return crc32c(0, bytes, sizeof(bytes));
}

static int start_loop(struct node_tuner *t, const struct node_tuner_config *cfg)
{
	struct tuner_loop_config c = {
		.host = cfg->host ? cfg->host : &node_tuner_host,
		.ctx = t,
		.window_ns = cfg->window_ns,
		.dirfd = cfg->keep_model ? t->node->vol->dirfd : -1,
		.trace = cfg->trace,
	};
	struct tuner_loop *loop;
	int err;

	tuner_config_init(&c.tuner);
	c.tuner.policy = t->policy = cfg->policy;
	c.tuner.seed = cfg->seed;
	c.tuner.shipped = node_tuner_static(t->node);
	c.tuner.min_ops_per_s = cfg->min_ops_per_s;
	node_tuner_find_series(t);
	node_tuner_machine_open(&t->machine, "", t->node->opt->rdma_device);
	c.conditions = node_tuner_conditions(t->node, t->machine.cpus);
	err = tuner_loop_start(&c, &loop);
	if (!err)
		t->loop = loop;
	return err;
}

int node_tuner_start(struct node *n, const struct node_tuner_config *cfg, char *why, size_t why_cap)
{
	struct node_tuner_config own;
	bool off = !cfg && n->opt->tuner == OPTIONS_OFF;
	int err = 0;

	if (!n->primary)
		return 0;
	node_tuner_config_init(n, &own);
	n->tuning = calloc(1, sizeof(*n->tuning));
	if (!n->tuning) {
		snprintf(why, why_cap, "cannot start the tuner: %s", strerror(ENOMEM));
		return -ENOMEM;
	}
	n->tuning->node = n;
	node_tuner_apply(n, node_tuner_static(n));
	if (!off)
		err = start_loop(n->tuning, cfg ? cfg : &own);
	tuner_metrics_active(&n->tuner, !err && !off && n->tuning->policy->adapts);
	if (err) {
		snprintf(why, why_cap, "cannot start the tuner: %s", strerror(-err));
		free(n->tuning);
		n->tuning = NULL;
	}
	return err;
}

void node_tuner_stop(struct node *n)
{
	if (!n->tuning)
		return;
	tuner_loop_stop(n->tuning->loop);
	tuner_metrics_active(&n->tuner, false);
	free(n->tuning);
	n->tuning = NULL;
}

struct tuner_loop *node_tuner_loop(const struct node *n)
{
	return n->tuning ? n->tuning->loop : NULL;
}

static json_t *settings_json(const struct node *n, struct tuner_settings s)
{
	struct node_knobs k = node_tuner_values(n, s);

	return json_pack("{s:I, s:I, s:I, s:I}", "lanes", (json_int_t)k.links.lanes, "poll_us",
			 (json_int_t)k.links.poll_us, "batch", (json_int_t)k.links.batch,
			 "reserve_bytes", (json_int_t)k.reserve_bytes);
}

json_t *node_tuner_json(struct node *n)
{
	struct node_tuner *t = n->tuning;
	struct tuner_settings in_force;
	struct tuner_loop_state s = { 0 };
	json_t *j;

	if (!t)
		return json_pack("{s:b, s:s}", "running", 0, "why_not",
				 "there are no mirrors: nothing to tune");
	if (t->loop)
		tuner_loop_state(t->loop, &s);
	in_force =
	    tuner_settings_unpack(atomic_load_explicit(&t->in_force, memory_order_relaxed));
	j = json_pack("{s:b, s:s, s:b, s:b, s:b, s:I, s:o, s:o}", "running", t->loop != NULL,
		      "policy", t->loop ? t->policy->name : "off", "frozen", s.frozen,
		      "set_by_hand", s.set_by_hand, "recording", s.recording, "windows",
		      (json_int_t)s.windows, "settings", settings_json(n, in_force), "static",
		      settings_json(n, node_tuner_static(n)));
	if (s.set_by_hand && !tuner_settings_equal(s.set, in_force))
		json_object_set_new(j, "next", settings_json(n, s.set));
	if (!t->loop)
		json_object_set_new(j, "why_not", json_string("mounted with tuner=off"));
	if (s.failure)
		json_object_set_new(j, "failure", json_string(s.failure));
	return j;
}
